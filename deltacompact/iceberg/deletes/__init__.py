"""Which rows are dead: deletes matched to data files, keys digested, live bitmaps made.

matching      which delete files apply to which data files: pure      since     which deletes came or went after a plan
delete_keys   keys of equality deletes as digests                     ranges    hash buckets of digests as ranges
dead_rows     live bitmaps of data files                              readable  whether we can read all needed files
"""

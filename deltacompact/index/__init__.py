"""Maps each key to its live row: key bytes, entries, sorted runs, live bitmaps, and remaps of rewritten files.

keys                 rows -> digests                                    sort_keys, sort_widths   rows -> sort key bytes
entries              32 bytes a row and its sort key; start here        live_bitmaps             one bit a row
primary_key_index    runs of entries, by hash bucket                    index_files              how they are stored
remap                pointers into files that were rewritten            number_blocks            where their rows went
"""

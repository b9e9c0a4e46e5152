"""Dead rows are found, and become delete files: position deletes in version 2, deletion vectors in version 3.

finding     which rows of which data files are dead, in tasks       by keys, positions, vectors or the key index
marking     dead rows into delete files, in groups                   tasks     what one task writes
standing    which marks are still true after other commits
"""

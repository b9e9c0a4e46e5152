"""Iceberg tables as they are stored: what a branch holds, which of its rows are dead, and how a commit is made.

table        metadata, manifests, content files, vectors; the door to PyIceberg
settled      which rows upserts have compared already: kept in snapshots and table properties
deletes      which rows are dead                matched by sequence number and bounds; digests; live bitmaps
key_index    where each key lies, kept beside the table: the next run reads new files only
marks        dead rows found, and written as delete files: position deletes, or deletion vectors in Puffin files
commit       one snapshot onto a branch         a pure proposal on the current head, its manifests, its attempts
live_rows    the rows of data files that live, and those of a branch or a snapshot (scan, as_of)
boxes        the ranges of data files by column, for their depth             looks            into a few files
table_heat   what is kept of reads that engines tell of
history      what made each snapshot             rollback         to go back to one
row_deltas   upserts and deletes by key, as data files and equality deletes
comparison   which two snapshots must have the same rows
fingerprints what rows add up to                 file_fingerprints  the same of each data file, kept as statistics
running      one step for many tasks, in process or on Ray

The modes that compact a branch are in iceberg_modes.
"""

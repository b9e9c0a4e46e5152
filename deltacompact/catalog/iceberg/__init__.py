"""Iceberg tables: data files, delete files and deletion vectors, compacted under live writers.

pyiceberg_door      the only module that imports PyIceberg: catalogs, schemas, column metrics, commit_table
content_files       the vocabulary: a content file, a manifest entry, a partition spec
manifests           manifests and manifest lists: entries to bytes and back
table_state         a branch at one moment: its live data files and its live delete files
matching            which delete applies to which data file
rewrite_options     Iceberg's own option names, checked
rewrite_plan        pure: table state and options in, file groups and reasons out
delete_keys         task: equality deletes to digests, by hash bucket
dead_rows           task: delete files of any kind to live bitmaps
validation          pure: may a group that was planned then be committed now?
snapshots           a new snapshot: manifests, manifest list, summary, the commit and its retries
rewrite             the driver
"""

"""Iceberg tables: data files, delete files and deletion vectors, compacted under live writers.

catalog             what compact() and the command line see
pyiceberg_door      the door to PyIceberg: catalogs, schemas, column metrics, commit_table
metadata            what a table's metadata file says, as plain values
locations           paths as Iceberg writes them, and the URIs by which our stores open them
content_files       the vocabulary: a content file, a manifest entry, a partition spec
avro                the door to fastavro
manifests           manifests and manifest lists: entries to bytes and back
table_state         a branch at one moment: its live data files and its live delete files
matching            which delete applies to which data file
rewrite_options     Iceberg's own option names, checked
rewrite_plan        pure: table state and options in, file groups and reasons out
plan_document       the plan as JSON, and back
parquet_files       content files as the engine's readers know them
deletion_vectors    vectors in Puffin files; the door to pyroaring
delete_keys         task: equality deletes to digests, by hash bucket
dead_rows           task: delete files of any kind to live bitmaps
sampling            task: how large rows become as we write them
validation          pure: may a group that was planned then be committed now?
snapshots           a new snapshot: manifests, manifest list, summary, the commit and its retries
rewrite             the driver
"""

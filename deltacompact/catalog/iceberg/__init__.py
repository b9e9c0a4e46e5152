"""Iceberg tables: data files, delete files and deletion vectors, compacted under live writers.

catalog    what compact() and the command line see
table      the table as it is stored          metadata, manifests, content files, vectors; the door to PyIceberg
deletes    which rows are dead                matched by sequence number and bounds; digests; live bitmaps
key_index  where each key lies, kept beside the table: the next run reads new files only
marks      dead rows as delete files          position deletes, or deletion vectors in Puffin files
commit     one snapshot onto a branch         a pure proposal on the current head, its manifests, its attempts
journal    sessions of any mode               what they plan and wrote; signs of life; what died is resumed
mode       one call of a mode                 the driver: left, plan, resume, sessions, done again
rewrite    the mode `rewrite`                 options, plan, outputs, validation
convert    the mode `convert`                 options, plan, which marks are still true
upsert     the mode `upsert`                  options, columns, plan, comparison by tasks, validation
plan_envelope    what plans have in common as JSON
comparison which two snapshots must have the same rows
watching   counts and sizes of a branch, for triggers
maintain   small metadata                     expire snapshots, rewrite manifests, remove orphans
running    one step for many tasks, in process or on Ray
"""

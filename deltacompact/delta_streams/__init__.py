"""Tables of delta streams: each stream is a log of objects in a store. They need no other service.

streams       which streams there are, their logs and states; start here
tables        the declarations of tables                        table_documents  table.json, keys.json, source.json
listing       where all streams of a table stood                paths            where every object is

log           the log of one stream: entries, heads, checkpoints, tokens
appending     rows or files become a delta at its end

partition     the engine's three ports for one partition        snapshots        what a compaction folds
scan          which partitions, versions, columns and rows are read
destinations  tables that are written by compacting another table
versions      list versions, go back, take out one delta        taking_out       take out one file
retained      the state of a version, or of a moment
file_lists    what other engines read                           idle_streams     streams with nothing to compact
history       what made each version                            unchanged_streams  streams with no entry more
clustering    checks the columns to cluster by                  spellings        texts of partitions that mean one value
sizes         counts of compacted rows and waiting deltas       advising         what clustering would bring
table_heat    what reads ask for, kept beside the table         declared_columns  the types that a table declares

Users call catalog/delta_streams.py. maintenance/vacuum deletes objects that no version needs.
"""

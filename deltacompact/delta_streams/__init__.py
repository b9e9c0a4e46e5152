"""Tables of delta streams: each stream is a log of objects in a store. They need no other service.

streams       which streams there are, their logs and states; start here
tables        what is declared of tables                        table_documents  table.json, keys.json, source.json
listing       where all streams of a table stood                paths            where every object is

log           the log of one stream: entries, heads, checkpoints, tokens
appending     rows or files become a delta at its end

partition     the engine's three ports for one partition        snapshots        what a compaction folds
scan          which partitions, versions, columns and rows are read
destinations  tables that are written by compacting another one
versions      list them, go back, take out one delta            taking_out       take out one file
retained      their states, and those of a moment
file_lists    what other engines read                           idle_streams     which have nothing to compact
history       what made each version                            clustering       by which columns rows can lie
sizes         what lies in a stream, and what waits             advising         how its files lie by some columns
table_heat    what reads ask for, kept beside the table

Users call catalog/delta_streams.py; what nothing reaches goes with maintenance/vacuum.
"""

"""The default catalog: each stream of deltas is a log of objects in a store. It needs no other service.

catalog           what users call: create, append, read, publish; start here
tables            what is declared of tables                        table_documents  table.json, keys.json, source.json
listing           where all streams of a table stood                paths            where every object is

log               the log of one stream: entries, heads, checkpoints
appending         rows or files become a delta at its end
vacuum            what nothing reaches is deleted

partition         the engine's three ports for one partition        snapshots        what a compaction folds
scan              which partitions, versions, columns and rows are read
destinations      tables that are written by compacting another one
versions          list them, go back, take out one delta            taking_out       take out one file
file_lists        what other engines read
"""

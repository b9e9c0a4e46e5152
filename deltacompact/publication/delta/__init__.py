"""The publication as Delta Lake: a Delta log that refers to compacted files (PROTOCOL.md of delta-io/delta).

    _delta_log/00000000000000000000.json         protocol, metaData, txn, add file:///lake/orders/data/5c….parquet
    _delta_log/00000000000000000001.json         remove that file, add it with a deletion vector, add another file
    deletion_vector_1f….bin                      the deletion vectors that this commit brought

target         delta://PATH
table          checks the table, and commits missing files
columns        the types that a Delta table has, and those that it cannot have
schema         columns as Delta's JSON, with the history of widened types
protocol       the smallest protocol that a table needs; refuses features that we do not know
difference     the files that a commit adds and removes: pure
actions        the lines of a commit
statistics     numRecords, nullCount, minValues, maxValues of a file, from its footer
vectors        deletion vectors in Delta's framing
log            reads the newest version from checkpoint and commits
checkpoints    writes and reads checkpoints
held           the files that a vacuum of the stream must leave alone
"""

"""The publication as Iceberg.

target         iceberg://NAME/ns.table
table          checks, creates, adds columns, commits one snapshot
columns        the types that an Iceberg table has, and those that it cannot have
difference     the files that a snapshot adds and removes: pure
files          compacted files and their dead rows, as a manifest lists them
held           the files that a vacuum of the stream must leave alone
"""

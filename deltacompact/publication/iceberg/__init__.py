"""The publication as Iceberg.

target         iceberg://NAME/ns.table
table          checks, creates, adds columns, commits one snapshot
columns        which types the Iceberg table has, and which it cannot have
difference     what a snapshot adds and removes: pure
files          compacted files and their dead rows, as a manifest lists them
held           the files that a vacuum of the stream must leave alone
"""

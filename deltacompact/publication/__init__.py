"""Delta streams published as Iceberg: an Iceberg table that shows the compacted rows of a table, by reference.

    delta stream orders            version 3-a1…    a.parquet, b.parquet with a deletion vector
    Iceberg table db.orders        snapshot 7       a.parquet, b.parquet, position deletes of b.parquet

publication    declares, publishes, repairs       reads the streams, commits one snapshot
target         iceberg://NAME/ns.table
columns        which columns the Iceberg table has, and which types it cannot have
difference     what a snapshot adds and removes: pure
files          compacted files and their dead rows, as a manifest lists them
held           the files that a vacuum of the stream must leave alone

No other room knows both catalogs.
"""

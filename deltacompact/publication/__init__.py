"""Delta streams published: an Iceberg or a Delta table that shows the compacted rows of a table, by reference.

    delta stream orders            version 3-a1…    a.parquet, b.parquet with a deletion vector
    Iceberg table db.orders        snapshot 7       a.parquet, b.parquet, position deletes of b.parquet
    Delta table /exports/orders    version 7        a.parquet, b.parquet with a deletion vector of Delta's

publication    declares, publishes, repairs: reads the streams
targets        the target that a URI names
iceberg        a room: the publication as Iceberg
delta          a room: the publication as Delta Lake
columns        the columns of several streams, as one table
shown_types    the walk through a type, to those that a target has
port           what a publication asks of a target

No other room knows both catalogs.
"""

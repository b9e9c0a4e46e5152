"""Publishes delta streams: an Iceberg or a Delta table refers to the compacted files of a table, and shows their rows.

    delta stream orders            version 3-a1…    a.parquet, b.parquet with a deletion vector
    Iceberg table db.orders        snapshot 7       a.parquet, b.parquet, position deletes of b.parquet
    Delta table /exports/orders    version 7        a.parquet, b.parquet with a deletion vector of Delta's

publication    declares, publishes and repairs a publication
targets        the target that a URI names
iceberg        a room: the publication as Iceberg
delta          a room: the publication as Delta Lake
columns        the columns of several streams, as those of one table
port           the protocol of a target

No other room knows both catalogs.
"""

"""Spark reads publications: compacted files without field ids, position deletes, partitions that no file has."""

from __future__ import annotations

import datetime

import pyarrow as pa
from iceberg_lake import sorted_rows
from publications import LOCAL, WIDE, Publications, T, configure, plain

import deltacompact


def test_spark_reads_what_was_compacted(lake, spark_lake, tmp_path, monkeypatch):
    configure(lake, monkeypatch)
    spark_lake.spark.conf.set("spark.sql.session.timeZone", "UTC")
    _partitions_dead_rows_and_new_columns(Publications(lake, tmp_path / "by day %20", ["day", "n"]), spark_lake)
    _types(Publications(lake, tmp_path / "types"), lake, spark_lake)
    _times(Publications(lake, tmp_path / "times"), lake, spark_lake)


def _partitions_dead_rows_and_new_columns(published, spark_lake):
    def check():
        assert published.compact().publication.error is None
        shown = plain(spark_lake.rows(f"ns.{T}"))
        assert shown == published.compacted() == published.shown()
        return shown

    date = datetime.date(2024, 2, 29)
    for day, number in (("a b%2F/", 1), ("", 2), (None, None)):
        rows = [{"id": id_, "v": f"{day}", "deep": {"x": [id_], "y": {"z": date}}} for id_ in range(200)]
        partition = {"day": day, "n": number}
        published.append([row | {"n": number} for row in rows] if number else rows, **partition)
    published.publish()
    check()
    for day, number in (("a b%2F/", 1), (None, None)):
        published.append([{"id": id_} for id_ in (0, 7, 199)], "delete", day=day, n=number)
    check()
    assert len(published.lake.state(f"ns.{T}").deletes) == 2
    published.append(pa.table({"id": pa.array([7, 2**40]), "w": [1.5, None], "v": ["x", "y"]}), day="a b%2F/", n=1)
    published.append([{"id": 8}], "delete", day="a b%2F/", n=1)
    shown = check()
    assert len(shown) == 600 - 6 + 2 - 1
    spark = spark_lake.sql(f"select id, v from {{ns.{T}}} where day is null and id < 3").collect()
    assert sorted((row.id, row.v) for row in spark) == [(1, "None"), (2, "None")]
    (counted,) = spark_lake.sql(f"select count(*) as rows from {{ns.{T}}} where day = '' and n = 2").collect()
    assert counted.rows == 200


def _types(published, lake, spark_lake):
    """Every type that a publication may have, but the time of day, which Spark does not have."""
    columns = {name: values for name, values in WIDE.items() if name != "clock"}
    published.append(pa.table({"id": [1, 2], **columns}))
    published.catalog.append(T, pa.table({"id": [3]}))
    deltacompact.compact(T, delta_catalog_client=published.catalog, settings=LOCAL)
    published.catalog.publish(T, f"iceberg://{lake.name}/ns.types")
    by_pyiceberg = lake.catalog.load_table("ns.types").scan().to_arrow().to_pylist()
    by_spark = [row.asDict(recursive=True) for row in spark_lake.spark.table(f"{lake.name}.ns.types").collect()]
    assert len(by_spark) == 3
    assert sorted_rows([_alike(row) for row in by_spark]) == sorted_rows([_alike(row) for row in by_pyiceberg])


def _times(published, lake, spark_lake):
    """Without a nested column, Spark's reader of Iceberg is vectorized, and takes milliseconds for microseconds."""
    times = {unit: pa.array([1704085200 * 10 ** (3 * n)], pa.timestamp(unit)) for n, unit in enumerate(("s", "ms"))}
    published.append(pa.table({"id": [1], **times}))
    published.compact()
    published.catalog.publish(T, f"iceberg://{lake.name}/ns.times")
    (row,) = spark_lake.spark.table(f"{lake.name}.ns.times").collect()
    assert row.s == row.ms == datetime.datetime(2024, 1, 1, 5)
    assert published.compact(purge=True).publication.error is None
    for unit in times:
        (found,) = spark_lake.sql(
            f"select count(*) as rows from {{ns.times}} where {unit} > timestamp_ntz'2023-12-31 00:00:00'"
        ).collect()
        assert found.rows == 1


def _alike(row):
    """Python's values of both readers: maps are pairs in one and dicts in the other, times may have a zone."""
    made = {}
    for name in sorted(row):
        value = row[name]
        if name == "mapped" and value is not None:
            value = dict(value)
        if isinstance(value, bytearray):
            value = bytes(value)
        if isinstance(value, datetime.datetime):
            value = value.replace(tzinfo=None)
        made[name] = value
    return made

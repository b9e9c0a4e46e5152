"""Delta Lake for Spark reads a publication: absolute paths, deletion vectors, partitions, widened types."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from delta_publications import DeltaPublications
from publications import WIDE
from spark_fixtures import DELTA_SPARK


def by_spark(spark, *queries):
    """The rows of each query. Skipped where Maven cannot be reached."""
    if "delta-spark" not in spark.sparkContext._jsc.sc().listJars().mkString(" "):
        pytest.skip(f"{DELTA_SPARK} could not be had: no Maven repository was reachable")
    for published, query in queries:
        spark.read.format("delta").load(str(published.out)).createOrReplaceTempView("t")
        rows = [row.asDict(recursive=True) for row in spark.sql(query).collect()]
        yield json.loads(json.dumps(rows, default=str))


def test_spark_reads_what_was_compacted(tmp_path, spark):
    by_day = DeltaPublications(tmp_path / "by day %20", ["day", "n"])
    for day, number in (("a b%2F/é", 1), (None, None)):
        by_day.append(pa.table({"id": pa.array(range(9_000), pa.int32())}), day=day, n=number)
    by_day.compact()
    by_day.publish()
    by_day.append(pa.table({"id": pa.array([0, 8_191, 8_192, 8_999])}), "delete", day="a b%2F/é", n=1)
    by_day.append(pa.table({"id": [2**40], "w": ["y" * 50]}), day="a b%2F/é", n=1)
    by_day.compact()
    types = DeltaPublications(tmp_path / "types")
    columns = {name: values for name, values in WIDE.items() if name != "clock"}
    types.append(pa.table({"id": [1, 2], **columns}))
    types.compact()
    types.publish()
    totals, long_text, read = by_spark(
        spark,
        (by_day, "select day, n, count(*) as rows, sum(id) as ids from t group by day, n order by day"),
        (by_day, f"select id, day from t where w >= '{'y' * 50}'"),
        (types, "select id, tiny, real, price, huge, day, naive, text, words, nested, listed, mapped from t"),
    )
    whole = sum(range(9_000))
    assert totals == [
        {"day": None, "n": None, "rows": 9_000, "ids": whole},
        {"day": "a b%2F/é", "n": "1", "rows": 8_997, "ids": whole - 8_191 - 8_192 - 8_999 + 2**40},
    ]
    assert long_text == [{"id": 2**40, "day": "a b%2F/é"}]
    assert [row["nested"] for row in read] == [{"a": 1, "b": [{"c": "x"}]}, None]
    assert [(row["tiny"], row["price"], row["day"], row["naive"]) for row in read] == [
        (1, "1.25", "2024-01-01", "2024-01-01 05:00:00"),
        (-2, None, None, None),
    ]
    assert [(row["listed"], row["mapped"], row["words"]) for row in read] == [
        ([1, None], {"k": 1}, "a"),
        ([], None, "b"),
    ]

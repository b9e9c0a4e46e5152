"""Delta Lake for Spark reads a publication: absolute paths, deletion vectors, partitions, widened types."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest
from delta_publications import DeltaPublications
from publications import WIDE

pytestmark = pytest.mark.processes

DELTA_SPARK = "io.delta:delta-spark_4.1_2.13:4.4.0"
"""The newest one for the PySpark that we pin."""
_READS = """
    import json, sys
    from deltacompact.spark.session import spark_session

    spark = spark_session(
        "delta",
        "local[1]",
        spark__jars__packages=sys.argv[1],
        spark__sql__extensions="io.delta.sql.DeltaSparkSessionExtension",
        spark__sql__catalog__spark_catalog="org.apache.spark.sql.delta.catalog.DeltaCatalog",
        spark__driver__defaultJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # as in spark_fixtures.py
        spark__sql__shuffle__partitions=1,
        spark__databricks__delta__snapshotPartitions=1,  # a log has a few lines, and would have 50 tasks
    )
    for folder, query in zip(sys.argv[2::2], sys.argv[3::2]):
        spark.read.format("delta").load(folder).createOrReplaceTempView("t")
        print("ROWS", json.dumps([row.asDict(recursive=True) for row in spark.sql(query).collect()], default=str))
"""


def by_spark(*queries):
    """The rows of each query. Skipped where Maven cannot be reached."""
    arguments = [str(part) for published, query in queries for part in (published.out, query)]
    command = [sys.executable, "-c", textwrap.dedent(_READS), DELTA_SPARK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    if done.returncode and "unresolved dependency" in done.stdout + done.stderr:
        pytest.skip(f"{DELTA_SPARK} could not be had: no Maven repository was reachable")
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line.removeprefix("ROWS ")) for line in done.stdout.splitlines() if line.startswith("ROWS ")]


def test_spark_reads_what_was_compacted(tmp_path):
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

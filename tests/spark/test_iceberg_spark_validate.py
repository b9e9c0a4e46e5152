"""Spark as the judge of our compactions: `validate` compares what they found with what they left."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from iceberg_fixtures import lake, silence_is_short, spark_lake  # noqa: F401  (fixtures)
from iceberg_lake import SETTINGS
from publications import configure
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DoubleType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

import deltacompact
from deltacompact import cli
from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.catalog.fingerprints import statement
from deltacompact.iceberg.table.metadata import RECORDED_FINGERPRINT
from deltacompact.spark.iceberg import added_up, spark_settings, validate_snapshots

T = "ns.t"
NESTED = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ratio", DoubleType()),
    NestedField(3, "tags", ListType(4, StringType(), element_required=False)),
    NestedField(5, "more", MapType(6, StringType(), 7, LongType(), value_required=False)),
    NestedField(8, "place", StructType(NestedField(9, "city", StringType()))),
)


def row(number):
    ratio = [None, float("nan"), 0.5][number % 3]
    return {"id": number, "ratio": ratio, "tags": ["a", None], "more": [("k", number)], "place": {"city": f"c{number}"}}


def compact(lake, mode="rewrite", settings=SETTINGS, **options):
    catalog = deltacompact.open_catalog(lake.catalog)
    return deltacompact.compact(T, delta_catalog_client=catalog, mode=mode, options=options, settings=settings)


def test_spark_finds_the_same_rows_before_and_after(lake, spark_lake, spark):
    """All in one test: Spark takes a second for each look."""
    catalog = deltacompact.open_catalog(lake.catalog)
    lake.create(T, NESTED)
    assert validate_snapshots(catalog, T, spark=spark).nothing_to_do == "the branch has no snapshot"
    for first in (0, 4, 8):
        lake.append(T, [row(number) for number in range(first, first + 4)] + [row(1)])
    assert "no compaction of ours" in validate_snapshots(catalog, T, spark=spark).nothing_to_do
    lake.delete_by_key(T, {"id": [1, 5]})
    found = lake.state(T).snapshot_id
    compact(lake, "convert")
    compact(lake, settings=replace(SETTINGS, certify=True), **{"rewrite-all": True})
    recorded = lake.state(T).snapshot.summary[RECORDED_FINGERPRINT]
    (of_files,) = lake.state(T).metadata.statistics
    assert of_files.path.endswith("-deltacompact.stats"), "Spark reads a table that has a statistics file of ours"
    lake.append(T, [row(99)])
    report = validate_snapshots(catalog, T, spark=spark)
    assert report.ok and report.before == found and report.counted_by_pyiceberg == report.rows_after == 10, str(report)
    said = "validated: Spark reads 10 identical rows, and PyIceberg counts as many; their fingerprint is "
    assert str(report).endswith(f"{said}{recorded}, as recorded")

    head, branch = lake.state(T).snapshot_id, catalog.table(T)
    for snapshot in (found, head):
        by_spark = added_up(spark, lake.state(T).metadata.schema, f"{lake.name}.{T} VERSION AS OF {snapshot}")
        assert by_spark == str(branch.fingerprint(as_of=snapshot))
    report = validate_snapshots(catalog, T, before=found, after=head, spark=spark)
    assert not report.ok and (report.missing, report.extra, len(report.digests)) == (0, 1, 1)
    assert "NOT VALID: 1 rows of 11 were not there before; digests " in str(report)

    lake.append(T, [row(0)])
    head = lake.state(T).snapshot_id
    compact(lake, "upsert", **{"key-columns": "id", "trust-row-order": True})
    with pytest.raises(InputError, match="is an upsert, which removes rows by design: name the snapshots"):
        validate_snapshots(catalog, T, spark=spark)
    report = validate_snapshots(catalog, T, before=head, after=lake.state(T).snapshot_id, spark=spark)
    assert (report.missing, report.extra) == (1, 0), "of two equal rows one is left"
    with pytest.raises(NotFoundError, match="has no snapshot 7"):
        validate_snapshots(catalog, T, before=7, spark=spark)
    with pytest.raises(InputError, match="is no compaction of ours: name --before"):
        validate_snapshots(catalog, T, after=head, spark=spark)


def test_rows_that_differ_in_a_microsecond_or_in_a_key_of_bytes_are_not_identical(lake, spark_lake, spark):
    """Spark's JSON has milliseconds, and the address of an object for each key of bytes."""
    catalog, keyed_by_bytes = deltacompact.open_catalog(lake.catalog), MapType(5, BinaryType(), 6, LongType(), False)
    lake.create(
        T,
        Schema(
            NestedField(1, "zoned", TimestamptzType()),
            NestedField(2, "local", ListType(3, TimestampType(), element_required=False)),
            NestedField(4, "more", keyed_by_bytes),
        ),
    )
    table, snapshots = lake.catalog.load_table(T), []
    for zoned, local, key in ((1, 1, b"a"), (1, 1, b"a"), (2, 1, b"a"), (2, 2, b"a"), (2, 2, b"b")):
        rows = pa.table(
            {
                "zoned": pa.array([zoned], pa.timestamp("us", "UTC")),
                "local": pa.array([[local]], pa.list_(pa.timestamp("us"))),
                "more": pa.array([[(key, 1)]], pa.map_(pa.binary(), pa.int64())),
            }
        )
        (table.overwrite if snapshots else table.append)(rows)
        snapshots.append(table.current_snapshot().snapshot_id)
    for place, (before, after) in enumerate(pairwise(snapshots)):
        report = validate_snapshots(catalog, T, before=before, after=after, spark=spark)
        assert (report.missing, report.extra) == ((1, 1) if place else (0, 0)), str(report)


def test_names_that_are_no_plain_words_are_quoted_for_spark(lake, spark_lake, spark):
    table_id, catalog = "ns.order-items", deltacompact.open_catalog(lake.catalog)
    lake.create(table_id, Schema(NestedField(1, "id", LongType()), NestedField(2, "a `b`", LongType())))
    for number in range(3):
        lake.append(table_id, [{"id": number, "a `b`": number}])
    settings, options = replace(SETTINGS, certify=True), {"rewrite-all": True}
    deltacompact.compact(table_id, delta_catalog_client=catalog, mode="rewrite", options=options, settings=settings)
    report = validate_snapshots(catalog, table_id, spark=spark)
    assert report.ok and report.rows_after == 3 and report.recorded is not None, str(report)
    assert spark.sql(statement(catalog, table_id, "spark")).first()[0] == report.recorded


def test_the_command_says_what_it_found(lake, spark_lake, spark, monkeypatch, capsys):
    configure(lake, monkeypatch)
    lake.create(T, NESTED)
    for number in range(3):
        lake.append(T, [row(number)])
    before = lake.state(T).snapshot_id
    compact(lake, **{"rewrite-all": True})
    uri = f"iceberg://{lake.name}"
    assert cli.run(["validate", uri, T, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["before"], said["rows_after"]) == (True, before, 3)
    lake.append(T, [row(7)])
    assert cli.run(["validate", uri, T, "--before", str(before), "--after", str(lake.state(T).snapshot_id)]) == 1
    assert "have different rows" in capsys.readouterr().err
    assert cli.run(["validate", uri, T, "--partition", "day=1"]) == 2
    assert "--partition is for delta streams" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (
            {"type": "rest", "uri": "http://c", "credential": "x", "other": "y"},
            {"type": "rest", "uri": "http://c", "credential": "x"},
        ),
        (
            {"type": "glue", "warehouse": "s3://w"},
            {"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog", "warehouse": "s3://w"},
        ),
        ({"type": "hive", "uri": "thrift://h"}, {"type": "hive", "uri": "thrift://h"}),
    ],
)
def test_catalogs_are_told_to_spark(properties, expected):
    assert spark_settings("prod", properties) == expected


def test_a_catalog_that_spark_cannot_be_told_of_is_refused():
    with pytest.raises(InputError, match=r"'prod' \(dynamodb\): we know no settings of Spark for this kind"):
        spark_settings("prod", {"type": "dynamodb"})

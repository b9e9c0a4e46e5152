"""Scan reports as Iceberg's REST client posts them: which columns are asked for, how often, and nothing else."""

from __future__ import annotations

import math

import pytest

from deltacompact.layout.reads import (
    HALF_LIFE_S,
    Read,
    columns_asked,
    heat_of,
    names_table,
    read_document,
    read_from_document,
)
from deltacompact.layout.scan_reports import read_of

NOW = 1_795_400_000.0


def report(filter_, table="prod.ns.t", opened=3):
    """One of Iceberg 1.12 (ReportMetricsRequestParser), with its sanitised literals."""
    return {
        "report-type": "scan-report",
        "table-name": table,
        "snapshot-id": 7757497569257380734,
        "filter": filter_,
        "schema-id": 0,
        "projected-field-ids": [1, 2],
        "projected-field-names": ["id", "day"],
        "metrics": {
            "total-planning-duration": {"count": 1, "time-unit": "nanoseconds", "total-duration": 2644235116},
            "result-data-files": {"unit": "count", "value": opened},
            "skipped-data-files": {"unit": "count", "value": 21},
        },
        "metadata": {"engine-name": "spark", "engine-version": "4.1.0", "iceberg-version": "1.12.0"},
    }


DAY = {"type": "lt-eq", "term": "day", "value": "(date-3-days-ago)"}
ID = {"type": "in", "term": {"type": "transform", "transform": "bucket[4]", "term": "id"}, "values": ["(hash-1)"]}


def test_the_columns_with_a_predicate_are_kept_and_no_literal():
    there = {"type": "not-null", "term": "name"}  # skips no file: engines add it to every comparison
    day = {"type": "and", "left": there, "right": DAY}
    both = {"type": "and", "left": {"type": "not", "child": day}, "right": {"type": "or", "left": ID, "right": DAY}}
    read = read_of(report(both), NOW)
    assert read == Read("prod.ns.t", ("day", "id"), 3, 21, NOW)
    assert "hash" not in repr(read)
    assert names_table(read.table, "ns.t")
    assert not names_table(read.table, "s.t")
    assert read_of(report(True), NOW).columns == ()


@pytest.mark.parametrize(
    ("at", "found"),
    [
        (None, NOW),
        (7, 7.0),
        ("1970-01-01T00:00:07", 7.0),
        ("1970-01-01T01:00:07+01:00", 7.0),
        ("x", None),
        (10**400, None),
    ],
)
def test_when_it_was_received(at, found):
    read = read_of({"at": at, "report": report(DAY)}, NOW)
    assert (read.at_s if read else None) == found


@pytest.mark.parametrize("bad", [None, [], "x", {}, {"report": 7}, {"report-type": "commit-report", "table-name": "t"}])
def test_what_is_no_scan_report_tells_nothing(bad):
    assert read_of(bad, NOW) is None


@pytest.mark.parametrize("strange", [{"at": 10**400}, {"read": {"opened": math.inf}}, {"read": {"rows": math.inf}}])
def test_a_record_with_numbers_that_no_read_has_tells_nothing(strange):
    record = read_document(Read("ns.t", ("day",), 3, 21, NOW, 7))
    assert read_of(record, NOW) == read_from_document(record)
    damaged = record | strange | {"read": record["read"] | strange.get("read", {})}
    assert read_of(damaged, NOW) is None


def test_counts_of_any_shape_are_read_or_zero():
    strange = report(DAY) | {"metrics": {"result-data-files": 7, "skipped-data-files": {"value": "many"}}}
    assert read_of(strange, NOW) == Read("prod.ns.t", ("day",), 0, 0, NOW)


def asked(*reads):
    of = [Read("t", columns, 1, 0, NOW - age * HALF_LIFE_S) for columns, age in reads]
    return [(column.name, column.weight) for column in columns_asked(heat_of(of, NOW))]


def test_a_read_of_a_week_ago_counts_for_half():
    assert asked((("day",), 0), (("day", "id"), 0), (("id",), 1)) == [("day", 1.3), ("id", 1.0)]
    assert asked((("day",), -5), (("id",), 0)) == [("day", 1.0), ("id", 1.0)]  # another clock goes ahead
    assert asked() == []
    assert asked((("day",), 5000)) == []


def test_what_is_hardly_asked_for_is_left_out():
    assert asked(*[(("day",), 0)] * 30, (("id",), 0)) == [("day", 1.0)]
    assert len(asked(*[((name,), 0) for name in "abcdef"])) == 4

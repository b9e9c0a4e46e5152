"""Event logs of Spark, line by line: all spellings of a scan, metrics that come later, lines that cannot be read."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest

from deltacompact.base.errors import InputError
from deltacompact.layout.log_lines import LeftOut, lines_of, logs_in, name_of
from deltacompact.layout.reads import Read
from deltacompact.layout.spark_logs import SparkLog, columns_asked_in

SQL = "org.apache.spark.sql.execution.ui.SparkListener"
COLUMNS = ["id", "day", "name", "a", "odd, name"]
NEW = (
    "BatchScan prod.ns.t",
    "BatchScan prod.ns.t[id#1L, day#2] IcebergScan(table=prod.ns.t, schemaId=0, snapshotId=7, branch=null, "
    "filters=day IS NOT NULL, day = 20455, name IN ('x', 'and (id = 7)'), runtimeFilters=, groupedBy=id) "
    "RuntimeFilters: []",
)
MIDDLE = (
    "BatchScan prod.ns.t",
    "BatchScan prod.ns.t[id#1L, day#2] prod.ns.t (branch=null) [filters=day = 20455, (id > 7 OR name LIKE 'x%'), "
    "groupedBy=] RuntimeFilters: [dynamicpruningexpression(odd, name#4 IN subquery#9)]",
)
OLD = ("BatchScan", "BatchScan[id#1L, day#2] prod.ns.t [filters=id IS NOT NULL, p.a = 7, id <= 5]")


def node(name, text, first=10, children=(), metadata=None, metrics=None):
    metrics = metrics or ("number of output rows", "number of result data files", "number of skipped data files")
    told = [
        {"name": metric, "accumulatorId": first + place, "metricType": "sum"} for place, metric in enumerate(metrics)
    ]
    return {
        "nodeName": name,
        "simpleString": text,
        "children": list(children),
        "metadata": metadata or {},
        "metrics": told,
    }


def start(number, plan, at_ms=7_000):
    return {"Event": f"{SQL}SQLExecutionStart", "executionId": number, "time": at_ms, "sparkPlanInfo": plan}


def told_of_files(number, *values):
    return {
        "Event": f"{SQL}DriverAccumUpdates",
        "executionId": number,
        "accumUpdates": [list(update) for update in values],
    }


def rows(number, value):
    told = [{"ID": number, "Name": "number of output rows", "Value": value}, {"ID": 99, "Value": "no number"}]
    return {"Event": "SparkListenerStageCompleted", "Stage Info": {"Accumulables": told}}


def end(number):
    return {"Event": f"{SQL}SQLExecutionEnd", "executionId": number, "time": 9_000}


def reads(*events, table="ns.t"):
    left_out = LeftOut()
    lines = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    return [read for _, read in SparkLog(table, COLUMNS, left_out).reads(lines)], left_out.lines


@pytest.mark.parametrize(
    ("scan", "columns"),
    [(NEW, ("day", "name")), (MIDDLE, ("id", "day", "name", "odd, name")), (OLD, ("id",))],
)
def test_each_release_of_iceberg_spells_a_scan_in_its_own_way(scan, columns):
    done = reads(start(3, node(*scan)), told_of_files(3, (11, 4), (12, 20), (77, 5)), rows(10, "250"), end(3))
    assert done == ([Read("ns.t", columns, 4, 20, 7.0, 250)], 0)
    assert reads(start(3, node(*scan)), end(3), table="s.t") == ([], 0)


def test_scans_of_files_name_pushed_and_partition_filters():
    metadata = {
        "PartitionFilters": "[isnotnull(day#165), (day#165 = 2026-01-02)]",
        "PushedFilters": "[IsNotNull(id), Or(In(name, [a,b]),LessThan(a,3))]",
    }
    metrics = ("number of files read", "number of output rows")
    scan = node("Scan parquet spark_catalog.ns.t", "FileScan …", metadata=metadata, metrics=metrics)
    done = reads(start(3, scan), told_of_files(3, (10, 2)), end(3))
    assert done == ([Read("ns.t", ("day", "name", "a"), 2, 0, 7.0, None)], 0)
    assert reads(start(3, node("Scan parquet ", "FileScan …", metadata=metadata)), end(3)) == ([], 0)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("p.a = 7, a.id = 3", ()),
        ("bucket(4, id) = 3", ("id",)),
        ('ref(name="day") == 7', ("day",)),
        ("odd, name = 'day = 7'", ("odd, name",)),
        ("(id IS NULL OR NOT (day NOT IN (1, 2)))", ("id", "day")),
        ("id2 = 7, my_day = 3, dayIN = 3", ()),
        ("isnotnull(id#1L), isnotnull(day#2)", ()),
    ],
)
def test_columns_are_found_where_a_column_stands(text, columns):
    assert columns_asked_in(text, COLUMNS) == columns


def test_a_plan_that_is_made_anew_counts_once_and_a_join_twice():
    one, other = node(*NEW), node(*OLD, first=20)
    again = {
        "Event": f"{SQL}SQLAdaptiveExecutionUpdate",
        "executionId": 3,
        "sparkPlanInfo": node("Join", "", 40, [one]),
    }
    found, _ = reads(
        start(3, node("Join", "", 40, [one, one, other])), again, told_of_files(3, (11, 4), (21, 6)), end(3)
    )
    assert [(read.columns, read.files_opened) for read in found] == [(("day", "name"), 4), (("id",), 6)]


def test_a_query_without_an_end_is_told_by_what_is_known():
    assert reads(start(3, node(*OLD)), told_of_files(3, (11, 4))) == ([Read("ns.t", ("id",), 4, 0, 7.0, None)], 0)


def test_bad_lines_are_counted_and_the_rest_is_read():
    strange = start(4, node(*NEW)) | {"sparkPlanInfo": {"nodeName": "Scan"}}
    bad = [b'{"Event":"Spark', b"no json", b"[7]", b"7", json.dumps(strange).encode(), b"[" * 100_000]
    bad += [json.dumps(start(4, node(*NEW)) | {"time": 10**400}).encode(), json.dumps(end(math.inf)).encode()]
    others = [b'{"Event":"SparkListenerTaskEnd","Task Info":{}}', b"", {"Event": "org.example.Unknown"}]
    found, left_out = reads(*bad, *others, end(9), start(3, node(*OLD)), end(3))
    assert (len(found), left_out) == (1, len(bad))


def log(path, events, compression=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    with pa.output_stream(path, compression=compression) as out:
        out.write(text)


def read_all(path):
    left_out = LeftOut()
    logs = [[*SparkLog("ns.t", COLUMNS, left_out).reads(lines_of(log, left_out))] for log in logs_in(path)]
    return [[number for number, _ in reads] for reads in logs], left_out.lines


def test_rolled_logs_are_read_in_the_order_of_their_numbers(tmp_path):
    rolled = tmp_path / "eventlog_v2_app-1"
    many = [[start(number, node(*OLD)), end(number)] for number in range(12)]
    for number, events in enumerate(many, 1):
        log(rolled / f"events_{number}_app-1.zstd", events, "zstd")
    (rolled / "appstatus_app-1.inprogress").touch()
    (rolled / ".events_1_app-1.crc").write_bytes(b"crc")
    log(tmp_path / "local-7", many[0])
    log(tmp_path / "local-8.gz", many[1], "gzip")
    assert read_all(tmp_path) == ([[*range(12)], [0], [1]], 0)
    assert {name_of(log) for log in logs_in(tmp_path)} == {"app-1", "local-7", "local-8"}
    assert read_all(rolled) == ([[*range(12)]], 0)


def test_half_a_compressed_log_is_read_up_to_where_it_ends(tmp_path):
    path = tmp_path / "app-1.zstd.inprogress"
    events = [event for query in range(900) for event in (start(query, node(*NEW)), end(query))]
    log(tmp_path / "whole.zstd", events, "zstd")
    whole = (tmp_path / "whole.zstd").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    (found,), left_out = read_all(path)
    assert found == [*range(len(found))]
    assert 0 < len(found) < 900
    assert left_out in (1, 2)  # the frame that ends, and perhaps a line


def test_what_cannot_be_read_at_all_is_named(tmp_path):
    (tmp_path / "app-1.lz4").touch()
    with pytest.raises(InputError, match=r"app-1\.lz4 is compressed by \.lz4: set spark\.eventLog"):
        read_all(tmp_path)
    with pytest.raises(InputError, match="there is no log"):
        read_all(tmp_path / "gone")


def test_logs_that_end_or_go_while_others_are_read_are_no_error(tmp_path):
    for name in ("ends.inprogress", "goes", "stays"):
        log(tmp_path / name, [start(3, node(*OLD)), end(3)])
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    listed = list(logs_in(tmp_path))
    (tmp_path / "ends.inprogress").rename(tmp_path / "ends")
    (tmp_path / "goes").unlink()
    left_out = LeftOut()
    assert [len([*lines_of(files, left_out)]) > 1 for files in listed] == [True, False, True]
    assert left_out.lines == 1

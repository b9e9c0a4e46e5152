"""validate --by self and --by duckdb: fingerprints of both kinds of tables, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_fixtures import lake, silence_is_short  # noqa: F401  (fixtures)
from publications import configure
from row_faults import FAULTS, lost, twice

import deltacompact
from deltacompact import cli
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.steps import materialize

T = "ns.t"


def answered(arguments, capsys, status=0):
    assert cli.run([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def orders(tmp_path):
    table = deltacompact.open_catalog(tmp_path).create_table("orders", primary_keys=["id"])
    table.append(pa.table({"id": [1, 2], "v": ["a", None]}))
    return str(tmp_path), table


@pytest.mark.parametrize("by", ["self", "duckdb"])
def test_a_stream(orders, by, capsys):
    place, table = orders
    assert cli.run(["compact", place, "orders", "--certify"]) == 0
    table.append(pa.table({"id": [3]}))
    capsys.readouterr()
    (found,) = answered(["validate", place, "orders", "--by", by], capsys)
    compacted, live = found["states"]
    assert found["ok"] and found["by"] == by and compacted["recorded"] == compacted["fingerprint"]
    assert live == {"state": "live rows", "fingerprint": str(table.fingerprint()), "recorded": None}


def test_a_log_that_tells_of_other_rows(orders, capsys, monkeypatch):
    place, _ = orders
    monkeypatch.setattr(materialize, "certified", lambda *given: Fingerprint(2, 7))
    assert cli.run(["compact", place, "orders", "--certify"]) == 0
    capsys.readouterr()
    assert cli.run(["validate", place, "orders", "--by", "self"]) == 1
    assert "NOT VALID: compacted rows 2:" in capsys.readouterr().out


def test_the_statement_gives_what_is_printed(orders, capsys):
    place, table = orders
    assert cli.run(["validate", place, "orders", "--by", "duckdb", "--sql"]) == 0
    statement, live_rows = capsys.readouterr().out, table.read()
    assert duckdb.sql(statement).fetchall() == [(str(table.fingerprint()),)]
    assert live_rows.num_rows == 2
    assert cli.run(["validate", place, "orders", "--by", "self", "--sql"]) == 2
    assert "only spark and duckdb take SQL" in capsys.readouterr().err


def overwritten(rows):
    place = rows.column_names.index("v")
    field = rows.schema.field(place)
    return rows.set_column(place, field, pa.array(["x"] * rows.num_rows, field.type))


def test_two_snapshots_of_an_iceberg_table(lake, monkeypatch, capsys):
    configure(lake, monkeypatch)
    lake.create(T, pa.schema([("id", pa.int64()), ("v", pa.string())]))
    lake.append(T, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    table = [f"iceberg://{lake.name}", T]
    (alone,) = answered(["validate", *table, "--by", "self"], capsys)["states"]
    assert alone["fingerprint"].startswith("2:")
    lake.delete_by_key(T, {"id": [1]})
    before = lake.state(T).snapshot_id
    compaction = ["compact", *table, "--option", "delete-file-threshold=1", "--certify"]
    with monkeypatch.context() as broken:
        live_rows = materialize._live_rows
        broken.setattr(materialize, "_live_rows", lambda *given: (overwritten(rows) for rows in live_rows(*given)))
        assert cli.run(compaction) == 1
    assert "what was written of them 1:" in capsys.readouterr().err and lake.state(T).snapshot_id == before
    assert cli.run(compaction) == 0
    capsys.readouterr()
    found = answered(["validate", *table, "--by", "duckdb"], capsys)
    assert found["ok"] and found["states"][0]["state"] == f"snapshot {before}"
    assert len({state["fingerprint"] for state in found["states"]}) == 1 and len(found["states"]) == 2
    assert [state["recorded"] for state in found["states"]] == [None, found["states"][1]["fingerprint"]]
    lake.append(T, [{"id": 3, "v": "c"}])
    head = str(lake.state(T).snapshot_id)
    found = answered(["validate", *table, "--by", "self", "--before", str(before), "--after", head], capsys, status=1)
    assert not found["ok"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["stream", "iceberg"])
def test_rows_that_changed_after_they_were_certified_are_found(orders, lake, monkeypatch, capsys, kind, fault):
    place, _ = orders
    table = [place, "orders"]
    if kind == "iceberg":
        configure(lake, monkeypatch)
        lake.create(T, pa.schema([("id", pa.int64()), ("v", pa.string())]))
        lake.append(T, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
        table = [f"iceberg://{lake.name}", T]
    rewriting = ["--option", "rewrite-all=true"] if kind == "iceberg" else []
    assert cli.run(["compact", *table, "--certify", *rewriting]) == 0
    assert cli.run(["validate", *table, "--by", "self"]) == 0
    files = Path(place, "orders", "data").rglob("*.parquet") if kind == "stream" else [data_file(lake)]
    for path in files:
        pq.write_table(fault(pq.read_table(path, partitioning=None)), path)
    capsys.readouterr()
    status, printed = cli.run(["validate", *table, "--by", "self"]), capsys.readouterr()
    if fault in (twice, lost):
        assert (status, "rows where the log says 2" in printed.err) == (2, True), printed.err
    else:
        assert (status, "NOT VALID" in printed.out) == (1, True), printed.out


def data_file(lake):
    (entry,) = lake.state(T).data
    return Path(entry.file.path.removeprefix("file://"))


@pytest.mark.parametrize("by", ["self", "duckdb"])
def test_a_table_of_deletes_alone_has_no_row(tmp_path, capsys, by):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("gone", primary_keys=["id"]).append(pa.table({"id": [1]}), operation="delete")
    assert cli.run(["validate", str(tmp_path / "lake"), "gone", "--by", by]) == 0
    assert "live rows 0:" in capsys.readouterr().out


def test_a_value_that_duckdb_cannot_hold_is_one_clear_line(tmp_path, capsys):
    table = deltacompact.open_catalog(tmp_path).create_table("t", primary_keys=["id"])
    far = pa.array([0, 10**14], pa.timestamp("s"))
    table.append(pa.table({"id": [1, 2], "at": far}))
    table.compact()
    assert cli.run(["validate", str(tmp_path), "t", "--by", "duckdb"]) == 2
    printed = capsys.readouterr()
    assert "DuckDB cannot read the rows (Conversion Error: Could not convert Timestamp" in printed.err + printed.out
    assert "--by self" in printed.err + printed.out and "LINE" not in printed.err + printed.out
    assert cli.run(["validate", str(tmp_path), "t", "--by", "self"]) == 0

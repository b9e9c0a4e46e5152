"""What reads ask a table of streams for: told, kept beside it, replayed, and taken by who decides about a layout."""

from __future__ import annotations

import json
import time

import numpy as np
import pyarrow as pa
import pytest

import deltacompact
from deltacompact import DeltaStreamCatalog, InputError, Settings
from deltacompact.cli import run
from deltacompact.maintenance.drop import drop
from deltacompact.reading.recorded import VARIABLE
from deltacompact.storage.memory import MemoryStore

LOCAL = Settings(executor="local", local_threads=1)


def rows(step: int) -> pa.Table:
    x = np.random.default_rng(step).integers(0, 10**6, 200)
    return pa.table({"id": range(200 * step, 200 * step + 200), "x": x, "tags": [[1]] * 200})


def filled(catalog: DeltaStreamCatalog):
    """Three compacted files and a delta that lie over each other by `x`."""
    table = catalog.create_table("orders", primary_keys=["id"])
    for step in range(4):
        table.append(rows(step))
        if step < 3:
            table.compact(settings=LOCAL, rows_per_compacted_file=250)
    return table


@pytest.fixture
def orders():
    return filled(DeltaStreamCatalog(MemoryStore()))


def recorded(*columns: str, at_s: float | None = None, table: str = "orders") -> dict:
    said = {"table": table, "columns": list(columns), "opened": 3, "skipped": 0, "rows": 1}
    return {"at": time.time() if at_s is None else at_s, "read": said}


def test_our_own_reads_are_kept_and_decide_the_columns(orders, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "reads.jsonl"))
    for low in (10, 20):
        orders.read(filter=[("x", ">", low)])
    monkeypatch.delenv(VARIABLE)
    assert orders.advise().columns == ("id",)
    lines = (tmp_path / "reads.jsonl").read_bytes().splitlines()
    heat, notes = orders.heat(scan_reports=[*lines, b"no json", recorded("tags", "gone"), recorded("x", table="other")])
    assert (dict(heat.columns), len(notes)) == ({"x": pytest.approx(2, rel=1e-3)}, 1)
    assert orders.heat(scan_reports=lines)[0].columns["x"] == pytest.approx(2, rel=1e-3), "told before"
    assert orders.heat()[0].columns["x"] == pytest.approx(2, rel=1e-3)
    advice = orders.advise()
    assert (advice.columns, advice.rewrite_files) == (("x",), 4)


def test_the_heat_of_a_table_that_lay_here_before_counts_for_nothing(orders):
    catalog = orders._catalog
    orders.heat(scan_reports=[recorded("x")])
    kept = [stat.path for stat in catalog.store.list("orders/heat/")]
    assert len(kept) == 1
    before = catalog.store.get(kept[0])
    assert drop(catalog, "orders").left == ()
    again = filled(catalog)
    catalog.store.put(kept[0], before)
    assert again.heat()[0].columns == {}


def test_policies_are_compared_on_the_files_as_they_came(orders):
    reads = [recorded("x", at_s=time.time() + number) for number in range(50)]
    objects = set(orders._catalog.store._objects)
    found = {replay.policy: replay for replay in orders.simulate(depths=[2.0], scan_reports=reads)[0]}
    assert [*found] == ["never", "every run", "depth > 2", "tiers"]
    assert (found["never"].bytes_written, found["never"].saved_s) == (0, 0)
    assert found["every run"].bytes_written > 0
    assert set(orders._catalog.store._objects) == objects
    with pytest.raises(InputError, match="give --spark-log or --scan-reports"):
        orders.simulate("x")
    with pytest.raises(InputError, match="has a column 'y'"):
        orders.simulate("y", scan_reports=reads)


def test_the_commands(tmp_path, capsys):
    filled(deltacompact.open_catalog(tmp_path / "lake"))
    where, reports = str(tmp_path / "lake"), tmp_path / "reads.jsonl"
    reports.write_text(json.dumps(recorded("x")))
    assert run(["heat", where, "orders"]) == 0
    assert "no reads have been told" in capsys.readouterr().out
    assert run(["heat", where, "orders", "--scan-reports", str(reports), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weights"] == {"x": 1.0}
    assert run(["simulate", where, "orders", "--scan-reports", str(reports), "--depth", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["never", "0", "0", "B"]
    assert run(["simulate", where, "orders", "--scan-reports", str(reports), "--branch", "b"]) == 2
    assert "is for tables of Iceberg catalogs" in capsys.readouterr().err
    reports.write_text("")
    assert run(["simulate", where, "orders", "--scan-reports", str(reports)]) == 2
    assert "reads.jsonl: no scan report yet" in capsys.readouterr().err

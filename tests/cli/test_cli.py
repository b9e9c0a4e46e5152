"""The command line as its users meet it: a whole table's life, dry runs, JSON, and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltacompact
from deltacompact import cli


@pytest.fixture
def run(tmp_path, capfd):
    """Run one command on a catalog below tmp_path; what it printed."""

    def call(command, *arguments, status=0):
        assert cli.run([command, str(tmp_path / "lake"), *map(str, arguments)]) == status
        return capfd.readouterr().out

    return call


def given(tmp_path, name, **columns):
    path = tmp_path / name
    pq.write_table(pa.table(columns), path)
    return path


def test_the_life_of_a_table(run, tmp_path):
    assert "created orders" in run("create", "orders", "--partition-key", "day", "--primary-key", "id")
    monday = ["--partition", "day=mon"]
    run("append", "orders", given(tmp_path, "a.parquet", id=[1, 2, 3], v=["a", "b", "c"]), *monday, "--position", 1)
    (tmp_path / "b.csv").write_text("id,v\n3,C\n4,D\n")
    assert "2 rows" in run("append", "orders", tmp_path / "b.csv", *monday, "--position", 2)
    run("append", "orders", given(tmp_path, "c.parquet", id=[1]), *monday, "--operation", "delete", "--position", 3)
    run("append", "orders", given(tmp_path, "d.parquet", id=[1], v=["x"]), "--partition", "day=tue", "--position", 1)

    said = run("plan", "orders")
    assert re.search(r"^  expected: 0\.\d s with start-up on \d+ slots?, 0\.\d core-seconds$", said, re.M)
    assert "day=mon" in said and "day=tue" in said and "of memory a task" in said
    assert "3 rows  upsert at 1: rewrite (small, merged)" in said
    assert "2 rows  upsert at 2: rewrite (other format)" in said
    assert "1 row  delete at 3: drop (keys deleted)" in said
    said = run("compact", "orders")
    assert "day=mon: 5 rows in, 3 live, 1 superseded, 1 deleted by 1 delete row" in said
    assert "1 rewritten: small, merged; 1 rewritten: other format; 1 dropped: keys deleted" in said
    assert "nothing to do" in run("compact", "orders")
    assert "sound" in run("check", "orders")
    assert "sound" in run("check", "orders", "--quick", *monday)
    assert "3 rows" in run("export", "orders", tmp_path / "out.parquet", *monday)
    assert pq.read_table(tmp_path / "out.parquet").sort_by("id").to_pydict() == {"id": [2, 3, 4], "v": ["b", "C", "D"]}
    assert "now 5" in run("rehash", "orders", "--hash-buckets", "5", *monday)
    assert "would delete 0 objects" in run("vacuum", "orders", "--dry-run")
    run("vacuum", "orders", "--older-than-hours", "0", "--force")
    assert "sound" in run("check", "orders")
    assert "orders" in run("show")
    assert "5 hash buckets" in run("show", "orders")


def test_json_for_scripts(run, tmp_path):
    run("create", "t", "--primary-key", "id")
    delta = json.loads(run("append", "t", given(tmp_path, "a.parquet", id=[1, 1]), "--position", 7, "--json"))
    assert (delta["position"], delta["rows"]) == (7, 2)
    (planned,) = json.loads(run("plan", "t", "--json"))
    assert planned["delta_rows"] == 2 and planned["executor"] == "local"
    assert planned["planned_peak_space_bytes"] > 0 and 0 < planned["expected_s"] < 10
    (session,) = json.loads(run("compact", "t", "--json"))["sessions"]
    assert (session["rows_in"], session["live"], session["superseded"]) == (2, 1, 1)
    shown = json.loads(run("show", "t", "--json"))
    assert [each["state"] for each in shown["streams"][0]["versions"]] == ["deprecated", "active"]
    (checked,) = json.loads(run("check", "t", "--json"))
    assert checked["problems"] == []
    (vacuumed,) = json.loads(run("vacuum", "t", "--json"))
    assert vacuumed["deleted"] == []


def test_a_dry_run_changes_nothing(run, tmp_path):
    run("create", "t")
    run("append", "t", given(tmp_path, "a.parquet", id=[1]))
    store = deltacompact.open_catalog(tmp_path / "lake").store
    before = [stat.path for stat in store.list("")]
    run("plan", "t", "--primary-key", "id")
    run("plan", "t", "--primary-key", "id", "--destination", "d")
    assert [stat.path for stat in store.list("")] == before


def test_several_partitions_and_null_ones(run, tmp_path):
    run("create", "t", "--partition-key", "a", "--partition-key", "b", "--primary-key", "id")
    file = given(tmp_path, "a.parquet", id=[1])
    run("append", "t", file, "--partition", "a=1", "--partition", "b")
    run("append", "t", file, "--partition", "a=1", "--partition", "b=")
    run("append", "t", file, "--partition", "a=2", "--partition", "b=x/y=z")
    chosen = ["--partition", "a=1", "--partition", "b", "--partition", "a=2", "--partition", "b=x/y=z"]
    said = run("compact", "t", *chosen)
    assert "a=1/b=null" in said and "a=2/b=x/y=z" in said and "a=1/b=:" not in said
    assert "a=1/b=:" in run("compact", "t")


def test_a_failing_partition_leaves_the_others_to_publish(run, tmp_path, capfd):
    run("create", "t", "--partition-key", "p")  # its keys are not known yet: what lacks them gets in
    run("append", "t", given(tmp_path, "a.parquet", id=[1]), "--partition", "p=good")
    run("append", "t", given(tmp_path, "b.parquet", id=[2]), "--partition", "p=bad")
    run("append", "t", given(tmp_path, "c.parquet", other=[1]), "--partition", "p=bad")
    said = run("compact", "t", "--primary-key", "id", status=2)
    assert "p=good: 1 row in, 1 live" in said and "p=bad: failed" in said and "'id'" in said
    run("compact", "t", status=2)
    assert "p=good: sound" in run("check", "t", "--partition", "p=good")


def test_a_table_that_is_not_sound(run, tmp_path):
    run("create", "t", "--primary-key", "id")
    run("append", "t", given(tmp_path, "a.parquet", id=[1, 2]))
    run("compact", "t")
    store = deltacompact.open_catalog(tmp_path / "lake").store
    (path,) = [stat.path for stat in store.list("t/index/") if path_is_entries(stat.path)]
    data = bytearray(store.get(path))
    data[data.index(store.get(path)[300:301], 300)] ^= 1
    store.put(path, bytes(data))
    assert "index" in run("check", "t", status=1)


def test_a_rehash_chooses_the_executor_of_each_partition(tmp_path, run, monkeypatch):
    """The first one decided for all: thousands of small ones went through Ray, or a large one stayed here."""
    from deltacompact.executors import choose
    from deltacompact.executors.local import LocalExecutor
    from deltacompact.maintenance import check
    from deltacompact.planning.lanes import Lane

    run("create", "t", "--partition-key", "day", "--primary-key", "id")
    for day in ("1", "2", "3"):
        run("append", "t", given(tmp_path, "one.parquet", id=[1]), "--partition", f"day={day}")
    run("compact", "t")
    made, entries = [], iter([1, 10**12, 1])

    def executors_for(settings, sessions):
        made.extend(sessions)
        return {lane: LocalExecutor(settings) for lane in sessions}

    monkeypatch.setattr(choose, "executors_for", executors_for)
    monkeypatch.setattr(check, "index_entries", lambda *given: next(entries))
    assert run("rehash", "t", "--hash-buckets", "3").count("now 3") == 3
    assert made == [Lane.POOL, Lane.CLUSTER]


def path_is_entries(path):
    return path.endswith(".arrow") and "masks" not in path


@pytest.mark.parametrize("command", ["create", "append", "plan", "compact", "export", "show", "check", "rehash"])
def test_help_teaches(run, command, capfd):
    assert cli.run([command, "--help"]) == 0
    said = capfd.readouterr().out
    assert said.startswith("Usage: deltacompact") and "CATALOG" in said


@pytest.mark.processes
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_changes_feed_that_is_stopped_leaves_no_file(tmp_path, sent):
    """It divides its rows into files of a temporary folder, and writes what it finds to a file of its own."""
    table = deltacompact.open_catalog(tmp_path / "lake").create_table("t", primary_keys=["id"])
    for value in range(2):
        table.append(pa.table({"id": np.arange(150_000), "v": np.full(150_000, f"a text of {value}")}))
        table.compact(settings=deltacompact.Settings(executor="local"))
    folder, out = tmp_path / "tmp", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    asked = ["--from", "0", "--memory", "256MiB", "--out", str(out / "changes.parquet")]
    command = [sys.executable, "-m", "deltacompact", "changes", str(tmp_path / "lake"), "t", *asked]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        while process.poll() is None and not any(folder.glob("deltacompact-*/*")):
            time.sleep(0.001)
        process.send_signal(sent)
        assert process.wait(60) == 130 and "interrupted" in process.stderr.read()
    assert [*folder.rglob("*"), *(path for path in out.rglob("*") if path.is_file())] == []


@pytest.mark.processes
def test_ctrl_c_leaves_the_table_as_it_was_and_is_resumed(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    rows = 400_000
    for position in range(4):
        catalog.append("t", pa.table({"id": np.arange(rows), "v": np.full(rows, position)}), stream_position=position)
    options = ["--executor", "local", "--rows-per-round", str(rows)]
    command = [sys.executable, "-m", "deltacompact", "compact", str(tmp_path / "lake"), "t", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "round 2 of 4" in line:
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
        assert process.wait(60) == 130
    assert "interrupted" in rest and "Traceback" not in rest
    (partition,) = catalog.partitions("t")
    assert catalog.state("t", partition).compacted is None
    settings = deltacompact.Settings(executor="local", rows_per_round=rows)
    (session,) = deltacompact.compact("t", delta_catalog_client=catalog, settings=settings).sessions
    assert session.rounds == 4 and session.rounds_resumed >= 2
    assert set(catalog.read("t")["v"].to_pylist()) == {3}

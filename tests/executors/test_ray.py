"""The steps on a real Ray cluster: the same result as the for-loop, and the same after whatever is killed."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pyarrow as pa
import pytest

import deltacompact
from deltacompact import Settings, compact
from deltacompact.base.events import StageStarted
from deltacompact.base.limits import LIMITS, Limits
from deltacompact.executors import ray as ray_executor
from deltacompact.executors.claims import RayNode
from deltacompact.maintenance.check import check, rehash_table

pytestmark = pytest.mark.processes

STAGES = ["hash_bucket", "dedupe", "assign_pointers", "write_index", "materialize"]
DRIVER = Path(__file__).with_name("ray_driver.py")


GONE = np.iinfo(np.int64).min


def fill(catalog, rows=300_000, table="t"):
    """A table of updates, new keys and deletes; what must come out: the value of each key, or GONE."""
    rng = np.random.default_rng(7)
    catalog.create_table(table, primary_keys=["id"])
    expected = np.full(rows, GONE)
    for delta in range(4):
        ids = rng.integers(0, rows, rows // 2)
        values = np.arange(len(ids)) + delta * rows
        catalog.append(table, [pa.table({"id": ids, "value": values})], stream_position=2 * delta)
        expected[ids] = values  # the last one of each key stays
        gone = rng.integers(0, rows, rows // 20)
        catalog.append(table, pa.table({"id": gone}), operation="delete", stream_position=2 * delta + 1)
        expected[gone] = GONE
    return expected


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A table that is filled once, and what must come out."""
    folder = tmp_path_factory.mktemp("template")
    return folder, fill(deltacompact.open_catalog(folder))


def filled(folder, template):
    """A copy of it."""
    made, expected = template
    shutil.copytree(made, folder, dirs_exist_ok=True)
    return deltacompact.open_catalog(folder), expected.copy()


def assert_rows(catalog, expected, table="t"):
    found, ids = catalog.read(table).sort_by("id"), np.flatnonzero(expected != GONE)
    assert np.array_equal(found["id"].to_numpy(), ids)
    assert np.array_equal(found["value"].to_numpy(), expected[ids])


def assert_sound(catalog, expected, table="t"):
    assert_rows(catalog, expected, table)
    assert [result.problems for result in check(catalog, table)] == [()]


def test_ray_and_the_for_loop_write_the_same_rows_and_files(tmp_path, ray_cluster, template):
    layouts = {}
    for executor in ("local", "ray"):
        catalog, expected = filled(tmp_path / executor, template)
        settings = Settings(executor=executor, rows_per_round=250_000)
        (session,) = compact(
            "t", delta_catalog_client=catalog, settings=settings, rows_per_compacted_file=50_000
        ).sessions
        assert session.executor == executor
        assert session.rounds > 1
        assert_sound(catalog, expected)
        files = catalog.state("t", catalog.partitions("t")[0]).compacted.files
        layouts[executor] = [(file.number, file.rows, file.bytes) for file in files]
        layouts[executor, "rows"] = catalog.read("t")
    assert layouts["local"] == layouts["ray"]
    assert layouts["local", "rows"].equals(layouts["ray", "rows"])


def test_ray_and_the_for_loop_cluster_the_same_rows_into_the_same_files(tmp_path, ray_cluster, template):
    """Rows meet in Ray's object store, or in runs; later rows are laid out together with files that overlap them."""
    layouts = {}
    in_runs = replace(LIMITS, exchange_share=0.0)
    for name, executor, limits in (("loop", "local", LIMITS), ("ray", "ray", LIMITS), ("runs", "ray", in_runs)):
        catalog, expected = filled(tmp_path / name, template)
        settings = Settings(executor=executor, limits=limits)
        for changed in ((), (1, 2, 3)):
            if changed:
                catalog.append("t", pa.table({"id": changed, "value": [-1, -2, -3]}))
                expected[list(changed)] = -1, -2, -3
            (session,) = compact(
                "t",
                delta_catalog_client=catalog,
                settings=settings,
                rows_per_compacted_file=50_000,
                cluster_by="value",
            ).sessions
            assert session.executor == executor
            assert_sound(catalog, expected)
        files = catalog.state("t", catalog.partitions("t")[0]).compacted.files
        layouts[name] = [(file.number, file.rows, file.clustered) for file in files], catalog.read("t")
    assert len(layouts["loop"][0]) > 3
    assert layouts["loop"][0] == layouts["ray"][0] == layouts["runs"][0]
    assert layouts["loop"][1].equals(layouts["ray"][1])
    assert layouts["loop"][1].equals(layouts["runs"][1])


def test_a_plan_goes_by_the_capacity_of_the_running_cluster(ray_cluster):
    from deltacompact.executors.choose import foresee
    from deltacompact.executors.ray import RayExecutor
    from deltacompact.planning.lanes import Lane

    for settings in (Settings(executor="ray"), Settings(executor="ray", concurrent_tasks=1)):
        for waits in (False, True):
            foreseen = foresee(settings, Lane.CLUSTER, waits)
            assert (foreseen.capacity, foreseen.assumed) == (RayExecutor(settings, waits=waits).capacity, None)
            assert foreseen.capacity.is_near is not waits
    assert foresee(Settings(executor="ray", ray_cpus=10_000), Lane.CLUSTER).assumed.endswith("of 10000 CPUs are there")


def test_an_incremental_compaction_and_a_rehash_on_ray(tmp_path, ray_cluster, template):
    catalog, expected = filled(tmp_path, template)
    settings = Settings(executor="ray")
    compact("t", delta_catalog_client=catalog, settings=settings, hash_bucket_count=3)
    from deltacompact.executors.ray import RayExecutor

    assert [done[1:] for done in rehash_table(catalog, "t", 8, RayExecutor(settings))] == [(3, 8)]
    assert_sound(catalog, expected)
    catalog.append("t", pa.table({"id": [1, 2, 3], "value": [-1, -2, -3]}))
    expected[[1, 2, 3]] = -1, -2, -3
    (session,) = compact("t", delta_catalog_client=catalog, settings=settings).sessions
    assert session.hash_bucket_count == 8
    assert_sound(catalog, expected)


@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_that_is_killed_in_any_stage_changes_nothing(tmp_path, ray_cluster, template, stage, capfd):
    """Nor does Ray tell it on stdout, where the document of --json goes."""
    killed: list[int] = []

    def kill(event):
        if isinstance(event, StageStarted) and event.stage == stage and not killed:
            threading.Thread(target=kill_a_worker, args=(stage, killed), daemon=True).start()

    settings = Settings(executor="ray", rows_per_round=400_000)
    for attempt in range(4):  # on a busy machine, a short task may end before it is seen
        catalog, expected = filled(tmp_path / str(attempt), template)
        compact(
            "t", delta_catalog_client=catalog, settings=settings, event_sinks=[kill], rows_per_compacted_file=50_000
        )
        assert_sound(catalog, expected)
        if killed:
            assert capfd.readouterr().out == ""
            return
    pytest.fail("no worker was caught at work: the test showed nothing")


TASKS = {
    "assign_pointers": ("survivors", "assign"),
    "dedupe": ("dedupe", "dedupe_held"),
    "materialize": ("materialize_each",),
}


def kill_a_worker(stage, killed):
    """SIGKILL the first worker that is seen running a task of the stage."""
    names = tuple(f"ray::{task}" for task in TASKS.get(stage, (stage,)))
    until = time.monotonic() + 10
    while time.monotonic() < until:
        for process in psutil.process_iter(["pid", "cmdline"]):
            line = (process.info["cmdline"] or [""])[0]
            if line in names:
                os.kill(process.pid, signal.SIGKILL)
                killed.append(process.pid)
                return
        time.sleep(0.002)


def start_driver(catalog_uri, *tables_and_options):
    command = [sys.executable, str(DRIVER), str(catalog_uri), *tables_and_options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("stage", STAGES)
def test_a_driver_that_is_killed_in_any_stage_is_resumed(tmp_path, ray_cluster, template, stage):
    catalog, expected = filled(tmp_path, template)
    before = catalog.state("t", catalog.partitions("t")[0]).version
    with start_driver(tmp_path, "t:400000", "--address", ray_cluster, "--stop-at", stage) as driver:
        for line in driver.stdout:
            if line.strip() == "stopped":
                break
        driver.kill()
    assert catalog.state("t", catalog.partitions("t")[0]).version == before
    assert_rows(catalog, expected)

    settings = Settings(executor="ray", rows_per_round=400_000)
    (session,) = compact("t", delta_catalog_client=catalog, settings=settings, rows_per_compacted_file=200_000).sessions
    assert session.rounds == 2
    assert session.rounds_resumed == (2 if stage == "materialize" else 1 if stage in STAGES[2:4] else 0)
    assert_sound(catalog, expected)


def said_by(script: str, folder: Path) -> str:
    """What a script prints that starts a cluster of several nodes."""
    command = [sys.executable, str(Path(__file__).with_name(script)), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def await_nodes(count):
    """Until the cluster knows of so many that live: it asks for the pulse of each every few seconds."""
    import ray

    until = time.monotonic() + 60
    while (alive := sum(node["Alive"] for node in ray.nodes())) != count and time.monotonic() < until:
        time.sleep(0.2)
    assert alive == count


def test_nodes_are_killed_in_the_middle_of_a_compaction(tmp_path, ray_nodes, ray_cluster, template):
    """One of four takes along parcels of hash bucket, one of three what relays made of them. Dedupe tasks wait."""
    added = [ray_nodes.add_node(num_cpus=1, object_store_memory=100 << 20) for _ in range(3)]
    await_nodes(4)
    try:
        for nodes, relay_nodes_min, hash_stages in ((4, 5, 1), (3, 3, 2)):
            await_nodes(nodes)
            catalog, expected = filled(tmp_path / str(nodes), template)
            stages = compacted_with_a_node_less(catalog, ray_nodes, added, relay_nodes_min)
            assert len(added) == nodes - 2
            assert stages.count("hash_bucket") == hash_stages, "relays are a stage of their own"
            assert_sound(catalog, expected)
    finally:
        for node in added:
            ray_nodes.remove_node(node)
        await_nodes(1)


def compacted_with_a_node_less(catalog, ray_nodes, added, relay_nodes_min):
    """Compact, and kill a node as soon as dedupe begins. Returns the stages."""
    stages = []

    def kill(event):
        if isinstance(event, StageStarted):
            stages.append(event.stage)
            if event.stage == "dedupe":
                ray_nodes.remove_node(added.pop(), allow_graceful=False)

    limits = Limits(task_rows_min=50_000, relay_nodes_min=relay_nodes_min)
    compact(
        "t",
        delta_catalog_client=catalog,
        settings=Settings(executor="ray", limits=limits),
        hash_bucket_count=8,
        event_sinks=[kill],
        rows_per_compacted_file=50_000,
    )
    return stages


class GrowingCluster:
    """Stands for Ray: so many CPUs are there, and `comes` more ten seconds after a request. A wait takes no time."""

    def __init__(self, monkeypatch, comes):
        self.cpus, self.comes, self.now_s, self.asked, self.due_s = 0, comes, 0.0, [], math.inf
        context = SimpleNamespace(gcs_address="head:6379")
        util = SimpleNamespace(placement_group=self.ask, remove_placement_group=lambda request: None)
        monkeypatch.setattr(ray_executor, "ray", SimpleNamespace(get_runtime_context=lambda: context, util=util))
        monkeypatch.setattr(ray_executor, "time", SimpleNamespace(monotonic=lambda: self.now_s, sleep=self.wait))
        monkeypatch.setattr(ray_executor, "_nodes", lambda: [RayNode("n", self.cpus, 1 << 30)] if self.cpus else [])
        monkeypatch.setattr(ray_executor, "_in_vain", {})

    def ask(self, bundles, strategy):
        self.asked.append(len(bundles))
        self.due_s = self.now_s + 10.0

    def wait(self, seconds):
        self.now_s += seconds
        if self.now_s >= self.due_s:
            self.cpus, self.due_s = self.comes, math.inf

    def took_s(self, wanted):
        before_s = self.now_s
        ray_executor._nodes_awaited(wanted, 600.0)
        return self.now_s - before_s


def test_a_wait_in_vain_counts_while_those_that_came_are_there(monkeypatch):
    """After one, a process took whatever was left of the cluster for an hour, and asked for no workers."""
    cluster = GrowingCluster(monkeypatch, comes=48)
    assert [cluster.took_s(64), cluster.took_s(64), cluster.took_s(96)] == [600.0, 0.0, 0.0]
    cluster.cpus = 2  # idle nodes have gone
    assert cluster.took_s(64) == 10.0 and cluster.cpus == 48 and cluster.asked == [64, 64]
    assert cluster.took_s(50) == 600.0, "so many may come"
    cluster.now_s += 3600.0
    assert cluster.took_s(64) == 600.0 and cluster.took_s(48) == 0.0


def test_a_cluster_that_grows_is_waited_for(tmp_path, template):
    """As an autoscaler's does: a head without CPUs, until somebody wants some. Two nodes of different size come.

    One task at a time claimed the CPUs of all nodes, which no node has: the compaction never ended.
    """
    catalog, expected = filled(tmp_path, template)
    said = {
        name: value
        for line in said_by("ray_growing.py", tmp_path).splitlines()
        if line.startswith("{")
        for name, value in json.loads(line).items()
    }
    assert "none came within 1 s" in said["refused"]
    assert (said["nodes"], said["slots"], said["one at a time"]) == ([1, 2], 3, [1])
    assert not said["waited again"], "each of 250 sessions waited ten minutes for the fourth of four workers"
    assert_sound(catalog, expected)


ONE_ROUND = 10**9
"""Rows of a round that hold all rows of any test."""


@pytest.fixture(scope="module")
def small_store(tmp_path_factory):
    """A cluster of a driver's own with an object store of 80 MB; Ray takes no less. It compacts three tables in turn.

    few        somebody left the address of a cluster here that is no more
    rounds     3.9 M rows are 125 MB of entries
    spilled    4.2 M rows are 134 MB of entries, and rows_per_round says: one round
    """
    from ray._private.utils import get_ray_address_file  # 2 s of CPU, in each process that collects this module

    folder = tmp_path_factory.mktemp("small-store")
    catalog = deltacompact.open_catalog(folder)
    expected = {"few": fill(catalog, 2_000, "few"), "rounds": fill_by_steps(catalog, "rounds")}
    catalog.create_table("spilled", primary_keys=["id"])
    catalog.append("spilled", [pa.table({"id": np.arange(part, 4_200_000, 6)}) for part in range(6)])
    left = Path(get_ray_address_file(None))
    left.parent.mkdir(parents=True, exist_ok=True)
    before = left.read_text() if left.exists() else None
    tables = "few", "rounds", f"spilled:{ONE_ROUND}"
    try:
        left.write_text("127.0.0.1:1")
        with start_driver(folder, *tables, "--object-store-bytes", str(80 << 20)) as driver:
            said = driver.stdout.read()
            assert driver.wait(240) == 0
    finally:
        left.unlink() if before is None else left.write_text(before)
    results = json.loads(said[said.index("{") :])
    return catalog, expected, {table: result["sessions"][0] for table, result in results.items()}


def fill_by_steps(catalog, table):
    """Deltas that hit each other's keys ever less often."""
    rows, deltas = 650_000, 6
    catalog.create_table(table, primary_keys=["id"])
    expected = np.full(rows * deltas, GONE)
    for delta in range(deltas):
        ids = np.arange(rows) * (delta + 1)
        catalog.append(table, pa.table({"id": ids, "value": np.full(rows, delta)}), stream_position=delta)
        expected[ids] = delta
    return expected


def test_a_cluster_that_somebody_left_here_is_not_joined(small_store):
    """Ray keeps the address of the cluster that was last started, and joins that, also when it is no more."""
    catalog, expected, sessions = small_store
    assert sessions["few"]["executor"] == "ray"
    assert_sound(catalog, expected["few"], "few")


@pytest.mark.parametrize(
    ("former", "ends_by"), [(signal.default_int_handler, KeyboardInterrupt), (signal.SIG_DFL, SystemExit)]
)
def test_sigterm_ends_a_process_on_ray_as_before(monkeypatch, request, former, ends_by):
    """The handler of Ray exits with status 15. The command line takes that for a closed pipe, and ended with 0."""
    import ray

    from deltacompact.executors.ray_connection import connect

    before = signal.signal(signal.SIGTERM, former)
    request.addfinalizer(lambda: signal.signal(signal.SIGTERM, before))
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number)))
    assert connect(Settings(ray_address="local"))
    with pytest.raises(ends_by):
        signal.raise_signal(signal.SIGTERM)
    monkeypatch.setattr(ray, "init", lambda **_: sys.exit(signal.SIGTERM))  # it came while Ray started
    with pytest.raises(ends_by):
        connect(Settings(ray_address="local"))


def test_entries_that_exceed_the_object_store_are_folded_in_rounds(small_store, capsys):
    catalog, expected, sessions = small_store
    session = sessions["rounds"]
    with capsys.disabled():
        planned, measured = session["planned_peak_bytes"] >> 20, session["measured_peak_bytes"] >> 20
        print(f"\n{session['rounds']} rounds; peak of a task: planned {planned} MiB, measured {measured} MiB")
    assert session["rounds"] > 1
    assert session["measured_peak_bytes"] <= session["planned_peak_bytes"]
    assert session["spilled_bytes"] == 0
    assert session["live"] == np.count_nonzero(expected["rounds"] != GONE)
    assert_sound(catalog, expected["rounds"], "rounds")


def test_what_a_badly_planned_run_spills_is_reported(small_store):
    _, _, sessions = small_store
    session = sessions["spilled"]
    assert (session["rounds"], session["live"]) == (1, 4_200_000)
    assert session["spilled_bytes"] > 25_000_000


def test_rows_are_laid_out_by_columns_on_ray_as_here(tmp_path, ray_cluster):
    layouts = {}
    for executor in ("local", "ray"):
        catalog = deltacompact.open_catalog(tmp_path / executor)
        expected = fill(catalog, rows=60_000)
        catalog.declare_cluster_by("t", "value")
        settings = Settings(executor=executor, limits=Limits(masks_share_of_index=1.0, runs_share_max=10.0))
        for upto in range(2):
            compact("t", delta_catalog_client=catalog, settings=settings, rows_per_compacted_file=5_000)
            assert_sound(catalog, expected)
            if not upto:
                catalog.append("t", pa.table({"id": np.arange(70_000, 120_000), "value": np.arange(50_000)}))
                expected = np.concatenate([expected, np.full(10_000, GONE), np.arange(50_000)])
        files = catalog.state("t", catalog.partitions("t")[0]).compacted.files
        assert {file.clustered.by for file in files} == {"value"}
        layouts[executor] = [(file.number, file.rows, file.clustered.ranges) for file in files]
    assert layouts["local"] == layouts["ray"]

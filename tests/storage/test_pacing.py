"""Caps on reads, writes and requests hold, over all tasks and in any second; and on tasks at a time."""

from __future__ import annotations

import itertools
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from deltacompact import DeltaStreamCatalog, InputError, Settings, compact
from deltacompact.executors.executor import SubmittedTask
from deltacompact.executors.local import LocalExecutor
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import ObjectStat
from deltacompact.storage.retries import SharedBackoff
from deltacompact.storage.throttle import BURST_S, Pace, PacedStore, paced


class Counting(MemoryStore):
    """Remembers when tasks (threads of the executor) asked for something, and for how many bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[float, str, int]] = []

    def note(self, kind: str, size: int = 0) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.log.append((time.monotonic(), kind, size))

    def get(self, path: str) -> bytes:
        data = super().get(path)
        self.note("read", len(data))
        return data

    def open(self, path: str) -> pa.NativeFile:
        source = pa.BufferReader(MemoryStore.get(self, path))
        note = self.note

        class File:
            closed = False

            def read(self, size: int = -1) -> bytes:
                data = source.read(None if size < 0 else size)
                note("read", len(data))
                return bytes(data)

            def __getattr__(self, name: str) -> Any:
                return getattr(source, name)

        return pa.PythonFile(File(), mode="r")

    def stat(self, path: str) -> ObjectStat:
        return ObjectStat(path, len(MemoryStore.get(self, path)), 0.0)

    def put(self, path: str, data: bytes) -> None:
        self.note("write", len(data))
        super().put(path, data)


def most_in_any(log: list[tuple[float, str, int]], seconds: float, of: Callable[[str, int], float]) -> float:
    return max(sum(of(kind, size) for at, kind, size in log if began <= at < began + seconds) for began, _, _ in log)


def table_of(store: MemoryStore, rows: int) -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", (), ["k"])
    noise = np.random.default_rng(1).bytes(rows * 100)
    for share in np.array_split(np.arange(rows), 4):
        values = [noise[100 * row : 100 * row + 100] for row in share]
        catalog.append("t", pa.table({"k": share, "v": pa.array(values, pa.binary())}))
    return catalog


@pytest.mark.slow
def test_what_all_tasks_read_stays_below_the_cap_in_any_second() -> None:
    store = Counting()
    catalog = table_of(store, 40_000)  # about 4 MB, which are read once for keys and once for rows
    limits = Settings(executor="local", local_threads=4, read_mb_per_s=2.0)
    began = time.monotonic()
    (session,) = compact("t", delta_catalog_client=catalog, settings=limits).sessions
    took = time.monotonic() - began
    assert session.live == 40_000
    read = sum(size for _, kind, size in store.log if kind == "read")
    assert read > 4e6 and took >= read / 2e6 - BURST_S - 0.1
    largest = max(size for _, kind, size in store.log if kind == "read")
    assert most_in_any(store.log, 1.0, lambda kind, size: size * (kind == "read")) <= 2e6 * (1 + BURST_S) + largest


@pytest.mark.slow
def test_requests_are_counted_over_all_tasks() -> None:
    store = Counting()
    catalog = table_of(store, 400)
    limits = Settings(executor="local", local_threads=4, requests_per_s=20.0)
    compact("t", delta_catalog_client=catalog, settings=limits)
    assert len(store.log) > 10
    assert most_in_any(store.log, 1.0, lambda kind, size: 1) <= 20 * (1 + BURST_S) + 4  # one under way in each task


def test_writes_wait_for_their_allowance(tmp_path: Path) -> None:
    store = paced(LocalStore(tmp_path), Pace(write_bytes_per_s=4e6))
    began = time.monotonic()
    with store.writer("a") as sink:
        for _ in range(8):
            sink.write(bytes(500_000))
    assert time.monotonic() - began >= 1.0 - BURST_S - 0.05
    assert store.get("a") == bytes(4_000_000)


def test_processes_share_a_pace_and_a_store_takes_it_with_it(tmp_path: Path) -> None:
    assert Pace.of(Settings(read_mb_per_s=100, requests_per_s=50), 10) == Pace(10e6, None, 5.0)
    store = LocalStore(tmp_path)
    assert paced(store, Pace()) is store
    copy = pickle.loads(pickle.dumps(paced(store, Pace(1.0))))
    assert isinstance(copy, PacedStore) and copy.uri == store.uri and copy.root == store.root


def test_no_more_tasks_run_at_a_time_than_are_allowed() -> None:
    assert LocalExecutor(Settings(local_threads=8, concurrent_tasks=3)).capacity.slots == 3
    assert LocalExecutor(Settings(local_threads=2, concurrent_tasks=3)).capacity.slots == 2


def test_ray_runs_as_many_tasks_as_are_allowed(ray_cluster: str) -> None:
    from deltacompact.executors.ray import RayExecutor

    def interval() -> tuple[float, float]:
        began = time.time()
        time.sleep(0.3)
        return began, time.time()

    executor = RayExecutor(Settings(executor="ray", concurrent_tasks=1))
    assert executor.capacity.slots == 1
    tasks = [executor.submit(interval) for _ in range(3)]
    assert len(list(executor.finish(tasks))) == 3
    intervals = sorted(executor.get(task.values[0]) for task in tasks)
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(intervals))


@pytest.mark.parametrize("name", ["read_mb_per_s", "write_mb_per_s", "requests_per_s", "concurrent_tasks"])
def test_limits_of_nothing_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=name):
        Settings(**{name: 0})  # type: ignore[arg-type]


def test_a_task_that_waits_for_its_pace_ends_with_its_executor_and_with_no_other() -> None:
    """Two compactions of one process have the same pace."""

    def waiting(executor: LocalExecutor) -> SubmittedTask:
        store, begun = paced(MemoryStore(), executor.pace, executor.stopped), threading.Event()

        def work() -> tuple[None]:
            begun.set()
            store.put("x", b"1")
            return (None,)

        task = executor.submit(work)
        begun.wait()
        return task

    settings = Settings(executor="local", local_threads=2, requests_per_s=1e-300)
    executors = LocalExecutor(settings), LocalExecutor(settings)
    ended, going_on = map(waiting, executors)
    executors[0].stop()
    with pytest.raises(KeyboardInterrupt):
        executors[0].get(ended.stats)
    assert not going_on.stats.task.future.done()
    executors[1].stop()
    with pytest.raises(KeyboardInterrupt):
        executors[1].get(going_on.stats)


@pytest.mark.parametrize("idle_s", [60, 86 * 60, 30 * 24 * 3600])
def test_requests_have_no_limit_after_idle_hours_since_a_slow_down(monkeypatch, idle_s):
    """After 85 minutes every request of the process failed: the rate, doubled every 5 s, overflowed."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    backoff = SharedBackoff()
    backoff.turn_s()
    backoff.throttled()
    assert [backoff.turn_s() for _ in range(2)][1] > 0
    now[0] += idle_s
    assert [backoff.turn_s() for _ in range(100)] == [0.0] * 100
    backoff.throttled()
    assert [backoff.turn_s() for _ in range(2)][1] > 0

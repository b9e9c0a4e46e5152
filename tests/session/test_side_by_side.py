"""Partitions side by side: which run at a time, that memory, rate limits and threads hold for all of them together, and
that neither a bad partition nor Ctrl-C costs the others anything."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import psutil
import pyarrow as pa
import pytest
from hand_made import file, planned, snapshot, upsert
from hypothesis import given
from hypothesis import strategies as st
from stores import FetchingStore

from deltacompact import DeltaStreamCatalog, InputError, Interrupted, Settings, compact, open_catalog
from deltacompact.base.events import Event, SessionFinished, SessionStarted, fan_out
from deltacompact.base.limits import LIMITS
from deltacompact.base.model import Partition
from deltacompact.base.partitions import done_for_each, side_by_side
from deltacompact.executors.choose import share_slots
from deltacompact.executors.local import LocalExecutor
from deltacompact.maintenance.check import check
from deltacompact.planning import lanes as lanes_module
from deltacompact.planning.lanes import Claim, Lane, LaneBounds, admitted, lane_bounds, lanes, sessions_at_once
from deltacompact.planning.needs import Needs
from deltacompact.planning.plan import Capacity
from deltacompact.planning.sizing.task_memory import SESSION_BYTES, TASK_BASE_BYTES
from deltacompact.session.side_by_side import ClaimedSession, run_side_by_side
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import Fetches

GIB, MIB = 1 << 30, 1 << 20
ALL = LaneBounds(100, 1 << 60, 1 << 60)


def behind_a_network(intercept: Callable[..., Any] = lambda kind, path, act: act()) -> DeltaStreamCatalog:
    store = FetchingStore(MemoryStore(), intercept)
    assert isinstance(store, Fetches)
    return DeltaStreamCatalog(store)


def with_days(catalog: DeltaStreamCatalog, days: int, rows: int = 3) -> DeltaStreamCatalog:
    catalog.create_table("t", ["day"], ["id"])
    for day in range(days):
        for delta in range(2):
            catalog.append("t", pa.table({"id": list(range(delta, rows + delta))}), {"day": day})
    return catalog


# Which lane


def sizes(*partitions: tuple[int, int]) -> list[Any]:
    """Snapshots with so many rows and bytes."""
    return [snapshot(deltas=[upsert(file(rows, data_bytes))]) for rows, data_bytes in partitions]


def test_small_sessions_wait_inline_and_the_others_share_threads_or_the_cluster() -> None:
    given = sizes((100, 10_000), (2_000_000, 30 * MIB), (100, 200 * MIB), (80_000_000, 12 * GIB))
    assert lanes(given, Settings()) == [Lane.INLINE, Lane.POOL, Lane.POOL, Lane.CLUSTER]
    assert lanes(given, Settings(executor="ray")) == [Lane.CLUSTER] * 4
    assert lanes(given, Settings(executor="local")) == [Lane.INLINE, Lane.POOL, Lane.POOL, Lane.POOL]


def test_a_session_alone_has_all_threads() -> None:
    given = sizes((100, 10_000), (100, 10_000))
    assert lanes(given, Settings()) == [Lane.INLINE] * 2
    assert lanes(given, Settings(partitions_at_once=1)) == [Lane.POOL] * 2
    assert lanes(given[:1], Settings()) == [Lane.POOL]


@given(st.lists(st.tuples(st.integers(1, 9_000_000), st.integers(1, GIB)), max_size=30))
def test_what_auto_keeps_here_stays_below_its_limits_together(partitions: list[tuple[int, int]]) -> None:
    settings = Settings()
    chosen = lanes(sizes(*partitions), settings)
    here = [size for size, lane in zip(partitions, chosen, strict=True) if lane is not Lane.CLUSTER]
    assert sum(rows for rows, _ in here) <= settings.local_rows_max
    assert sum(data_bytes for _, data_bytes in here) <= settings.local_bytes_max
    elsewhere = [size for size, lane in zip(partitions, chosen, strict=True) if lane is Lane.CLUSTER]
    assert all(a <= b for (_, a), (_, b) in itertools.product(here, elsewhere)), "the smallest stay"


# As many as memory admits

claims = st.builds(Claim, st.just(Lane.POOL), st.integers(0, 100), st.integers(0, 100))
bounds = st.builds(LaneBounds, st.integers(1, 8), st.integers(0, 200), st.integers(0, 200))


@given(st.lists(claims, max_size=20), bounds, st.none() | st.integers(1, 9), st.randoms())
def test_the_planned_memory_of_those_that_run_never_exceeds_the_bounds(
    given: list[Claim], there: LaneBounds, at_once: int | None, chance: Any
) -> None:
    """Sessions start in order, end in any order; every one starts in the end."""
    waiting, running, started = list(given), [], []
    while waiting or running:
        count = admitted(waiting, running, there, None if at_once is None else at_once - len(running))
        assert count or running, "nothing runs, and nothing starts"
        started += waiting[:count]
        running += waiting[:count]
        del waiting[:count]
        assert len(running) <= min(there.sessions, at_once or 99)
        if len(running) > 1:
            assert sum(claim.heap_bytes for claim in running) <= there.heap_bytes
            assert sum(claim.held_bytes for claim in running) <= there.held_bytes
        running.pop(chance.randrange(len(running)))
    assert started == given


def test_a_claim_is_the_planned_peak_of_the_tasks_that_run_at_a_time() -> None:
    own = Needs(planned(deltas=[upsert(file(40_000_000, 4 * GIB))]))
    assert own.tasks_at_once == own.plan.capacity.slots == 4
    on_ray, here = Claim.of(Lane.CLUSTER, own), Claim.of(Lane.POOL, own)
    assert on_ray.heap_bytes == 4 * own.peak_bytes
    assert here.heap_bytes == own.process_bytes(4) - TASK_BASE_BYTES
    assert on_ray.held_bytes >= 40_000_000 * own.plan.encoding.entry_bytes
    small = Needs(planned(deltas=[upsert(file(10, 1000))]))
    assert Claim.of(Lane.CLUSTER, small).heap_bytes < on_ray.heap_bytes


def test_a_process_has_no_more_threads_than_its_sessions_have_tasks() -> None:
    """On a store behind a network: what is planned for a process counts all of its threads."""
    waits = replace(LocalExecutor(Settings(), waits=True).capacity, slots=2)
    one, many = (Needs(planned(deltas=[upsert(file(rows, rows * 30))], capacity=waits)) for rows in (10, 40_000_000))
    assert one.task_places > 3 and many.task_places > 3
    for needs, threads in (([one], 2), ([one] * 3, 3), ([one] * 50, one.task_places), ([many], many.task_places)):
        pool = LocalExecutor(Settings(local_threads=2), waits=True)
        share_slots({Lane.POOL: pool}, needs)
        assert pool.tasks_per_process == threads
        pool.stop()


def test_lanes_of_one_process_divide_its_memory() -> None:
    here, cluster = Capacity(2, 4 * GIB, 2 * GIB), Capacity(64, 2 * GIB, 64 * GIB)
    alone = lane_bounds({Lane.INLINE: here}, {Lane.INLINE: 32})[Lane.INLINE]
    assert (alone.heap_bytes, alone.sessions) == (8 * GIB, 32)
    both = lane_bounds({Lane.INLINE: here, Lane.POOL: here}, {Lane.INLINE: 32, Lane.POOL: 4})
    assert sum(there.heap_bytes for there in both.values()) == 8 * GIB
    at_once = {Lane.INLINE: 32, Lane.POOL: 4, Lane.CLUSTER: 16}
    three = lane_bounds({Lane.INLINE: here, Lane.POOL: here, Lane.CLUSTER: cluster}, at_once)
    assert three[Lane.CLUSTER].heap_bytes == 128 * GIB and three[Lane.POOL].heap_bytes < GIB


def test_the_settings_bound_the_sessions_of_each_lane() -> None:
    assert sessions_at_once(Lane.INLINE, Settings(), waits=True) == lanes_module.INLINE_SESSIONS
    assert sessions_at_once(Lane.INLINE, Settings(), waits=False) == lanes_module.INLINE_SESSIONS_ON_DISK
    assert sessions_at_once(Lane.POOL, Settings(), waits=False) == 1, "a disk keeps the threads of a larger one busy"
    assert sessions_at_once(Lane.INLINE, Settings(local_threads=3), waits=True) == 3, "it bounds the tasks"
    assert sessions_at_once(Lane.INLINE, Settings(concurrent_tasks=2, partitions_at_once=5), waits=True) == 2
    for lane in Lane:
        assert sessions_at_once(lane, Settings(partitions_at_once=5), waits=False) == 5


# Side by side

variable: ContextVar[str] = ContextVar("variable", default="")


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_results_are_in_order_and_work_sees_the_callers_context(at_once: int) -> None:
    variable.set("caller")

    def work(number: int) -> tuple[int, str]:
        time.sleep(0.001 * (7 * number % 5))
        return number, variable.get()

    assert side_by_side(range(20), work, at_once) == [(number, "caller") for number in range(20)]


def test_the_bounded_number_works_at_a_time_and_one_that_fails_ends_nobody_else() -> None:
    at_work, most, lock = 0, 0, threading.Lock()

    def work(number: int) -> int:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.01)
        with lock:
            at_work -= 1
        if number % 5 == 0:
            raise InputError(f"{number}")
        return number

    results, errors = done_for_each(range(20), work, 4)
    assert most == 4
    assert results == [number for number in range(20) if number % 5]
    assert [(number, str(error)) for number, error in errors] == [(n, str(n)) for n in range(0, 20, 5)]


def test_ctrl_c_ends_side_by_side_at_once() -> None:
    begun, hold = [], threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
        hold.wait(10)

    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            side_by_side(range(100), work, 4)
        assert time.monotonic() - began < 5
    finally:
        hold.set()
    time.sleep(0.05)
    assert len(begun) <= 8


def test_a_run_without_a_claim_says_so_in_the_callers_thread() -> None:
    name = threading.current_thread().name
    pairs: list[Any] = [(Claim(Lane.POOL), "a"), (None, "b"), (Claim(Lane.POOL), "c")]
    runs = [ClaimedSession(claim, lambda what=what: (what, threading.current_thread().name)) for claim, what in pairs]
    results = run_side_by_side(runs, {Lane.POOL: ALL}, lambda: None)
    assert [what for what, _ in results] == ["a", "b", "c"]
    assert results[1][1] == name and results[0][1] != name
    one_by_one = run_side_by_side(runs, {Lane.POOL: ALL}, lambda: None, at_once=1)
    assert [thread for _, thread in one_by_one] == [name] * 3


# compact()


@pytest.mark.slow
def test_partitions_of_a_store_behind_a_network_are_opened_and_compacted_side_by_side() -> None:
    """Every request takes 20 ms. One after another, 24 partitions would take the time of 24."""
    with_days(DeltaStreamCatalog(store := MemoryStore()), 24)

    def run(days: int, **settings: Any) -> tuple[float, Any]:
        copied = MemoryStore()
        copied._objects = dict(store._objects)

        def slow(kind: str, path: str, act: Callable[[], Any]) -> Any:
            time.sleep(0.02)
            return act()

        began = time.monotonic()
        catalog = DeltaStreamCatalog(FetchingStore(copied, slow))
        chosen = Settings(executor="local", **settings)
        named = [{"day": str(day)} for day in range(days)]
        result = compact("t", delta_catalog_client=catalog, settings=chosen, partitions=named)
        assert not result.errors
        return time.monotonic() - began, result

    one, _ = run(2, partitions_at_once=1)
    all_s, result = run(24)
    assert all_s < 24 / 2 * one / 2, (one, all_s)
    assert [session.partition for session in result.sessions] == [{"day": str(day)} for day in range(24)]
    assert {session.live for session in result.sessions} == {4}


def peak_and_plan() -> tuple[int, int]:
    """The most memory of this process while it compacts twelve partitions, and what their plan says."""
    catalog = with_days(behind_a_network(), 12, rows=30_000)
    peak, done = [0], threading.Event()

    def sample() -> None:
        while not done.wait(0.01):
            memory = psutil.Process().memory_info()
            peak[0] = max(peak[0], memory.rss - memory.shared)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        result = compact("t", delta_catalog_client=catalog, settings=Settings(executor="local"))
    finally:
        done.set()
        sampler.join()
    (planned_bytes,) = {session.planned_peak_bytes for session in result.sessions}
    return peak[0], planned_bytes


@pytest.mark.processes
def test_the_memory_of_the_process_stays_within_the_plans_of_all_that_run() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:  # the tests' own process holds gigabytes
        peak, planned_bytes = pool.submit(peak_and_plan).result()
    assert planned_bytes >= TASK_BASE_BYTES + 12 * SESSION_BYTES, "the plan is that of twelve tasks in one process"
    assert 0 < peak <= planned_bytes


def test_a_bad_partition_costs_the_others_nothing_and_events_name_their_partition() -> None:
    def fails(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if "t/day=3/" in path and kind == "writer" and compacting:
            raise OSError("a bad disk")
        return act()

    compacting: list[bool] = []
    catalog = with_days(behind_a_network(fails), 8)
    compacting.append(True)
    events: list[Event] = []
    at_work = []

    def sink(event: Event) -> None:
        at_work.append(event)
        time.sleep(0.001)
        assert at_work.pop() is event and not at_work, "a sink gets one event at a time"
        events.append(event)

    result = compact(
        "t",
        delta_catalog_client=DeltaStreamCatalog(catalog.store),
        settings=Settings(executor="local"),
        event_sinks=[sink],
    )
    assert [session.error is None for session in result.sessions] == [day != 3 for day in range(8)]
    for day in range(8):
        of_day = [type(event) for event in events if event.partition == Partition((("day", str(day)),))]
        assert of_day[0] is SessionStarted and of_day[-1] is SessionFinished and of_day.count(SessionFinished) == 1


@pytest.mark.slow
def test_ctrl_c_loses_nothing_and_names_what_was_published() -> None:
    """The signal comes while some sessions have published, some work and some wait."""
    sealed: list[str] = []

    def watch(kind: str, path: str, act: Callable[[], Any]) -> Any:
        time.sleep(0.001)
        done = act()
        if kind == "put_if_absent" and path.endswith("/published.json"):
            sealed.append(path)
            if len(sealed) == 5:
                os.kill(os.getpid(), signal.SIGINT)
        return done

    catalog = with_days(behind_a_network(watch), 40)
    with pytest.raises(Interrupted) as raised:
        compact("t", delta_catalog_client=catalog, settings=Settings(executor="local"))
    said = str(raised.value)
    fresh = DeltaStreamCatalog(catalog.store)
    versions = {day: fresh.state("t", Partition((("day", str(day)),))).version for day in range(40)}
    published = {day for day, version in versions.items() if version != "0"}
    assert 5 <= len(published) < 40
    assert {day for day in range(40) if f"{versions[day]} of t/day={day} is published" in said} == published
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("deltacompact-session_")], said
    result = compact("t", delta_catalog_client=fresh, settings=Settings(executor="local"))
    assert len([session for session in result.sessions if session.nothing_to_do]) == len(published)
    assert sorted(fresh.read("t")["id"].to_pylist()) == sorted([0, 1, 2, 3] * 40)


def test_sessions_share_the_threads_of_one_executor() -> None:
    """Larger sessions, four at a time, on two threads: never more than two tasks at work."""
    at_work, most, lock = 0, 0, threading.Lock()

    def counted(kind: str, path: str, act: Callable[[], Any]) -> Any:
        nonlocal at_work, most
        if not threading.current_thread().name.startswith("deltacompact_"):
            return act()
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.003)
        with lock:
            at_work -= 1
        return act()

    catalog = with_days(behind_a_network(counted), 6)
    limits = type(LIMITS)(task_rows_min=1)  # no session is small
    settings = Settings(executor="local", local_threads=2, limits=limits, partitions_at_once=4)
    result = compact("t", delta_catalog_client=catalog, settings=settings)
    assert not result.errors and most == 2


@pytest.mark.slow
def test_rate_limits_hold_for_all_sessions_together() -> None:
    log: list[float] = []

    def noted(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if "/data/" in path and kind in ("fetch", "writer") and compacting:
            log.append(time.monotonic())
        return act()

    compacting: list[bool] = []
    catalog = with_days(behind_a_network(noted), 10)
    compacting.append(True)
    compact("t", delta_catalog_client=catalog, settings=Settings(executor="local", requests_per_s=50.0))
    assert len(log) > 30
    assert max(sum(began <= at < began + 0.5 for at in log) for began in log) <= 50 * (0.5 + 0.25) + 10


def test_a_stopped_executor_ends_its_sessions() -> None:
    for executor in (LocalExecutor(Settings(local_threads=2)), LocalExecutor(Settings(), inline=2)):
        release = threading.Event()
        tasks = [executor.submit(release.wait, 5) for _ in range(6)]
        executor.stop()
        release.set()
        with pytest.raises(KeyboardInterrupt):
            list(executor.finish(tasks))


def test_a_session_between_two_stages_ends_with_its_stopped_executor() -> None:
    """Its next task could not be submitted, and it was told as failed, although it goes on later."""
    executor = LocalExecutor(Settings(local_threads=2))
    release = threading.Event()
    *_, waiting = [executor.submit(release.wait, 5) for _ in range(3)]
    executor.stop()
    release.set()
    with pytest.raises(KeyboardInterrupt):
        executor.submit(release.wait, 5)
    with pytest.raises(KeyboardInterrupt):
        executor.get(waiting.values[0])


def test_a_single_session_that_is_interrupted_stops_its_executor() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    stops: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run_side_by_side([ClaimedSession(None, interrupted)], {Lane.POOL: ALL}, lambda: stops.append("stopped"))
    assert stops == ["stopped"]


def test_each_sink_has_a_lock_of_its_own() -> None:
    inside, seen = threading.Barrier(2, timeout=5), []

    def meets(event: Event) -> None:
        inside.wait()
        seen.append(event)

    emit = fan_out([meets])
    other = fan_out([meets])
    event = Event("t", Partition())
    threads = [threading.Thread(target=sink, args=(event,)) for sink in (emit, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [event, event]


def test_small_sessions_work_here_while_large_ones_share_the_cluster(tmp_path: Any, ray_cluster: str) -> None:
    catalog = open_catalog(tmp_path)
    catalog.create_table("t", ["day"], ["id"])
    rows = {day: 40_000 if day % 2 else 100 for day in range(8)}
    for day, count in rows.items():
        for delta in range(2):
            catalog.append("t", pa.table({"id": list(range(delta, count + delta))}), {"day": day})
    running: set[Partition] = set()
    most: dict[str, int] = {}

    def sink(event: Event) -> None:
        if isinstance(event, SessionStarted):
            running.add(event.partition)
        elif isinstance(event, SessionFinished):
            running.discard(event.partition)
        large = sum(int(dict(partition.values)["day"] or 0) % 2 for partition in running)
        most["large"] = max(most.get("large", 0), large)
        most["both"] = max(most.get("both", 0), min(large, len(running) - large))

    settings = Settings(ray_address=ray_cluster, local_rows_max=10_000)
    result = compact("t", delta_catalog_client=catalog, settings=settings, event_sinks=[sink])
    assert [session.error for session in result.sessions] == [None] * 8
    assert {session.partition["day"]: session.executor for session in result.sessions} == {
        str(day): "ray" if day % 2 else "local" for day in range(8)
    }
    assert {session.partition["day"]: session.live for session in result.sessions} == {
        str(day): count + 1 for day, count in rows.items()
    }
    assert most["large"] > 1 and most["both"] > 0, most
    assert [problem for found in check(catalog, "t") for problem in found.problems] == []

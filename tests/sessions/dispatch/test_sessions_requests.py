"""What the control plane asks of the store, by count: an idle month, one job run, and a long history."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from counting_store import CountingStore
from sessions_processes import until
from sessions_records import job_run, session, succeeded

import deltacompact
from deltacompact.storage.memory import MemoryStore
from sessions.base.model import JobRunState
from sessions.base.settings import DispatcherSettings
from sessions.cli.dispatch import dispatcher_of
from sessions.events.courier import Courier
from sessions.events.recording import EventRecorder
from sessions.launchers import local
from sessions.launchers.launcher import GroupSpec, GroupState, GroupStatus
from sessions.overview.overview import ENDED_MAX, OverviewReader
from sessions.queues.opening import open_queue
from sessions.records.leases import claim
from sessions.records.state_store import StateStore
from sessions.runner.group import GroupRun

MONTH_S = 30 * 86_400
USD = {"list": 5e-6, "put": 5e-6, "put_if_absent": 5e-6, "put_if_same": 5e-6, "get": 4e-7, "stat": 4e-7, "delete": 0.0}
"""S3 in us-east-1: $0.005 for 1,000 PUT or LIST, $0.0004 for 1,000 GET or HEAD."""
SQS_USD = 4e-7


class InThisProcess:
    """A launcher of groups as threads of the test, so that one store counts what all of them ask."""

    counted: CountingStore

    def __init__(self, *_: object) -> None:
        self.threads: dict[str, threading.Thread] = {}

    def ready(self) -> None: ...

    def close(self) -> None: ...

    def terminate(self, group_id: str) -> None: ...

    def part_with_log(self, group_id: str, is_copied: bool) -> None: ...

    def logs(self, group_id: str) -> str:
        return "what it printed"

    def launch(self, spec: GroupSpec) -> None:
        def run() -> None:
            recorder = EventRecorder(StateStore(self.counted))
            state = StateStore(self.counted, recorder)
            recorder.know((runner := GroupRun(state, spec.job_run_id, spec.epoch)).job_run)
            runner.run(spec.group)

        self.threads[spec.id] = threading.Thread(target=run)
        self.threads[spec.id].start()

    def status(self, group_id: str) -> GroupStatus:
        alive = self.threads[group_id].is_alive()
        return GroupStatus(GroupState.RUNNING) if alive else GroupStatus(GroupState.ENDED, 0)


@pytest.fixture
def counted(monkeypatch):
    store = CountingStore(MemoryStore())
    InThisProcess.counted = store
    monkeypatch.setattr(local, "LocalLauncher", InThisProcess)
    return store


@pytest.fixture
def dispatched(counted, tmp_path):
    """A dispatcher at work on the counted store, and its courier, which a test lets go round."""
    recorder = EventRecorder(StateStore(counted))
    settings = DispatcherSettings(max_sessions=2)
    dispatcher = dispatcher_of(
        str(tmp_path / "queue"), counted, settings=settings, logs=str(tmp_path / "logs"), observer=recorder
    )
    thread = threading.Thread(target=dispatcher.run)
    thread.start()
    until(lambda: any(path == "ended-indexed" and kind == "put" for kind, path in counted.requests), "it has begun")
    until(lambda: ("list", "open/") in counted.requests, "it has looked")
    courier = Courier(dispatcher.state, None, recorder)
    courier.deliver()  # what others left, once
    yield dispatcher, courier
    dispatcher.stop()
    thread.join(30)
    until(lambda: not {"_renew_for_ever", "_reap_for_ever", "say"} & _threads(), "its threads end")


def _threads():
    return {thread.name for thread in threading.enumerate()}


def job_run_of(tmp_path, name):
    catalog = deltacompact.open_catalog(str(tmp_path / "lake"))
    catalog.create_table(name, primary_keys=["id"])
    catalog.append(name, pa.table({"id": [1, 2, 3]}))
    document = {"version": 1, "catalog": str(tmp_path / "lake"), "source_table_id": name, "job_run_id": name}
    open_queue(str(tmp_path / "queue")).send(json.dumps({**document, "settings": {"executor": "local"}}))


def test_a_job_run_of_one_session_takes_forty_requests_at_most(dispatched, counted, tmp_path):
    dispatcher, courier = dispatched
    job_run_of(tmp_path, "first")  # it learns rates, whose records begin
    state = StateStore(counted.inner)
    until(lambda: not dispatcher._holding and len(list(state.job_runs())) == 1, "the first one ends")
    until(lambda: next(state.job_runs()).state is JobRunState.SUCCEEDED, "it has ended")
    courier.deliver()
    counted.reset()
    job_run_of(tmp_path, "second")
    until(lambda: any(run.id == "second" and run.state.ended for run in state.job_runs()), "it ends")
    until(lambda: not dispatcher._holding and not state.open_job_runs(), "it is closed")
    courier.deliver()
    assert not list(counted.inner.list("pending/"))
    billed = [f"{kind} {path}" for kind, path in counted.requests if USD[kind] > 0]
    assert len(billed) <= 40, "\n".join(billed)


def usd(requests: Counter[str]) -> float:
    return sum(USD[kind] * many for kind, many in requests.items())


def test_a_dispatcher_that_idles_for_a_month_costs_two_dollars_at_most(counted, tmp_path, monkeypatch):
    """Each of its loops is let go round once and counted, and a month has so many rounds. SQS: a long poll of 20 s."""
    settings = DispatcherSettings()
    recorder = EventRecorder(StateStore(counted))
    dispatcher = dispatcher_of(str(tmp_path / "queue"), counted, settings=settings, logs=str(tmp_path / "logs"))
    clock = [0.0]
    _let_tick(clock, monkeypatch)
    courier = Courier(dispatcher.state, None, recorder, clock=lambda: clock[0])
    dispatcher._say(), dispatcher._sweep(), courier.deliver()
    counted.reset()
    hour_s = 3600
    said_s = 0.0
    for tick in range(hour_s):
        clock[0] = float(tick + 1)
        dispatcher._sweep()
        if clock[0] - said_s >= 20:
            dispatcher._say()
            said_s = clock[0]
        courier.deliver()
    month = Counter({kind: many * MONTH_S // hour_s for kind, many in counted.by_kind().items()})
    total = usd(month) + SQS_USD * MONTH_S / 20
    assert 1.0 < total <= 2.0, (total, month)
    dispatcher._launcher.close()


class _Ticking:
    """The module `time`, whose seconds pass when the test says so."""

    def __init__(self, clock: list[float]) -> None:
        self._clock = clock

    def monotonic(self) -> float:
        return 1_000_000.0 + self._clock[0]

    def time(self) -> float:
        return 1_000_000.0 + self._clock[0]

    def sleep(self, seconds: float) -> None: ...


def _let_tick(clock: list[float], patch: pytest.MonkeyPatch) -> None:
    """A dispatcher's time passes with this clock."""
    for module in ("dispatcher", "open_job_runs"):
        patch.setattr(f"sessions.dispatch.{module}.time", _Ticking(clock))


def history(store: MemoryStore, many: int) -> None:
    """Job runs that have ended: two are written by the state store, the others are copies of their objects."""
    state = StateStore(store)
    run = job_run("run-000000", state=JobRunState.ACCEPTED, lease=None)
    state.accept(run)
    state.add_session(succeeded(session(run=run.id)))
    done = replace(run, state=JobRunState.SUCCEEDED, finished_s=run.accepted_s + 60, session_ids=("day=2024-01-01",))
    assert state.change_job_run(state.job_run(run.id), done)
    state.close(done)
    state.index_ended()
    ours = {path: kept for path, kept in store._objects.items() if run.id in path}
    for number in range(1, many):
        name = f"run-{number:06d}"
        for path, (data, at_s) in ours.items():
            store._objects[path.replace(run.id, name)] = (data.replace(run.id.encode(), name.encode()), at_s)


def a_minute(store: CountingStore, tmp_path, monkeypatch) -> Counter[str]:
    """What a dispatcher, its courier, its page with a stream and its metrics ask in a minute, once they are warm."""
    clock = [0.0]
    with monkeypatch.context() as patch:
        _let_tick(clock, patch)
        state = StateStore(store)
        dispatcher = dispatcher_of(str(tmp_path / "queue"), store, logs=str(tmp_path / "logs"))
        courier = Courier(state, None, EventRecorder(state), clock=lambda: clock[0])
        reader = OverviewReader(state, clock=lambda: clock[0])
        reader.read(), courier.deliver(), dispatcher._say(), dispatcher._sweep()
        store.reset()
        for second in range(60):
            clock[0] = second + 1.0
            dispatcher._sweep(), courier.deliver(), reader.read()
            if second % 20 == 0:
                dispatcher._say()
    return store.by_kind()


@pytest.mark.slow
def test_a_minute_costs_the_same_whether_no_job_run_or_thousands_have_ended(counted, tmp_path, monkeypatch):
    StateStore(counted).index_ended()
    none = a_minute(counted, tmp_path, monkeypatch)
    full = CountingStore(MemoryStore())
    history(full.inner, 3_000)  # three pages of a listing, and more than an overview holds
    assert len(full.inner._objects) >= 3 * 3_000
    assert a_minute(full, tmp_path, monkeypatch) == none
    reader = OverviewReader(StateStore(full))
    full.reset()
    assert len(reader.read().job_runs) == ENDED_MAX
    assert full.by_kind()["list"] <= 3 and full.by_kind()["get"] <= 2 * ENDED_MAX + 1, "it begins with the latest"


@pytest.mark.slow
def test_job_runs_that_wait_for_one_of_their_stream_cost_one_listing_a_sweep(counted, tmp_path, monkeypatch):
    clock = [0.0]
    _let_tick(clock, monkeypatch)
    state = StateStore(counted)
    for number in range(200):
        state.accept(job_run(f"run-{number:03d}", state=JobRunState.ACCEPTED, lease=None, accepted_s=float(number)))
    dispatcher = dispatcher_of(str(tmp_path / "queue"), counted, logs=str(tmp_path / "logs"))
    other = state.job_run("run-000")
    assert claim(state, other, "another dispatcher", 60.0, 0.0) is not None
    dispatcher._say()
    for second in range(5):
        clock[0] = float(second * 5)
        dispatcher._sweep()
    assert not dispatcher._holding and len(dispatcher._open.behind) == 199
    counted.reset()
    clock[0] = 25.0
    dispatcher._sweep()
    assert counted.by_kind() == {"list": 1}


def test_job_runs_that_wait_are_read_once_and_then_every_half_a_minute_side_by_side(counted, tmp_path, monkeypatch):
    """300 that waited for one of their stream were read three times in the first sweep, and twice more each time that
    one of them had ended, one after another."""
    clock, many = [0.0], 300
    _let_tick(clock, monkeypatch)
    state = StateStore(counted.inner)
    for number in range(many):
        state.accept(job_run(f"run-{number:03d}", state=JobRunState.ACCEPTED, lease=None, accepted_s=float(number)))
    dispatcher = dispatcher_of(str(tmp_path / "queue"), counted, logs=str(tmp_path / "logs"))
    open_ones = dispatcher._open

    def sweep(at_s: float) -> tuple[list[str], int]:
        """The job runs that are claimed, which end at once, and how many are read."""
        clock[0] = at_s
        counted.reset()
        held = [held for mark in open_ones.unheld(()) if (held := open_ones.claimed(mark, at_s)) is not None]
        read = counted.by_kind()["get"]
        for each in held:
            each.end(JobRunState.CANCELLED if each.run.cancelling else JobRunState.SUCCEEDED)
        return [each.run.id for each in held], read

    claimed, read = sweep(0.0)
    assert claimed == ["run-000"] and read <= many + 1
    assert sweep(6.0) == (["run-001"], many - 1), "one might have begun before all had seen run-001"
    assert sweep(12.0) == (["run-002"], 1)
    given_back = state.job_run("run-299")
    assert state.change_job_run(given_back, replace(given_back.value, cancelling=True))
    assert sweep(24.0) == (["run-003"], 1)
    counted.latency_s = 0.001
    claimed, read = sweep(36.0)
    assert claimed == ["run-004", "run-299"] and read <= many and counted.at_once_max > 8
    assert len(open_ones.behind) == many - 6

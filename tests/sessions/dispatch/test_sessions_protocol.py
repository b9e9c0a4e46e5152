"""The protocol of queue, leases and attempts as a state machine: dispatchers that stop before each store operation.

A dispatcher of this test accepts a message, claims the job run, makes the next attempt, runs the session with the real
engine and ends the job run: one thread each, over one store in memory and one directory queue. hypothesis lets them
take turns, stay asleep beyond their leases, lose replies and die at any operation, while messages come twice and in
any order, and a writer appends to the table. Whatever happens:

    a job run publishes once at most                    every seal names a session that one record names
    who publishes is who the record names               an attempt that was taken over from seals nothing
    epochs grow, and one owner holds an epoch
    at the end every job run has succeeded, the table holds what the oracle says, the queue is empty
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pytest
from budgets import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from oracle import Oracle
from simulation import Fault, Simulation

from deltacompact.base.errors import ConflictError, DeltaCompactError
from deltacompact.base.model import Partition
from sessions.base import patience
from sessions.base.ids import session_id
from sessions.base.model import JobRunSession, JobRunState, SessionState
from sessions.dispatch.attempts import SessionAttempts
from sessions.dispatch.intake import Intake
from sessions.documents.allow_list import AllowList
from sessions.documents.instruction import of_values
from sessions.queues.directory import DirectoryQueue
from sessions.records.leases import LeaseLostError, claim
from sessions.records.state_store import StateStore
from sessions.runner import reporting
from sessions.runner.group import GroupRun
from sessions.runner.reporting import NotRecorded, Superseded

TTL_S = 60.0
ALL = Partition()
DOCUMENT = {
    "version": 1,
    "catalog": "/in-memory",
    "source_table_id": "t",
    "settings": {"executor": "local", "local_threads": 1},
}


@pytest.fixture(autouse=True, scope="module")
def no_waiting():
    """Retries after a failed operation follow at once, and no record is written because a second has passed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patience, "time", _NoTime())
        patch.setattr(reporting, "_WRITE_EVERY_S", 1e9)
        yield


class _NoTime:
    time = staticmethod(time.time)

    @staticmethod
    def sleep(seconds):
        pass


POINTS = ("open/", "run/", "sessions/all/", "plan.json", "round-", "t/stream/1-", "t/stream/0/", "t/stream/")


def stops(kind, path):
    """Where a dispatcher can be interrupted: at every record, every log entry, and at the queue's acceptance."""
    return "/data/" not in path and "/index/" not in path and kind not in ("open", "writer", "folders")


class Dispatching(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.simulation = Simulation()
        self.folder = Path(tempfile.mkdtemp())
        self.queue = DirectoryQueue(self.folder, visibility_s=30, clock=self.simulation.clock)
        self.asleep = []
        self.owners = 0
        self.appended = 0
        self.oracle = Oracle(["k"])
        self.submitted = set()
        self.claims = []

    def teardown(self):
        try:
            self.end()
        finally:
            shutil.rmtree(self.folder)

    # What happens

    @initialize()
    def begin(self):
        self.simulation.catalog().create_table("t", primary_keys=["k"])
        self.append()
        self.submit(0, 1)

    @rule()
    def append(self):
        self.appended += 1
        rows = [{"k": f"k{self.appended % 3}", "v": self.appended}]
        delta = self.simulation.catalog().append("t", pa.Table.from_pylist(rows))
        self.oracle.apply(delta.position, "upsert", [rows])

    @rule(number=st.integers(0, 1), times=st.integers(1, 2))
    def submit(self, number, times):
        """The same job run perhaps several times."""
        for _ in range(times):
            self.queue.send(json.dumps({**DOCUMENT, "job_run_id": f"run-{number}"}))
        self.submitted.add(f"run-{number}")

    # No preconditions: how far a dispatcher gets depends on names that are new in every run, hypothesis must not.

    @rule(steps=st.integers(0, 120))
    def dispatch(self, steps):
        """A new dispatcher, which gets as far as that and is suspended there."""
        if len(self.asleep) == 4:
            return
        self.owners += 1
        owner = f"d{self.owners}"
        actor = self.simulation.start(lambda catalog: self._dispatcher(catalog, owner), owner, stops)
        self.asleep.append(actor)
        self._run(actor, steps)

    @rule(which=st.integers(0, 3), steps=st.integers(1, 120))
    def wake(self, which, steps):
        if self.asleep:
            self._run(self.asleep[which % len(self.asleep)], steps)

    @rule(which=st.integers(0, 3), point=st.sampled_from(POINTS))
    def wake_until(self, which, point):
        """Up to where it matters most that somebody sleeps."""
        if self.asleep:
            self._run(self.asleep[which % len(self.asleep)], 5000, point)

    @rule(which=st.integers(0, 3), fault=st.sampled_from(Fault), steps=st.integers(0, 40))
    def harm(self, which, fault, steps):
        """One operation goes wrong, or the process dies at it."""
        if self.asleep:
            actor = self.asleep[which % len(self.asleep)]
            if not actor.done:
                self._step(actor, fault)
            self._run(actor, steps)

    @rule(seconds=st.sampled_from([1.0, 31.0, TTL_S + 20, 200.0]))
    def pass_time(self, seconds):
        self.simulation.now_s += seconds

    @invariant()
    def each_job_run_publishes_once_at_most(self):
        published = [state.compacted.session_id for state in self._chain() if state.compacted]
        known = [session.engine_session_id for session in self._sessions() if session.engine_session_id]
        assert set(published) <= set(known), "a seal of a session that no record names"
        assert len(published) == len(set(published)) <= len(self.submitted), published

    @invariant()
    def an_epoch_has_one_owner(self):
        epochs = [(name, epoch) for name, epoch, _ in self.claims]
        assert len(epochs) == len(set(epochs)), self.claims

    # What a dispatcher does

    def _dispatcher(self, catalog, owner):
        """Accept, claim, attempt, run, end: the order of sessions.dispatch, one job run after another."""
        state = StateStore(catalog.store)
        intake = Intake(self.queue, state, AllowList(), self.simulation.clock)
        for message in self.queue.receive(1, 0):
            intake.take(message)
        for mark in state.open_job_runs():
            try:
                self._work(catalog, state, owner, mark.job_run_id)
            except (LeaseLostError, NotRecorded, Superseded, DeltaCompactError):
                continue  # somebody else's, or to be tried again

    def _work(self, catalog, state, owner, job_run_id):
        stored = state.job_run(job_run_id)
        if stored.value.state.ended:
            state.close(stored.value)
            return
        held = claim(state, stored, owner, TTL_S, self.simulation.now_s)
        if held is None:
            return
        self.claims.append((job_run_id, held.epoch, owner))
        instruction = of_values(held.run.document)
        name = session_id({})
        if held.run.state is JobRunState.ACCEPTED:
            state.add_session(JobRunSession(name, job_run_id, {}))
            state.put_group(job_run_id, "g", [name])
            held.change(state=JobRunState.RUNNING, session_ids=(name,))
        attempts = SessionAttempts(held, instruction, lambda uri: catalog)
        session = attempts.next(name)
        while not session.state.ended:
            GroupRun(state, job_run_id, held.epoch, open_catalog=lambda uri: catalog).run("g")
            session = attempts.next(name)
        held.end(JobRunState.SUCCEEDED if session.state is not SessionState.FAILED else JobRunState.FAILED)

    # Inside

    def _run(self, actor, steps, point=None):
        for _ in range(steps):
            if actor.done or (point and actor.pending[0] == "put_if_absent" and point in actor.pending[1]):
                break
            self._step(actor)
        if actor.done:
            if actor in self.asleep:
                self.asleep.remove(actor)
            if actor.error is not None and not isinstance(actor.error, DeltaCompactError):
                raise actor.error

    def _step(self, actor, fault=None):
        """One operation; where it was a seal, the record must name the attempt of who put it."""
        seals = actor.pending[0] == "put_if_absent" and "t/stream/" in actor.pending[1]
        before = len(self._chain()) if seals else 0
        actor.step(fault)
        if seals and len(chain := self._chain()) > before:
            sealed = chain[-1].compacted.session_id  # two job runs on one stream may work on one engine session
            named = {(each.job_run_id, each.epoch) for each in self._sessions() if each.engine_session_id == sealed}
            assert any((*claim, actor.name) in self.claims for claim in named), (actor.name, named, self.claims)

    def _chain(self):
        log = self.simulation.catalog().log("t", ALL)
        return list(log.chain()) if log.exists() else []

    def _sessions(self):
        state = StateStore(self.simulation.store)
        return [session for run in state.job_runs() for session in state.sessions(run.id)]

    def end(self):
        """Everybody who sleeps wakes up late, and one dispatcher brings the rest to its end."""
        self.simulation.now_s += 10 * TTL_S
        for actor in list(self.asleep):
            self._run(actor, 5000)
        state = StateStore(self.simulation.store)
        for _ in range(50):
            if self.queue.depth().is_empty and not state.open_job_runs():
                break
            self.simulation.now_s += 2 * TTL_S
            self.owners += 1
            self._dispatcher(self.simulation.catalog(), f"last-{self.owners}")
        self.each_job_run_publishes_once_at_most()
        self.an_epoch_has_one_owner()
        runs = {run.id: run for run in state.job_runs()}
        assert set(runs) == self.submitted and not list(self.queue.dead_letters())
        assert {run.state for run in runs.values()} <= {JobRunState.SUCCEEDED}, runs
        rows = self.simulation.catalog().read("t").to_pylist()
        assert sorted(map(repr, rows)) == sorted(map(repr, self.oracle.rows()))
        assert any(state.compacted for state in self._chain())


Dispatching.TestCase.settings = settings(
    max_examples=examples(60),
    stateful_step_count=30,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
TestDispatching = Dispatching.TestCase


# --- by hand -------------------------------------------------------------------------------------------------------


def started(machine, stops_at, path):
    """A dispatcher that stands before an operation."""
    actor = machine.simulation.start(lambda catalog: machine._dispatcher(catalog, "first"), "first", stops)
    actor.run_to(stops_at, path)
    return actor


@pytest.mark.parametrize(
    ("kind", "path", "occurrence"),
    [
        ("put_if_same", "sessions/all", 1),
        ("put_if_absent", "plan.json", 1),
        ("put_if_absent", "round-00001", 1),
        ("put_if_absent", "stream/1-", 1),
        ("put_if_absent", "stream/0/00000000000000000002", 1),
    ],
    ids=["session recorded", "plan", "round", "successor", "seal"],
)
def test_a_dispatcher_that_sleeps_beyond_its_lease_publishes_nothing(kind, path, occurrence):
    """Wherever it slept: another one takes over, fences it off and publishes; new deltas come; it wakes up."""
    machine = Dispatching()
    machine.simulation.catalog().create_table("t", primary_keys=["k"])
    machine.append()
    machine.submit(0, 1)
    first = started(machine, kind, path)
    for _ in range(occurrence - 1):
        first.step()
        first.run_to(kind, path)
    machine.simulation.now_s += 2 * TTL_S
    machine._dispatcher(machine.simulation.catalog(), "second")
    machine.append()
    before = [state.version for state in machine._chain()]
    assert len(before) == 2
    machine._run(first, 5000)
    assert [state.version for state in machine._chain()] == before
    machine.append()
    machine.submit(1, 1)
    machine.end()


@pytest.mark.parametrize("path", ["round-00001", "stream/1-", "stream/0/00000000000000000002"])
def test_a_dispatcher_that_was_taken_over_from_publishes_nothing_although_nobody_else_has(path):
    """It wakes up while the other one is only about to begin."""
    machine = Dispatching()
    machine.simulation.catalog().create_table("t", primary_keys=["k"])
    machine.append()
    machine.submit(0, 1)
    first = started(machine, "put_if_absent", path)
    machine.simulation.now_s += 2 * TTL_S
    second = machine.simulation.start(lambda catalog: machine._dispatcher(catalog, "second"), "second", stops)
    second.run_to("put_if_absent", "plan.json")
    machine._run(first, 5000)
    assert len(machine._chain()) == 1, "sealed by an attempt that was fenced off"
    machine.append()
    machine._run(second, 5000)
    assert len(machine._chain()) == 2
    machine.end()


def test_what_a_dispatcher_had_published_before_it_died_is_adopted():
    machine = Dispatching()
    machine.simulation.catalog().create_table("t", primary_keys=["k"])
    machine.append()
    machine.submit(0, 1)
    first = started(machine, "put_if_absent", "stream/0/00000000000000000002")
    first.step(Fault.DIES_AFTER)
    assert len(machine._chain()) == 2
    machine.append()
    machine.simulation.now_s += 2 * TTL_S
    machine._dispatcher(machine.simulation.catalog(), "second")
    (session,) = machine._sessions()
    assert session.state is SessionState.SUCCEEDED and session.attempts == 1
    assert session.outcome.version == machine._chain()[-1].version and len(machine._chain()) == 2


def test_an_attempt_that_was_fenced_off_is_a_conflict():
    import deltacompact
    from deltacompact.base.table_keys import TableKeys
    from deltacompact.delta_streams.partition import DeltaStreamPartition

    catalog = Simulation().catalog()
    table = catalog.create_table("t", primary_keys=["k"])
    catalog.append("t", pa.table({"k": [1]}))
    DeltaStreamPartition(catalog, table, "t", ALL, TableKeys.of(["k"])).fence_attempt("run-1/1/1")
    local = deltacompact.Settings(executor="local")
    with pytest.raises(ConflictError, match="run-1/1/1 was fenced"):
        deltacompact.compact("t", delta_catalog_client=catalog, settings=local, attempt="run-1/1/1")
    with pytest.raises(deltacompact.InputError, match="no slash"):
        deltacompact.compact("t", delta_catalog_client=catalog, settings=local, attempt="run-1")
    done = deltacompact.compact("t", delta_catalog_client=catalog, settings=local, attempt="run-1/2/1")
    assert done.sessions[0].live == 1


def test_a_fence_of_an_attempt_leaves_the_rounds_of_its_session_to_the_next_attempt():
    import deltacompact
    from deltacompact.base.table_keys import TableKeys
    from deltacompact.delta_streams.partition import DeltaStreamPartition

    simulation = Simulation()
    table = simulation.catalog().create_table("t", primary_keys=["k"])
    for number in range(3):
        simulation.catalog().append("t", pa.table({"k": [number]}))
    settings_ = deltacompact.Settings(executor="local", local_threads=1, rows_per_round=1)

    def attempt(catalog, name):
        return deltacompact.compact("t", delta_catalog_client=catalog, settings=settings_, attempt=name)

    first = simulation.start(lambda catalog: attempt(catalog, "run-1/1/1"), "first", stops)
    first.run_to("put_if_absent", "round-00002")
    stream = DeltaStreamPartition(simulation.catalog(), table, "t", ALL, TableKeys.of(["k"]))
    stream.fence_attempt("run-1/1/1")
    done = attempt(simulation.catalog(), "run-1/2/1")
    assert done.sessions[0].rounds_resumed == 1 and done.sessions[0].rounds == 3
    with pytest.raises(ConflictError):
        first.finish()


def test_a_destination_that_was_never_published_can_be_fenced():
    import deltacompact
    from deltacompact.base.table_keys import TableKeys
    from deltacompact.delta_streams.partition import DeltaStreamPartition

    simulation = Simulation()
    table = simulation.catalog().create_table("t", primary_keys=["k"])
    simulation.catalog().append("t", pa.table({"k": [1, 2]}))
    settings_ = deltacompact.Settings(executor="local", local_threads=1)

    def attempt(catalog, name):
        into = {"destination_compacted_table_id": "flat", "settings": settings_, "attempt": name}
        return deltacompact.compact("t", delta_catalog_client=catalog, **into)

    first = simulation.start(lambda catalog: attempt(catalog, "run-1/1/1"), "first", stops)
    first.run_to("put_if_absent", "round-00001")
    DeltaStreamPartition(simulation.catalog(), table, "flat", ALL, TableKeys.of(["k"])).fence_attempt("run-1/1/1")
    with pytest.raises(ConflictError, match="fenced"):
        first.finish()
    assert attempt(simulation.catalog(), "run-1/2/1").sessions[0].live == 2
    assert simulation.catalog().read("flat").num_rows == 2

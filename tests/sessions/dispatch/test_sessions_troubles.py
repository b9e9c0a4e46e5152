"""Job runs end, whatever they meet: what passes is waited for with its reason and given up in the end; retry, cancel.

The work of one dispatcher runs in this process on a state in memory and on an injected clock. The engine, the catalog
and the records are real; a launcher runs a group where it is launched.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import threading
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pyarrow as pa
import pytest
from calls import calls
from sessions_records import session
from stores import Crash, InterceptedStore

import deltacompact
from deltacompact.base.errors import (
    ClusterError,
    ConflictError,
    CorruptionError,
    CredentialsError,
    InputError,
    StoreError,
)
from deltacompact.base.events import StageStarted
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.publication import publication
from deltacompact.publication.publication import PublicationResult
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore
from sessions.base import patience
from sessions.base.clock import StoreClock
from sessions.base.exits import EXIT_AGAIN, EXIT_PASSING, cause_of_exit
from sessions.base.model import Delay, Estimate, JobRun, JobRunSession, JobRunState, SessionState, Trouble
from sessions.base.patience import patiently
from sessions.base.said_once import SaidOnce
from sessions.base.settings import DispatcherSettings
from sessions.base.troubles import Cause, RetryPolicy, cause_of
from sessions.cli.dispatch import dispatcher_of
from sessions.dispatch import admission as admission_module
from sessions.dispatch import attempts as attempts_module
from sessions.dispatch import dispatcher as dispatcher_module
from sessions.dispatch import job_run_work, showing
from sessions.dispatch.admission import Admission
from sessions.dispatch.delays import Delays
from sessions.dispatch.dispatcher import Dispatcher
from sessions.dispatch.group_work import GroupWork
from sessions.dispatch.held_group import HeldGroup
from sessions.dispatch.intake import Intake
from sessions.dispatch.job_run_work import JobRunWork
from sessions.dispatch.looks import Looks
from sessions.dispatch.means import Means
from sessions.dispatch.open_job_runs import OpenJobRuns
from sessions.dispatch.planned import record_plans
from sessions.dispatch.showing import Showing, ShowingPlaces
from sessions.documents.allow_list import AllowList
from sessions.documents.instruction import of_accepted, of_values
from sessions.events.due import events_of_job_run, events_of_session
from sessions.events.event import EventType
from sessions.launchers.launcher import GroupState, GroupStatus
from sessions.launchers.launchers import Launchers
from sessions.overview.overview import delays_of
from sessions.planning.admission import DispatcherLimits, Postponed, Takes, WaitingGroup
from sessions.planning.learning import RateStore
from sessions.planning.planner import Planner
from sessions.planning.prices import offers_here
from sessions.planning.reasons import Wait
from sessions.planning.starts import StartStore
from sessions.queues.directory import DirectoryQueue
from sessions.queues.queue import Message
from sessions.records.leases import claim
from sessions.records.lives import cancel, retry
from sessions.records.state_store import StateStore
from sessions.records.swapping import SwappedRecords
from sessions.runner import group as group_module
from sessions.runner.group import GroupRun
from sessions.runner.reporting import SessionReport
from sessions.watch.submissions import Ended

SETTINGS = DispatcherSettings(give_up_after_s=600.0, tries=3)
DOCUMENT = {
    "version": 1,
    "catalog": "/lake",
    "source_table_id": "t",
    "job_run_id": "run-1",
    "settings": {"executor": "local", "local_threads": 1},
}


class Clock(StoreClock):
    """The store's time, which passes when a test says so, or somebody waits."""

    def __init__(self):
        super().__init__()
        self.now_s = 1_000_000.0

    def told(self, now_s):
        pass

    def __call__(self):
        return self.now_s


class Here:
    """Runs a group as it is launched, in this thread."""

    def __init__(self, world):
        self.world, self.ended, self.fails = world, {}, None

    def launch(self, spec):
        self.world.launches.append(spec.id)
        if self.fails is not None:
            self.ended[spec.id] = self.fails
            return
        status = GroupRun(self.world.state, spec.job_run_id, spec.epoch, self.world.open_catalog).run(spec.group)
        self.ended[spec.id] = GroupStatus(GroupState.ENDED, status)

    def status(self, group_id):
        return self.ended.get(group_id, GroupStatus(GroupState.UNKNOWN))

    def logs(self, group_id):
        return ""

    def terminate(self, group_id):
        pass

    def close(self):
        pass


class World:
    """One dispatcher's work on one state: whoever asks for the catalog is told `error`, while that is set."""

    def __init__(self, monkeypatch, folder, lake=None):
        self.lake, self.error, self.launches = lake or MemoryStore(), None, []
        self.state = StateStore(MemoryStore())
        self.queue = DirectoryQueue(folder / "queue", clock=lambda: self.clock.now_s)
        self.clock = Clock()
        self.catalog = deltacompact.DeltaStreamCatalog(InterceptedStore(self.lake, self.asked))
        self.catalog.create_table("t", primary_keys=["id"])
        self.launcher = Here(self)
        records = SwappedRecords(self.state.store)
        rates, starts = RateStore(records), StartStore(records)
        self.means = Means(
            Planner(rates, starts, offers_here(2, 8 << 30), 2, open_catalog=self.open_catalog),
            Launchers({"local": self.launcher}),
            Admission(DispatcherLimits(2, memory_bytes=8 << 30), self.clock),
            rates,
            starts,
            SETTINGS,
            clock=self.clock,
        )
        real = attempts_module.SessionAttempts
        monkeypatch.setattr(
            job_run_work,
            "SessionAttempts",
            lambda held, asked, **named: real(held, asked, self.open_catalog, **named),
        )
        monkeypatch.setattr(showing, "open_catalog", self.open_catalog)
        monkeypatch.setattr(job_run_work, "_ROUND_EVERY_S", 0.0)
        monkeypatch.setattr(job_run_work, "_WORTH_GIVING_BACK_S", -1.0)  # it waits by the clock of this world alone

    def asked(self, kind, path, act):
        if self.error is not None:
            raise self.error
        return act()

    def open_catalog(self, uri):
        if self.error is not None:
            raise self.error
        return self.catalog

    def append(self, *ids):
        self.catalog.append("t", pa.table({"id": list(ids), "v": [str(each) for each in ids]}))

    def submit(self, **fields):
        self.queue.send(json.dumps({**DOCUMENT, **fields}))
        self.take()

    def take(self):
        intake = Intake(self.queue, self.state, AllowList(()), self.clock)
        for message in self.queue.receive(10, 0):
            intake.take(message)

    @property
    def run(self):
        return self.state.job_run("run-1").value

    @property
    def session(self):
        (session,) = self.state.sessions("run-1")
        return session

    def work(self, meanwhile=None):
        """One claim, and what a dispatcher does with it until it ends or gives the job run back."""
        stored = self.state.job_run("run-1")
        held = claim(self.state, stored, "host.1.a", 60.0, 0.0)
        assert held is not None, stored.value.lease
        JobRunWork(held, self.means).run()

    def work_until_it_ends(self):
        """As dispatchers do: whoever finds the time come claims it. The reasons that it waited for."""
        reasons = []
        for _ in range(300):
            self.work()
            if self.run.state.ended:
                return reasons
            trouble = self.run.trouble
            assert trouble is not None, "it was given back without a reason"
            reasons.append((trouble.cause, delays_of([self.run], [])["run-1"].text))
            self.clock.now_s = max(self.clock.now_s + 0.1, trouble.again_s)
        raise AssertionError(f"not final after 300 claims: {self.run}")

    @property
    def versions(self):
        fresh = deltacompact.DeltaStreamCatalog(self.lake)
        return len(list(fresh.log("t", fresh.partition("t", None)).chain()))


@pytest.fixture
def world(monkeypatch, tmp_path):
    return World(monkeypatch, tmp_path)


PASSING = [
    (StoreError("s3://lake/t: S3 answered 503: slow down"), Cause.UNREACHABLE),
    (CredentialsError("S3 refused access: the credentials have expired (ExpiredToken)"), Cause.CREDENTIALS),
    (MemoryError("no memory"), Cause.RESOURCES),
    (OSError(errno.ENOSPC, "No space left on device"), Cause.RESOURCES),
    (ClusterError("no Ray cluster answers at head:6379 within 30 s"), Cause.LAUNCH),
]


@pytest.mark.parametrize(("error", "cause"), PASSING)
def test_a_catalog_that_never_answers_ends_the_job_run_with_its_reason(world, error, cause):
    world.append(1)
    world.submit()
    world.error = error
    reasons = world.work_until_it_ends()
    assert world.run.state is JobRunState.FAILED
    assert "given up after" in world.run.error and str(error) in world.run.error
    assert {found for found, _ in reasons} == {cause} and all(str(error) in text for _, text in reasons)
    assert 5 < len(reasons) < 30, "waits double"
    assert world.run.finished_s - 1_000_000.0 == pytest.approx(SETTINGS.give_up_after_s, abs=330)
    assert world.run.trouble is None and world.versions == 1


@pytest.mark.parametrize(("error", "cause"), PASSING)
def test_what_passes_while_a_job_run_is_planned_costs_it_nothing(world, error, cause):
    world.append(1)
    world.submit()
    world.error = error
    for _ in range(4):
        world.work()
        world.clock.now_s = world.run.trouble.again_s
    delayed = [event for event in events_of_job_run(world.run) if event.type is EventType.JOB_RUN_DELAYED]
    assert len(delayed) == 1 and delayed[0].data["cause"] == cause
    world.error = None
    world.work_until_it_ends()
    assert world.run.state is JobRunState.SUCCEEDED and world.versions == 2 and world.run.trouble is None


@pytest.mark.parametrize(("error", "cause"), PASSING)
def test_a_session_outlives_what_passes_and_says_why_it_waits(world, monkeypatch, error, cause):
    """Minutes of 503, or one ExpiredToken, in the middle of a session: no try is counted as a failure."""
    world.append(1)
    world.submit()
    world.work_session_fails = error
    real = GroupRun._compacted

    def compacted(self, report):
        if world.work_session_fails is not None:
            raise world.work_session_fails
        return real(self, report)

    monkeypatch.setattr(GroupRun, "_compacted", compacted)
    for _ in range(6):  # twice as often as a session may fail
        world.work()
        assert world.session.trouble.cause == cause and world.session.delay.reason == cause
        assert world.run.trouble.cause == cause and str(error) in world.session.error
        world.clock.now_s = world.run.trouble.again_s
    (delayed,) = [event for event in events_of_session(world.session, None) if event.type is EventType.SESSION_DELAYED]
    assert delayed.data["cause"] == cause
    assert world.session.failures == 0
    world.work_session_fails = None
    world.work_until_it_ends()
    assert world.run.state is JobRunState.SUCCEEDED and world.session.trouble is None and world.session.delay is None
    world.work_session_fails = error
    world.submit(job_run_id="run-1")  # a duplicate
    assert world.run.state is JobRunState.SUCCEEDED


def test_a_clock_that_was_set_back_a_day_holds_up_no_job_run_and_no_session(world, monkeypatch):
    """Nobody waits longer than five minutes for another try, so a dispatcher that starts now waits for no other day."""
    monkeypatch.setattr(job_run_work, "_WORTH_GIVING_BACK_S", 0.0)
    world.append(1)
    world.submit()
    world.clock.now_s += 86400.0
    world.error = StoreError("S3 answered 503")
    world.work()
    world.clock.now_s -= 86400.0
    dispatcher = Dispatcher(world.queue, Intake(world.queue, world.state, AllowList(())), world.state, world.means)
    (mark,) = world.state.open_job_runs()
    assert world.run.trouble is not None and not dispatcher._open._waits(mark, world.run)
    world.error, begun = None, []
    real = GroupRun._compacted

    def compacted(self, report):
        begun.append(world.clock.now_s)
        if len(begun) == 1:
            world.clock.now_s += 86400.0
            raise StoreError("S3 answered 503")
        return real(self, report)

    monkeypatch.setattr(GroupRun, "_compacted", compacted)
    world.work()
    assert world.session.trouble is not None and len(begun) == 1
    world.clock.now_s -= 86400.0
    world.work()
    assert world.run.state is JobRunState.SUCCEEDED and len(begun) == 2


@pytest.mark.parametrize("error", [StoreError("S3 answered 503"), InputError("S3 refused access (AccessDenied)")])
def test_nothing_is_received_until_the_state_takes_a_sign_of_life(world, monkeypatch, error):
    """A message dies when it has been received twenty times: that was after nine minutes."""
    intake = Intake(world.queue, world.state, AllowList(("/lake",)))
    dispatcher = Dispatcher(world.queue, intake, world.state, world.means)
    world.queue.send(json.dumps({"version": 1, "catalog": "/lake", "source_table_id": "t", "job_run_id": "x"}))
    with monkeypatch.context() as refusing:
        refusing.setattr(world.state, "accept", Mock(side_effect=error))
        assert dispatcher._may_receive()
        dispatcher._receive(10)
        assert not dispatcher._may_receive()
    dispatcher._say()
    assert dispatcher._may_receive()


def test_a_state_that_does_not_answer_is_said_once_and_once_that_it_does(world, monkeypatch, caplog):
    """Each dispatcher warned of it each second: 80,000 lines a day."""
    caplog.set_level(logging.INFO, "sessions")
    dispatcher = Dispatcher(world.queue, Intake(world.queue, world.state, AllowList(())), world.state, world.means)
    troubles, listed = [None, "down", "down", "denied", "denied", None, None, "down"], world.state.open_job_runs
    said = []
    for trouble in troubles:
        fails = Mock(side_effect=StoreError(trouble)) if trouble else listed
        monkeypatch.setattr(world.state, "open_job_runs", fails)
        dispatcher._sweep_s = 0.0
        caplog.clear()
        dispatcher._sweep()
        dispatcher._sweep()  # it is not yet time: nothing is asked, so nothing is well again
        said.append(caplog.messages[:])
    sweep = "the sweep of open job runs"
    down, denied, well = [f"{sweep}: down"], [f"{sweep}: denied"], [f"{sweep} is well again"]
    assert said == [[], down, [], denied, [], well, [], down]


def test_a_session_whose_trouble_never_passes_fails_with_it(world, monkeypatch):
    world.append(1)
    world.submit()

    def compacted(self, report):
        raise StoreError("S3 answered 503")

    monkeypatch.setattr(GroupRun, "_compacted", compacted)
    world.work_until_it_ends()
    assert world.run.state is JobRunState.FAILED
    assert "given up after" in world.session.error and "S3 answered 503" in world.run.error
    assert not world.run.error.endswith(": ")


def test_a_session_that_did_not_run_is_not_charged_with_the_end_of_a_process(world, monkeypatch):
    """The first launch: the catalog does not answer to a and c. Then the process is killed while a runs."""
    world.catalog.create_table("days", partition_keys=["day"], primary_keys=["id"])
    world.catalog.append("days", pa.table({"id": [1, 2, 3], "day": ["a", "b", "c"]}))
    world.submit(source_table_id="days")
    real, launch = GroupRun._compacted, world.launcher.launch
    lost = []

    def compacted(self, report):
        if not lost and report.session.id != "day=b":
            raise StoreError("S3 answered 503")
        if report.session.id == "day=a":
            raise Crash
        return real(self, report)

    def launch_and_lose(spec):
        try:
            launch(spec)
        except Crash:
            world.launcher.ended[spec.id] = GroupStatus(GroupState.ENDED, 137, "killed by SIGKILL")
        lost.append(spec.id)

    monkeypatch.setattr(GroupRun, "_compacted", compacted)
    monkeypatch.setattr(RetryPolicy, "wait_s", lambda policy, tries: 0.0)
    world.launcher.launch = launch_and_lose
    world.work_until_it_ends()
    a, b, c = sorted(world.state.sessions("run-1"), key=lambda session: session.id)
    assert len({session.plan.group for session in (a, b, c)}) == 1
    assert (a.state, a.failures, len(lost)) == (SessionState.FAILED, SETTINGS.tries, 5)
    assert a.error == "failed 3 times: its process ended before it did: killed by SIGKILL"
    assert (b.state, c.state, c.failures) == (SessionState.SUCCEEDED, SessionState.SUCCEEDED, 0)


def test_a_cluster_that_cannot_be_brought_up_is_waited_for_and_named(world):
    world.append(1)
    world.submit()
    world.launcher.fails = GroupStatus(GroupState.ENDED, 1, "StoreError: VcpuLimitExceeded", Cause.LAUNCH)
    reasons = world.work_until_it_ends()
    assert {cause for cause, _ in reasons} == {Cause.LAUNCH} and "VcpuLimitExceeded" in world.run.error


def test_a_launch_that_fails_does_not_name_the_error_of_an_earlier_try(world, monkeypatch):
    world.append(1)
    world.submit()

    def compacted(self, report):
        world.launcher.fails = GroupStatus(GroupState.ENDED, 1, "VcpuLimitExceeded", Cause.LAUNCH)
        raise ValueError("a task failed")

    monkeypatch.setattr(GroupRun, "_compacted", compacted)
    monkeypatch.setattr(RetryPolicy, "wait_s", lambda policy, tries: 0.0)
    world.work()
    assert world.session.error == "ValueError: a task failed" and world.session.failures == 1
    assert "VcpuLimitExceeded" in world.session.trouble.text
    assert "a task failed" not in world.session.trouble.text


@pytest.mark.parametrize("cause", Cause)
def test_a_runner_that_does_not_reach_the_state_costs_its_sessions_no_try(world, cause):
    world.append(1)
    world.submit()
    world.launcher.fails = GroupStatus(GroupState.ENDED, EXIT_PASSING[cause])
    reasons = world.work_until_it_ends()
    assert len(reasons) > SETTINGS.tries and {found for found, _ in reasons} == {cause}
    assert "could not go on" in world.run.error and "given up after" in world.run.error


def test_a_session_that_has_failed_is_charged_though_its_runner_lost_the_state_afterwards(world, monkeypatch):
    days(world, "1", "2")
    world.submit(source_table_id="days")
    begin = SessionReport.begin

    def compacted(self, report):
        raise ValueError("a task failed")

    def begin_or_fail(self):
        if self.session.id != "day=1":
            raise StoreError("S3 answered 503")
        begin(self)

    def launch(spec):
        with contextlib.suppress(StoreError):
            GroupRun(world.state, spec.job_run_id, spec.epoch, world.open_catalog).run(spec.group)
        world.launcher.ended[spec.id] = GroupStatus(GroupState.ENDED, EXIT_PASSING[Cause.UNREACHABLE])
        world.means.stopping.gently.set()

    monkeypatch.setattr(GroupRun, "_compacted", compacted)
    monkeypatch.setattr(SessionReport, "begin", begin_or_fail)
    world.launcher.launch = launch
    world.work()
    one, two = sorted(world.state.sessions("run-1"), key=lambda each: each.id)
    assert (one.error, one.failures, one.trouble) == ("ValueError: a task failed", 1, None)
    assert (two.error, two.failures, two.trouble) == (None, 0, None)


@pytest.mark.parametrize("error", [StoreError("503"), CredentialsError("expired"), CorruptionError("damaged")])
def test_a_session_whose_engine_session_cannot_be_recorded_publishes_nothing(world, monkeypatch, error):
    """Nobody could fence it off: cancel and a takeover fence the engine session of the record."""
    world.append(1)
    world.submit()
    held = claim(world.state, world.state.job_run("run-1"), "host.1.a", 60.0, 0.0)
    record_plans(held, world.means, world.means.plan(of_values(held.run.document), True))
    attempts_module.SessionAttempts(held, None, world.open_catalog).next("all")
    write = SessionReport.write

    def write_or_fail(self, **fields):
        if "engine_session_id" in fields:
            raise error
        write(self, **fields)

    monkeypatch.setattr(SessionReport, "write", write_or_fail)
    runner = GroupRun(world.state, "run-1", held.epoch, world.open_catalog)
    monkeypatch.setattr(group_module, "log_json", lambda **about: None)
    monkeypatch.setattr(group_module, "_run", lambda *asked: runner.run(world.session.plan.group))
    status = group_module.run_group("state", "run-1", world.session.plan.group, held.epoch)
    assert status == EXIT_PASSING.get(cause_of(error), EXIT_AGAIN) and cause_of_exit(status) is cause_of(error)
    assert world.versions == 1 and world.session.state is SessionState.RUNNING


@pytest.mark.parametrize("returns", [False, True], ids=["stays", "the larger one returns"])
def test_a_smaller_dispatcher_that_takes_a_job_run_over_gives_it_what_it_has(world, returns):
    """It was planned for 8 GiB and two CPUs, and its dispatcher died."""
    larger = world.means
    world.append(1)
    world.submit()
    world.launcher.fails = GroupStatus(GroupState.ENDED, 1, "out of instances", Cause.LAUNCH)
    world.work()
    planned = world.session.plan
    assert planned.memory_bytes > 1 << 30 and planned.work
    world.means = replace(world.means, admission=Admission(DispatcherLimits(2, memory_bytes=1 << 30), world.clock))
    world.clock.now_s = world.run.trouble.again_s
    world.work()
    assert world.session.plan.memory_bytes == 1 << 30
    world.means = larger if returns else world.means
    world.launcher.fails = None
    world.clock.now_s = world.run.trouble.again_s
    world.work_until_it_ends()
    assert world.run.state is JobRunState.SUCCEEDED and (world.session.plan == planned) is returns
    learned = world.means.rates.rates(f"{planned.executor}/{planned.node_type}").observations
    assert bool(learned) is returns


def test_launches_are_ended_side_by_side(world):
    """The end of a cluster takes minutes."""
    both = threading.Barrier(2, timeout=30)
    launcher = Mock(**{"terminate.side_effect": lambda group_id: both.wait()})
    log = SimpleNamespace(keep=lambda: True)
    work = GroupWork(None, replace(world.means, launcher=launcher), None, None, None, 0.0)
    work.let_go([HeldGroup(name, {}, launched=name, log=log) for name in "ab"] + [HeldGroup("c", {})])
    assert not both.broken


def test_an_attempt_that_cannot_be_fenced_off_is_not_followed_by_another(world):
    """The catalog falls silent after a session began, and its dispatcher dies: nothing is launched until it answers."""
    world.append(1)
    world.submit()
    world.launcher.fails = GroupStatus(GroupState.ENDED, 1, "killed")
    real = world.launcher.launch

    def launch(spec):
        stored = world.state.session("run-1", "all")
        begun = replace(stored.value, state=SessionState.RUNNING, engine_session_id="5c5c", started_s=world.clock())
        world.state.change_session(stored, begun)
        world.error = StoreError("no route to the catalog")
        real(spec)

    world.launcher.launch = launch
    world.work()
    assert world.session.attempt == "run-1/1/1" and world.session.trouble.cause == Cause.UNREACHABLE
    launched = len(world.launches)
    world.clock.now_s = world.run.trouble.again_s
    world.work()
    assert len(world.launches) == launched and world.session.attempt == "run-1/1/1"
    world.error, world.launcher.fails, world.launcher.launch = None, None, real
    world.clock.now_s = world.run.trouble.again_s
    world.work_until_it_ends()
    assert world.run.state is JobRunState.SUCCEEDED and world.versions == 2


def test_a_fence_that_fails_does_not_disturb_another_one_that_is_under_way(world):
    """Fences of one job run go side by side, and a failed one closes the catalog that all share."""
    world.append(1)
    world.submit()
    held = claim(world.state, world.state.job_run("run-1"), "host.1.a", 60.0, 0.0)
    for name in "ab":
        session = JobRunSession(name, "run-1", {}, attempt=f"run-1/1/{name}", engine_session_id="5c5c", epoch=1)
        assert world.state.add_session(session)
    catalog = deltacompact.DeltaStreamCatalog(InterceptedStore(world.lake, lambda *asks: asked(*asks)))
    attempts = attempts_module.SessionAttempts(held, of_values(held.run.document), lambda uri: catalog)
    waits = []

    def asked(kind, path, act):
        if not waits:
            waits.append("b")
            world.error = StoreError("S3 answered 503: slow down")
            waits.append(attempts.next("b").trouble.cause)
            world.error = None
        return world.asked(kind, path, act)

    assert attempts.next("a").attempt == "run-1/1/1" and waits == ["b", Cause.UNREACHABLE]


def test_a_runner_that_cannot_open_the_catalog_says_so(world):
    world.append(1)
    world.submit()
    stored = world.state.job_run("run-1")
    held = claim(world.state, stored, "host.1.a", 60.0, 0.0)
    record_plans(held, world.means, world.means.plan(of_values(held.run.document), True))
    attempts = attempts_module.SessionAttempts(held, None, world.open_catalog)
    attempts.next("all")
    world.error = StoreError("no route to the catalog")
    (group,) = {world.session.plan.group}
    GroupRun(world.state, "run-1", held.epoch, world.open_catalog).run(group)
    assert world.session.cause == Cause.UNREACHABLE and "no route" in world.session.error


def test_a_cluster_without_workers_is_waited_for_once_by_a_group(world, monkeypatch):
    days(world, "1", "2", "3")
    world.submit(source_table_id="days")
    waited = []

    def compact_job(*args, **named):
        waited.append(world.clock.now_s)
        raise ClusterError("the Ray cluster has no CPU for tasks, and none came within 600 s (ray_wait_s)")

    monkeypatch.setattr(group_module, "compact_job", compact_job)
    world.work()
    found = list(world.state.sessions("run-1"))
    assert len(waited) == len(world.launches) == len({each.plan.group for each in found}) == 1
    assert [each.trouble.cause for each in found] == [Cause.LAUNCH] * 3, "the time of all three begins now"


# --- partitions that are not known while they are planned ----------------------------------------------------------


def days(world, *names):
    world.catalog.create_table("days", ["day"], ["id"])
    for day in names:
        world.catalog.append("days", pa.table({"id": [1]}), {"day": day})


def indexed(world, buckets):
    """A table whose index has so many buckets, and that has nothing to do."""
    world.append(1, 2)
    local = deltacompact.Settings(executor="local")
    deltacompact.compact("t", delta_catalog_client=world.catalog, settings=local, hash_bucket_count=buckets)


def buckets_of(world):
    fresh = deltacompact.DeltaStreamCatalog(world.lake)
    return read_manifest(world.lake, fresh.state("t", fresh.partition("t", None)).index).hash_bucket_count


def test_a_delta_that_comes_after_an_idle_partition_was_planned_leaves_its_index_as_it_is(world):
    indexed(world, 8)
    world.submit()
    launch = world.launcher.launch

    def launch_late(spec):
        world.append(3)
        launch(spec)

    world.launcher.launch = launch_late
    world.work_until_it_ends()
    assert world.session.state is SessionState.SUCCEEDED and world.session.outcome.live == 3
    assert buckets_of(world) == 8 and world.session.plan.hash_bucket_count == 0
    assert not world.means.rates.rates("local/local").observations, "nobody knew its work"


def test_a_partition_that_cannot_be_read_now_is_planned_again(world):
    """Its log can be read, the manifest of its index cannot."""
    indexed(world, 8)
    world.append(3)
    world.submit()
    real = world.asked

    def asked(kind, path, act):
        if path.endswith(".manifest.json"):
            raise StoreError("S3 answered 503: slow down")
        return real(kind, path, act)

    world.catalog.store._intercept = asked
    world.work()
    assert world.run.state is JobRunState.ACCEPTED and world.run.trouble.cause == Cause.UNREACHABLE
    assert not list(world.state.sessions("run-1"))
    world.catalog.store._intercept = real
    world.clock.now_s = world.run.trouble.again_s
    world.work_until_it_ends()
    assert world.session.plan.hash_bucket_count == buckets_of(world) == 8


def test_a_partition_that_never_answers_holds_up_no_other(world):
    days(world, "1", "2")
    world.submit(source_table_id="days")

    def asked(kind, path, act):
        if "day=2" in path:
            raise StoreError("S3 answered 500: the key is disabled")
        return act()

    world.catalog.store._intercept = asked
    began_s = world.clock.now_s
    while not list(world.state.sessions("run-1")):
        world.work()
        assert world.run.trouble.cause == Cause.UNREACHABLE
        world.clock.now_s = world.run.trouble.again_s
    assert 60 <= world.clock.now_s - began_s < 300, "it is waited for, so that its plan is no guess"
    one, two = sorted(world.state.sessions("run-1"), key=lambda each: each.id)
    assert one.state is SessionState.SUCCEEDED
    assert two.plan.hash_bucket_count == 0 and "the key is disabled" in two.trouble.text
    world.work_until_it_ends()
    assert world.run.state is JobRunState.FAILED and world.run.failed_session_ids == (two.id,)


# --- records that cannot be read, and errors that nobody knows ------------------------------------------------------


@pytest.mark.parametrize("harm", ["gone", "damaged"])
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_job_run_whose_session_has_no_record_fails_and_says_so(world, harm, cancelled):
    """It was claimed again every five seconds, for ever, and the next job runs of its stream waited."""
    world.append(1)
    world.submit()
    world.launcher.fails = GroupStatus(GroupState.ENDED, 1, "VcpuLimitExceeded", Cause.LAUNCH)
    world.work()
    paths = [stat.path for stat in world.state.store.list("job-runs/run-1/sessions/")]
    world.state.store.delete(paths)
    if harm == "damaged":
        world.state.store.put(paths[0], b"{")
    if cancelled:
        assert cancel(world.state, "run-1").cancelling
    world.work()
    assert world.run.state is JobRunState.FAILED and "job-runs/run-1/sessions/all" in world.run.error
    assert world.state.open_job_runs() == []


def test_no_session_of_a_job_run_that_failed_by_a_damaged_record_seems_to_run(world):
    """`status` and the metrics said for ever that the others ran."""
    days(world, "1", "2", "3")
    world.submit(source_table_id="days")
    world.launcher.fails = GroupStatus(GroupState.ENDED, 1, "VcpuLimitExceeded", Cause.LAUNCH)
    world.work()
    one, two, three = sorted(world.state.sessions("run-1"), key=lambda session: session.id)
    running = world.state.change_session(world.state.session("run-1", two.id), replace(two, state=SessionState.RUNNING))
    assert running is not None
    (damaged,) = [stat.path for stat in world.state.store.list(f"job-runs/run-1/sessions/{one.id}/")]
    world.state.store.put(damaged, b"{")
    world.work()
    assert world.run.state is JobRunState.FAILED and one.id in world.run.error
    left = {session.id: session for session in world.state.sessions("run-1")}
    assert {name: session.state for name, session in left.items()} == dict.fromkeys(
        [two.id, three.id], SessionState.FAILED
    )
    assert left[three.id].error.startswith("its job run has failed: "), left[three.id].error
    ended = Ended.of(world.run)
    assert all(ended.has_failed(session.id) for session in (one, two, three)), "no watcher takes it for a success"


@pytest.mark.parametrize("partitions", [3, 12])
def test_a_job_run_that_fails_parses_its_document_once_for_all_sessions(world, monkeypatch, partitions):
    """A document of 10,000 partitions takes 84 ms to parse, and was parsed for each session."""
    days(world, *map(str, range(partitions)))
    world.submit(source_table_id="days")
    world.launcher.fails = GroupStatus(GroupState.ENDED, 1, "VcpuLimitExceeded", Cause.LAUNCH)
    world.work()
    parsed = Mock(side_effect=of_accepted)
    monkeypatch.setattr(job_run_work, "of_accepted", parsed)
    monkeypatch.setattr(JobRunWork, "_work", Mock(side_effect=CorruptionError("a record is damaged")))
    world.work()
    assert {session.state for session in world.state.sessions("run-1")} == {SessionState.FAILED}
    assert parsed.call_count == 1 and len(world.run.failed_session_ids) == partitions


def test_a_job_run_whose_document_is_what_has_failed_ends(world, monkeypatch):
    days(world, "1", "2")
    world.submit(source_table_id="days")
    world.launcher.fails = GroupStatus(GroupState.ENDED, 1, "VcpuLimitExceeded", Cause.LAUNCH)
    world.work()
    monkeypatch.setattr(job_run_work, "of_accepted", Mock(side_effect=ValueError("?")))
    for _ in range(SETTINGS.tries):
        world.work()
    assert (world.run.state, world.run.error) == (JobRunState.FAILED, "failed 3 times: ValueError: ?")
    assert len(world.run.failed_session_ids) == 2 and world.state.open_job_runs() == []


@pytest.mark.parametrize("again", ["retried", "submitted"])
def test_a_job_run_that_fails_in_its_next_life_leaves_sessions_of_the_earlier_one_alone(world, monkeypatch, again):
    """It ended as cancelled, as its earlier life had; or sessions of one document were given up for another one."""
    days(world, "1", "2", "3")
    world.submit(source_table_id="days")
    world.launcher.fails = GroupStatus(GroupState.ENDED, 1, "VcpuLimitExceeded", Cause.LAUNCH)
    world.work()
    cancel(world.state, "run-1")
    world.work()
    assert world.run.state is JobRunState.CANCELLED
    stored = world.state.session("run-1", next(world.state.sessions("run-1")).id)
    assert world.state.change_session(stored, replace(stored.value, state=SessionState.RUNNING))  # one was left so
    before = list(world.state.sessions("run-1"))
    assert {session.state for session in before} == {SessionState.CANCELLED, SessionState.RUNNING}
    if again == "retried":
        retry(world.state, "run-1")
    else:
        world.clock.now_s += 10
        world.submit(source_table_id="t")
    assert (world.run.state, world.run.life) == (JobRunState.ACCEPTED, 1)
    monkeypatch.setattr(JobRunWork, "_plans", Mock(side_effect=ValueError("?")))
    for _ in range(SETTINGS.tries):
        world.work()
    assert (world.run.state, world.run.error) == (JobRunState.FAILED, "failed 3 times: ValueError: ?")
    assert list(world.state.sessions("run-1")) == before
    assert set(world.run.failed_session_ids) == ({session.id for session in before} if again == "retried" else set())


def test_a_job_run_that_always_meets_an_unknown_error_fails_with_it(world, monkeypatch):
    world.append(1)
    world.submit()
    monkeypatch.setattr(JobRunWork, "_round", Mock(side_effect=ValueError("?")))
    for failures in (1, 2):
        world.work()
        assert (world.run.state, world.run.failures) == (JobRunState.RUNNING, failures)
    world.work()
    assert (world.run.state, world.run.error) == (JobRunState.FAILED, "failed 3 times: ValueError: ?")
    assert world.session.state is SessionState.FAILED
    assert world.state.open_job_runs() == []
    assert retry(world.state, "run-1").failures == 0


@pytest.mark.parametrize(("error", "cause"), PASSING)
def test_what_passes_is_no_failure_of_a_job_run(world, monkeypatch, error, cause):
    world.append(1)
    world.submit()
    monkeypatch.setattr(JobRunWork, "_round", Mock(side_effect=error))
    for _ in range(SETTINGS.tries + 1):
        world.work()
    assert (world.run.state, world.run.failures) == (JobRunState.RUNNING, 0)


# --- retry and cancel ----------------------------------------------------------------------------------------------


def test_retry_runs_what_failed_and_keeps_what_was(world):
    world.append(1)
    world.submit()
    world.error = InputError("the schema does not fit")
    world.work_until_it_ends()
    first = world.run
    assert first.state is JobRunState.FAILED
    with pytest.raises(ConflictError):
        retry(world.state, "run-1"), retry(world.state, "run-1")
    assert [mark.job_run_id for mark in world.state.open_job_runs()] == ["run-1"]
    world.error = None
    world.work_until_it_ends()
    assert world.run.state is JobRunState.SUCCEEDED and world.versions == 2
    assert [(end.state, end.error) for end in world.run.earlier] == [(JobRunState.FAILED, first.error)]
    names = {event.name for event in [*events_of_job_run(first), *events_of_job_run(world.run)]}
    assert {"job_run.failed~~0", "job_run.succeeded~~1", "job_run.accepted~~1"} <= names
    assert world.run.lease.epoch > first.lease.epoch


def test_an_attempt_of_an_earlier_life_is_fenced_off_though_the_plans_are_recorded_twice(world):
    """The dispatcher of the second life dies between its plans and the record that says that the job run runs."""
    world.append(1)
    world.submit()
    world.launcher.fails = GroupStatus(GroupState.ENDED, 1, "killed")
    world.work_until_it_ends()
    stored = world.state.session("run-1", "all")
    assert world.state.change_session(stored, replace(stored.value, engine_session_id="5c5c"))
    attempt = stored.value.attempt
    retry(world.state, "run-1")

    def dies(kind, path, act):
        if planned and kind != "get" and "/run" in path.removeprefix("job-runs/run-1"):
            raise Crash
        return act()

    planned = []
    state = StateStore(InterceptedStore(world.state.store, dies))
    held = claim(state, state.job_run("run-1"), "host.2.b", 60.0, 0.0)
    planned += world.means.plan(of_values(held.run.document), True)
    with pytest.raises(Crash):
        record_plans(held, world.means, planned)
    assert (world.session.life, world.session.attempt) == (1, attempt)
    held = claim(world.state, world.state.job_run("run-1"), "host.3.c", 60.0, 1e12)
    (again,) = record_plans(held, world.means, planned)
    assert (again.attempt, again.engine_session_id) == (attempt, "5c5c") and world.session == again


def test_a_job_run_that_was_run_again_has_another_turn(world):
    """It ended and was reopened between two looks of a dispatcher, which had seen it as the first."""
    for name, accepted_s in (("run-1", 1.0), ("run-2", 2.0)):
        assert world.state.accept(JobRun(name, DOCUMENT, JobRunState.ACCEPTED, accepted_s))
    open_ = OpenJobRuns("host.1.a", world.state, world.means)
    second = next(mark for mark in open_.unheld(()) if mark.job_run_id == "run-2")
    assert open_.claimed(second, 0.0) is None and open_.behind == {"run-2": "run-1"}
    cancel(world.state, "run-1")
    retry(world.state, "run-1")
    list(open_.unheld(()))
    assert open_.claimed(second, 0.0) is not None


@pytest.mark.parametrize("lost", ["damaged", "gone"])
def test_nobody_waits_for_a_job_run_whose_record_was_lost_while_it_waited(world, lost):
    """run-3 waited behind run-2 for ever: its turn stayed known, although nobody could read it any more."""
    for number in (1, 2, 3):
        assert world.state.accept(JobRun(f"run-{number}", DOCUMENT, JobRunState.ACCEPTED, float(number)))
    open_ = OpenJobRuns("host.1.a", world.state, world.means)

    def sweep(held):
        found = [run for mark in open_.unheld(held) if (run := open_.claimed(mark, 0.0)) is not None]
        return {run.run.id: run for run in found}

    held = sweep(())
    assert held.keys() == {"run-1"} and open_.behind.keys() == {"run-2", "run-3"}
    (record,) = [stat.path for stat in world.state.store.list("job-runs/run-2/run")]
    if lost == "damaged":
        world.state.store.put(record, b"{")
    else:
        world.state.store.delete([record])
    held["run-1"].end(JobRunState.SUCCEEDED, finished_s=4.0)
    assert sweep(()).keys() == {"run-3"} and open_.behind == {}


def test_cancel_before_anybody_works_on_it(world):
    world.append(1)
    world.submit()
    assert cancel(world.state, "run-1").state is JobRunState.CANCELLED
    assert world.state.open_job_runs() == [] and world.versions == 1
    retry(world.state, "run-1")
    world.work_until_it_ends()
    assert world.run.state is JobRunState.SUCCEEDED and world.versions == 2


def test_cancel_while_it_waits_for_a_catalog_needs_no_catalog(world):
    world.append(1)
    world.submit()
    world.error = StoreError("down")
    world.work()
    assert cancel(world.state, "run-1").state is JobRunState.CANCELLED


def test_cancel_while_a_session_runs_publishes_nothing(world):
    """The holder sees it with its next renewal; the attempt that was launched is fenced off."""
    world.append(1)
    world.submit()
    held_runs = []

    def launch(spec):
        cancel(world.state, "run-1")
        held_runs[0].renew()

    world.launcher.launch = launch
    world.launcher.status = lambda group_id: GroupStatus(GroupState.RUNNING)
    held = claim(world.state, world.state.job_run("run-1"), "host.1.a", 60.0, 0.0)
    held_runs.append(held)
    JobRunWork(held, world.means).run()
    assert world.run.state is JobRunState.CANCELLED and world.session.state is SessionState.CANCELLED
    assert world.versions == 1 and world.state.open_job_runs() == []
    assert {event.type for event in events_of_job_run(world.run)} >= {EventType.JOB_RUN_CANCELLED}
    assert EventType.SESSION_SUCCEEDED not in {event.type for event in events_of_session(world.session, None)}


def test_a_cancelled_job_run_whose_dispatcher_died_is_ended_by_the_next_one(world):
    world.append(1)
    world.submit()
    stored = world.state.job_run("run-1")
    claim(world.state, stored, "host.1.dead", 60.0, 0.0)
    assert cancel(world.state, "run-1").cancelling
    stored = world.state.job_run("run-1")
    held = claim(world.state, stored, "host.2.b", 60.0, stored.modified_s + 1e6)
    JobRunWork(held, world.means).run()
    assert world.run.state is JobRunState.CANCELLED


def test_an_id_is_free_again_after_its_job_run_failed(world):
    """A document that was sent before the end is a duplicate; one sent afterwards runs, the same or another one."""
    world.append(1)
    world.submit()
    world.queue.send(json.dumps(DOCUMENT))  # a duplicate, received late
    world.error = InputError("bad")
    world.clock.now_s += 10
    world.work_until_it_ends()
    world.take()
    assert world.run.state is JobRunState.FAILED and not list(world.queue.dead_letters())
    world.error = None
    world.clock.now_s += 10
    world.submit(desired_sla=900)
    assert world.run.state is JobRunState.ACCEPTED and world.run.desired_sla_s == 900 and world.run.life == 1
    world.submit(desired_sla=900)
    assert world.run.life == 1, "deduplicated while it is open"
    world.submit(desired_sla=7)
    assert [letter.reason for letter in world.queue.dead_letters()] == ["job_run_id_taken"]
    world.work_until_it_ends()
    assert world.run.state is JobRunState.SUCCEEDED and world.versions == 2
    world.clock.now_s += 10
    world.submit(desired_sla=900)
    assert world.run.state is JobRunState.SUCCEEDED, "what has succeeded runs once"


def test_the_same_message_never_runs_a_failed_job_run_again(world):
    world.append(1)
    world.queue.send(json.dumps({key: value for key, value in DOCUMENT.items() if key != "job_run_id"}))
    (message,) = world.queue.receive(1, 0)
    intake = Intake(world.queue, world.state, AllowList(()), world.clock)
    name = intake.take(message)
    run = cancel(world.state, name)
    assert run.state is JobRunState.CANCELLED
    again = Message(message.id, message.body, "0" * 32, 2, world.clock.now_s + 1e9)
    assert intake.take(again) is None and world.state.job_run(name).value.state is JobRunState.CANCELLED


def test_records_of_the_version_before_are_read():
    state = StateStore(MemoryStore())
    old = {"id": "run-1", "document": DOCUMENT, "state": "failed", "accepted_s": 1.0, "error": "x", "finished_s": 2.0}
    SwappedRecords(state.store).create("job-runs/run-1/run", old)
    session = {"id": "all", "job_run_id": "run-1", "partition": {}, "state": "failed", "attempts": 1}
    SwappedRecords(state.store).create("job-runs/run-1/sessions/all", session)
    run = state.job_run("run-1").value
    assert (run.trouble, run.cancelling, run.life) == (None, False, 0)
    assert state.session("run-1", "all").value.trouble is None
    assert retry(state, "run-1").life == 1


def test_the_groups_of_a_job_run_are_decided_together(world, monkeypatch):
    decided, admit = [], admission_module.admit
    monkeypatch.setattr(
        admission_module, "admit", lambda waiting, *rest: decided.append(len(waiting)) or admit(waiting, *rest)
    )
    world.submit()
    work = JobRunWork(claim(world.state, world.state.job_run("run-1"), "a", 60.0, 0.0), world.means)
    work._groups = [HeldGroup(name, {"s": session()}) for name in ("g1", "g2", "g3", "g4")]
    work._wait_for_places()
    second = Estimate(1.0, 1.0, 1.0)
    answers = [world.means.admission.enter(group.waiting, second) for group in work._groups]
    assert decided == [4] and answers.count(None) == 2


def test_a_round_over_groups_that_wait_asks_nothing_of_each(world):
    """Thousands of waiting groups kept more than half a CPU busy: each one's seconds were added up ten times a second,
    and each one asked for a place."""
    world.submit()
    work = JobRunWork(claim(world.state, world.state.job_run("run-1"), "a", 60.0, 0.0), world.means)
    work._group_work = work._work_on(of_accepted(DOCUMENT))
    waits = Delay(Wait.SESSIONS, "as many sessions run as may")
    for other in ("a", "b"):
        taken = WaitingGroup(Takes(f"other/{other}"), 1, 1, 0.0)
        assert world.means.admission.enter(taken, Estimate(1.0, 1.0, 1.0)) is None
    sessions = [replace(session(f"2024-{day}"), state=SessionState.PLANNED, delay=waits) for day in range(500)]
    work._groups = [HeldGroup(f"g{number}", {one.id: one}) for number, one in enumerate(sessions)]
    work._round(work._group_work)
    for group in work._groups:
        group.waits_since_s -= 60.0
    work._round(work._group_work)
    assert calls(lambda: work._round(work._group_work)) < 10 * len(work._groups)
    assert calls(work._all_wait_for) < 2 * len(work._groups)
    assert not world.launches and world.means.admission.waiting == len(work._groups)


def test_a_job_run_that_is_reopened_while_another_dispatcher_closes_it_keeps_its_mark():
    state = StateStore(MemoryStore())
    state.accept(JobRun("run-1", DOCUMENT, JobRunState.ACCEPTED, 1.0))
    ended = cancel(state, "run-1")
    at = threading.Event()

    def reopened_meanwhile(kind, path, act):
        done = act()
        if kind == "delete" and not at.is_set():
            at.set()
            retry(state, "run-1")
            state.store.delete(["open/run-1"])  # the slower delete
        return done

    StateStore(InterceptedStore(state.store, reopened_meanwhile)).close(ended)
    assert [mark.job_run_id for mark in state.open_job_runs()] == ["run-1"]


@pytest.mark.parametrize("late", ["the DELETE is delivered twice", "the closer dies after its DELETE"])
def test_a_delete_that_comes_late_does_not_hide_the_job_run_that_is_run_again(late):
    """`retry` came between the end and the DELETE of who had worked on it; nobody looks after that."""
    memory = MemoryStore()
    state = StateStore(memory)
    state.accept(JobRun("run-1", DOCUMENT, JobRunState.ACCEPTED, 1.0))
    ended = cancel(state, "run-1")
    sent = []

    def intercept(kind, path, act):
        if kind == "delete":
            if late == "the DELETE is delivered twice":
                sent.append(act)
                return act()
            retry(state, "run-1")
            act()
            raise Crash
        return act()

    with contextlib.suppress(Crash):
        StateStore(InterceptedStore(memory, intercept)).close(ended)
    if sent:
        retry(state, "run-1")
        for act in sent:
            act()
    assert [(mark.job_run_id, mark.life) for mark in state.open_job_runs()] == [("run-1", 1)]
    again = cancel(state, "run-1")
    assert again.life == 1 and not list(memory.list("open/"))


def test_a_mark_of_a_life_that_never_began_goes_after_an_hour(tmp_path, monkeypatch):
    """Whoever was to run it again died between its mark and its record."""
    memory = MemoryStore(clock=lambda: now_s[0])
    now_s = [1_000_000.0]
    state = StateStore(memory)
    state.accept(JobRun("run-1", DOCUMENT, JobRunState.ACCEPTED, 1.0))
    cancel(state, "run-1")

    def dies(kind, path, act):
        if kind != "get" and "run/" in path:
            raise Crash
        return act()

    with contextlib.suppress(Crash):
        retry(StateStore(InterceptedStore(memory, dies)), "run-1")
    dispatcher = dispatcher_of(str(tmp_path / "queue"), memory, logs=str(tmp_path / "logs"))
    for later_s, marks in ((0, 1), (3000, 1), (3700, 0)):
        now_s[0] = 1_000_000.0 + later_s
        dispatcher._say()
        for mark in state.open_job_runs():
            dispatcher._claim(mark)
        assert len(list(memory.list("open/"))) == marks and not dispatcher._holding
    assert state.job_run("run-1").value.state is JobRunState.CANCELLED
    assert retry(state, "run-1").life == 1 and len(state.open_job_runs()) == 1
    dispatcher._launcher.close()


def dispatcher_with(world, *leases):
    """A dispatcher whose leases, of run-1 and so on, must be renewed."""
    intake = Intake(world.queue, world.state, AllowList(("/lake",)))
    dispatcher = Dispatcher(world.queue, intake, world.state, world.means)
    for number, held in enumerate(leases, 1):
        dispatcher._holding[f"run-{number}"] = dispatcher_module._Holding(
            held, threading.current_thread(), -1e9, SaidOnce("the renewal")
        )
    return dispatcher


def test_a_lease_whose_renewal_hangs_costs_no_other_job_run_its_lease(world):
    hung, renewed, begun = threading.Event(), threading.Event(), []
    slow = SimpleNamespace(lost=False, renew=lambda: begun.append("slow") or hung.wait(20))
    quick = SimpleNamespace(lost=False, renew=lambda: begun.append("quick") or renewed.set())
    dispatcher = dispatcher_with(world, slow, quick)
    renewing = threading.Thread(target=dispatcher._renew_for_ever)
    renewing.start()
    try:
        assert renewed.wait(5)
        assert begun == ["slow", "quick"]
    finally:
        dispatcher._gone.set()
        hung.set()
        renewing.join()


def test_a_renewal_that_fails_is_tried_again_after_a_pause(world):
    """Ten requests a second for each lease, from a store that throttles."""
    dispatcher = dispatcher_with(world, held := Mock(lost=False, **{"renew.side_effect": StoreError("slow down")}))
    for _ in range(10):
        dispatcher._renew_due()
        dispatcher._holding["run-1"].renewal.join()
    assert held.renew.call_count == 1
    dispatcher._holding["run-1"].tried_s -= 1.0
    dispatcher._renew_due()
    dispatcher._holding["run-1"].renewal.join()
    assert held.renew.call_count == 2


def test_leases_are_renewed_where_no_thread_is_left(world, monkeypatch):
    dispatcher = dispatcher_with(world, held := Mock(lost=False))
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
    dispatcher._renew_due()
    dispatcher._renew_due()
    assert held.renew.call_count == 1


# --- the policy ----------------------------------------------------------------------------------------------------


def test_a_trouble_ends_whatever_comes():
    policy = RetryPolicy(600.0, 3)
    trouble, now_s, tries = None, 0.0, 0
    while (following := policy.next(trouble, Cause.UNREACHABLE, "x", now_s)) is not None:
        trouble, tries = following, tries + 1
        now_s = trouble.again_s + 1
    assert 600 <= now_s < 1000 and tries < 20
    late = Trouble(Cause.UNREACHABLE, "x", 0.0, 5, 100.0)
    assert policy.next(late, Cause.UNREACHABLE, "x", 5000.0).number == 2, "it had passed meanwhile"
    assert policy.next(replace(late, number=3), Cause.UNREACHABLE, "x", 5000.0) is None
    assert policy.next(replace(late, rounds=1), Cause.UNREACHABLE, "x", 5000.0, 2).number == 1, "a round was completed"


@pytest.mark.parametrize("pause_s", [1.0, 700.0])
def test_a_round_that_is_resumed_again_and_again_is_no_progress(pause_s):
    """Every other try fails before it has resumed the only round: that try has completed none."""
    policy = RetryPolicy(600.0, 3)
    trouble, now_s, tries = None, 0.0, 0
    while tries < 100 and (trouble := policy.next(trouble, Cause.UNREACHABLE, "x", now_s, tries % 2)) is not None:
        now_s, tries = trouble.again_s + pause_s, tries + 1
    assert trouble is None and tries < 20


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        *PASSING,
        (ConnectionResetError("reset"), Cause.UNREACHABLE),
        (InputError("no such table"), None),
        (ConflictError("others were faster"), None),
        (ValueError("?"), None),
    ],
)
def test_causes_that_pass(error, cause):
    assert cause_of(error) is cause


@pytest.mark.parametrize("error", [StoreError("503"), CredentialsError("expired")])
def test_what_is_only_told_waits_for_nobody(world, error):
    """A group was ended because one look at its progress had found expired credentials."""
    session = JobRunSession("all", "run-1", {}, state=SessionState.RUNNING)
    state = Mock(**{"session.side_effect": error, "change_session.side_effect": error})
    group = HeldGroup("g", {"all": session}, launched="g")
    looks = Looks(SimpleNamespace(state=state, run=JobRun("run-1", {}, JobRunState.RUNNING, 0.0)), world.means, None)
    looks.see, looks._again_s = Mock(side_effect=error), 0.0
    looks.look([group])
    assert looks.see.called
    delays = Delays(state)
    delays.begin()
    delays.tell(group, Postponed("g", Wait.SESSIONS, "2 of 2 run"))
    assert group.sessions["all"].delay.text == "2 of 2 run"
    report = SessionReport(state, Mock(value=session), lambda: None, world.clock)
    report(StageStarted("t", {}, "hash_bucket", 12, 100))
    assert state.change_session.called


@pytest.mark.parametrize("error", [StoreError("503"), CredentialsError("expired")])
def test_a_store_is_asked_again_when_what_it_lacked_has_passed(monkeypatch, error):
    monkeypatch.setattr(patience, "time", Mock())
    ask = Mock(side_effect=[error, error, "answer"])
    assert patiently(ask, 3, 10.0) == "answer"
    ask = Mock(side_effect=InputError("no such table"))
    with pytest.raises(InputError):
        patiently(ask, 3, 10.0)
    assert ask.call_count == 1
    ask = Mock(side_effect=[error, error, error])
    with pytest.raises(type(error)):
        patiently(ask, 3, 10.0)
    assert patience.time.sleep.call_count == 4, "nobody waits after the last try"


def test_the_causes_of_an_error_that_was_raised_from_itself_are_looked_at_once():
    error = StoreError("slow down")
    error.__cause__ = error
    assert cause_of(error) is Cause.UNREACHABLE


# --- a table that is published ------------------------------------------------------------------------------------


class Shown:
    """Stands for the published table: `asked` has the partitions of each try, which ends with the next of `errors`."""

    def __init__(self, world, monkeypatch, *errors):
        self.asked, self.errors = [], list(errors)
        world.catalog.declare_publication("t", "delta:///out")
        monkeypatch.setattr(publication, "show_compacted", self.show)

    def show(self, catalog, table_id, target, partitions):
        self.asked.append([str(partition) for partition in partitions])
        error = self.errors.pop(0) if self.errors else None
        return PublicationResult(table_id, target, error=error)


def test_all_partitions_are_shown_in_one_commit_after_the_last_session(monkeypatch, tmp_path):
    lake, out = LocalStore(tmp_path / "lake"), tmp_path / "out"
    world = World(monkeypatch, tmp_path, lake)
    world.catalog.create_table("days", partition_keys=["day"], primary_keys=["id"])
    world.catalog.append("days", pa.table({"id": [1, 2, 3], "day": ["a", "b", "c"]}))
    deltacompact.open_catalog(lake.uri).publish("days", f"delta://{out}")
    before = len(list(out.glob("_delta_log/*.json")))
    world.submit(source_table_id="days")
    world.work_until_it_ends()
    added = sorted(out.glob("_delta_log/*.json"))[before:]
    assert world.run.state is JobRunState.SUCCEEDED and len(added) == 1
    assert added[0].read_text().count('"add"') == 3


@pytest.mark.parametrize(("error", "cause"), [*PASSING, (ConflictError("faster than it can be read"), "unreachable")])
def test_a_published_table_that_does_not_answer_is_tried_again_without_another_compaction(
    world, monkeypatch, error, cause
):
    shown = Shown(world, monkeypatch, error, error)
    world.append(1)
    world.submit()
    reasons = world.work_until_it_ends()
    assert [found for found, _ in reasons] == [cause] * 2 and "delta:///out does not show" in reasons[0][1]
    assert world.run.state is JobRunState.SUCCEEDED and world.run.error is None and not world.run.unshown
    assert len(world.launches) == 1 and len(shown.asked) == 3


@pytest.mark.parametrize("error", [StoreError("503"), InputError("it has files of others")])
def test_a_job_run_fails_with_what_is_not_shown_and_its_sessions_do_not(world, monkeypatch, error):
    shown = Shown(world, monkeypatch, *[error] * 100)
    world.append(1)
    world.submit()
    world.work_until_it_ends()
    run = world.run
    assert run.state is JobRunState.FAILED and str(error) in run.error and "delta:///out does not show" in run.error
    assert run.unshown and world.session.state is SessionState.SUCCEEDED and run.failed_session_ids == ()
    assert run.error.endswith("publish or job-runs retry shows it")
    assert (len(shown.asked) == 1) is isinstance(error, InputError)
    (failed,) = [event for event in events_of_job_run(run) if event.type is EventType.JOB_RUN_FAILED]
    assert failed.data["unshown"] and not Ended.of(run).has_failed("all"), "the watcher goes on"
    shown.errors.clear()
    retry(world.state, "run-1")
    world.work_until_it_ends()
    assert world.run.state is JobRunState.SUCCEEDED and not world.run.unshown and len(world.launches) == 1


def test_what_was_compacted_before_a_job_run_is_cancelled_is_shown(world, monkeypatch):
    world.catalog.create_table("days", partition_keys=["day"], primary_keys=["id"])
    world.catalog.append("days", pa.table({"id": [1, 2], "day": ["a", "b"]}))
    shown = Shown(world, monkeypatch, StoreError("503"))
    world.catalog.declare_publication("days", "delta:///out")
    world.submit(source_table_id="days")
    real = GroupRun._compacted

    def compacted(self, report):
        if report.session.id == "day=b":
            cancel(world.state, "run-1")
            raise Crash
        return real(self, report)

    monkeypatch.setattr(GroupRun, "_compacted", compacted)
    launch = world.launcher.launch

    def launch_and_die(spec):
        with contextlib.suppress(Crash):
            launch(spec)
        world.launcher.ended[spec.id] = GroupStatus(GroupState.ENDED, 137, "killed")
        held.renew()  # that is when the holder sees that it is cancelled

    world.launcher.launch = launch_and_die
    held = claim(world.state, world.state.job_run("run-1"), "host.1.a", 60.0, 0.0)
    JobRunWork(held, world.means).run()
    assert world.run.state is JobRunState.CANCELLED and shown.asked == [["day=a"]]
    assert world.run.unshown and "delta:///out does not show" in world.run.error


def test_a_dispatcher_that_is_ended_while_it_shows_leaves_that_to_the_next_holder(world, monkeypatch):
    shown, hung = Shown(world, monkeypatch), threading.Event()
    world.append(1)
    world.submit()

    def hang(*asked):
        world.means.stopping.gently.set()
        world.means.stopping.now.set()
        hung.wait(60)

    monkeypatch.setattr(publication, "show_compacted", hang)
    world.work()
    assert world.run.state is JobRunState.RUNNING and world.session.state is SessionState.SUCCEEDED
    hung.set()
    monkeypatch.setattr(publication, "show_compacted", shown.show)
    world.means.stopping.gently.clear()
    world.means.stopping.now.clear()
    world.work()
    assert world.run.state is JobRunState.SUCCEEDED and shown.asked and len(world.launches) == 1


@pytest.fixture
def hung(monkeypatch):
    """The published table does not answer until this is set."""
    hung = threading.Event()
    monkeypatch.setattr(publication, "show_compacted", lambda *asked: hung.wait(20))
    yield hung
    hung.set()


def test_a_table_that_is_not_published_waits_for_no_other(world):
    world.means = replace(world.means, showing=ShowingPlaces(number=0))
    world.append(1)
    world.submit()
    world.work()
    assert world.run.state is JobRunState.SUCCEEDED


def test_a_published_table_that_hangs_is_one_that_does_not_answer_and_others_have_its_place(world, monkeypatch, hung):
    world.means = replace(world.means, showing=ShowingPlaces(1, within_s=0.05))
    world.catalog.declare_publication("t", "delta:///out")
    world.append(1)
    world.submit()
    world.work()
    assert world.run.state is JobRunState.FAILED and world.run.unshown
    assert "given up after 0 s (1 try): delta:///out does not show" in world.run.error
    shown = Shown(world, monkeypatch)
    retry(world.state, "run-1")
    world.work()
    assert world.run.state is JobRunState.SUCCEEDED and shown.asked and not hung.is_set()


@pytest.mark.parametrize("tries", [0, 3])
def test_a_lake_that_does_not_say_whether_a_table_is_published_is_waited_for_as_by_a_session(world, monkeypatch, tries):
    """Tables that are not published had failed after 15 minutes, too, and those that are had no second try after it."""
    shown = Shown(world, monkeypatch, *[StoreError("503")] * (tries - 1)) if tries else None
    until_s, opens = world.clock.now_s + 2000.0, showing.open_catalog

    def opened(uri):
        if world.clock.now_s < until_s:
            raise StoreError("503")
        return opens(uri)

    monkeypatch.setattr(showing, "open_catalog", opened)
    world.means = replace(world.means, settings=replace(SETTINGS, give_up_after_s=7200.0))
    world.append(1)
    world.submit()
    world.work_until_it_ends()
    assert world.clock.now_s > until_s and (shown is None or len(shown.asked) == tries)
    assert world.run.state is JobRunState.SUCCEEDED and not world.run.unshown


def test_a_lake_that_answers_now_and_then_does_not_begin_the_time_of_the_published_table_anew(world, monkeypatch):
    shown, opens, asked = Shown(world, monkeypatch, *[StoreError("503")] * 1000), showing.open_catalog, []

    def opened(uri):
        asked.append(uri)
        if len(asked) % 2:
            raise StoreError("503")
        return opens(uri)

    monkeypatch.setattr(showing, "open_catalog", opened)
    world.append(1)
    world.submit()
    world.work_until_it_ends()
    assert world.run.state is JobRunState.FAILED and 1 < len(shown.asked) < 30


def test_who_gives_up_at_once_waits_for_a_published_table_that_is_slow(world, monkeypatch):
    shown, waited_for = Shown(world, monkeypatch), threading.Event()
    real, join = shown.show, Showing.join

    def joined(showing, within_s):
        waited_for.set()
        join(showing, within_s)

    monkeypatch.setattr(Showing, "join", joined)
    monkeypatch.setattr(publication, "show_compacted", lambda *asked: waited_for.wait(10) and real(*asked))
    world.means = replace(world.means, settings=replace(SETTINGS, give_up_after_s=0.0))
    world.append(1)
    world.submit()
    world.work()
    assert world.run.state is JobRunState.SUCCEEDED and shown.asked


def test_who_gives_up_at_once_tries_to_show_once(world, monkeypatch):
    shown = Shown(world, monkeypatch, StoreError("503"))
    world.means = replace(world.means, settings=replace(SETTINGS, give_up_after_s=0.0))
    world.append(1)
    world.submit()
    world.work()
    assert world.run.state is JobRunState.FAILED and len(shown.asked) == 1
    assert "given up after 0 s (1 try)" in world.run.error


def test_a_place_is_waited_for_until_nobody_wants_it_any_more(world):
    places = ShowingPlaces(1)
    first, second = (Mock(lasted_s=0.0, **{"is_alive.return_value": True}) for _ in range(2))
    assert places.take(first) and not places.take(second)
    waiting = Showing(of_values(DOCUMENT), [], places)
    assert waiting.lasted_s > 0.0
    waiting.leave()
    assert not waiting._has_a_place() and waiting.lasted_s == 0.0
    first.is_alive.return_value = False
    assert places.take(second)
    second.lasted_s = places.within_s + 1
    assert places.take(first)


def test_a_job_run_that_is_cancelled_while_it_is_shown_ends_at_once(world, monkeypatch, hung):
    world.catalog.declare_publication("t", "delta:///out")
    world.append(1)
    world.submit()
    held = claim(world.state, world.state.job_run("run-1"), "host.1.a", 60.0, 0.0)

    def show(*asked):
        cancel(world.state, "run-1")
        held.renew()
        hung.wait(60)

    monkeypatch.setattr(publication, "show_compacted", show)
    JobRunWork(held, world.means).run()
    assert world.run.state is JobRunState.FAILED and world.run.unshown and not hung.is_set()
    assert "delta:///out does not show what was compacted: the job run was cancelled" in world.run.error


def test_tries_that_take_long_do_not_begin_the_time_anew(world, monkeypatch):
    shown = Shown(world, monkeypatch, *[ConflictError("faster than it can be read")] * 100)
    real = shown.show

    def show(*asked):
        world.clock.now_s += 2 * SETTINGS.give_up_after_s
        return real(*asked)

    monkeypatch.setattr(publication, "show_compacted", show)
    world.append(1)
    world.submit()
    world.work_until_it_ends()
    assert world.run.state is JobRunState.FAILED and len(shown.asked) == 2


def test_a_trouble_that_a_session_has_left_is_not_the_published_tables(world, monkeypatch):
    """Its runner died after the seal, the catalog did not answer for long, then the version was adopted."""
    shown = Shown(world, monkeypatch, StoreError("503"))
    world.append(1)
    world.submit()
    world.means.stopping.now.set()
    world.work()
    assert world.run.state is JobRunState.RUNNING and world.session.state is SessionState.SUCCEEDED
    world.means.stopping.now.clear()
    stored, now_s = world.state.job_run("run-1"), world.clock.now_s
    left = Trouble(Cause.UNREACHABLE, "503", now_s - 1200.0, 9, now_s - 1.0)
    world.state.change_job_run(stored, replace(stored.value, trouble=left))
    asked = len(shown.asked)
    shown.errors = [StoreError("503")]
    world.work_until_it_ends()
    assert world.run.state is JobRunState.SUCCEEDED and len(shown.asked) == asked + 2 and not world.run.unshown


# --- another table as destination ---------------------------------------------------------------------------------


def test_a_first_compaction_into_another_table_resumes_what_a_passing_error_left(world):
    """Its first version makes that table, so it was taken for one that was dropped, and the work was deleted."""
    world.append(1, 2)
    world.append(2, 3)
    world.submit(destination_compacted_table_id="flat", settings={**DOCUMENT["settings"], "rows_per_round": 2})
    real, failed = world.asked, []

    def asked(kind, path, act):
        if "round-00002" in path and kind == "put_if_absent" and not failed:
            failed.append(path)
            raise StoreError("S3 answered 503: slow down")
        return real(kind, path, act)

    world.catalog.store._intercept = asked
    world.work()
    assert failed and world.session.trouble.cause == Cause.UNREACHABLE
    world.work_until_it_ends()
    assert world.run.state is JobRunState.SUCCEEDED and world.session.outcome.live == 3
    assert world.session.outcome.rounds_resumed == 1


def test_a_table_without_deltas_has_nothing_to_do_for_another_table(world):
    delta = world.catalog.append("t", pa.table({"id": [1]}))
    world.submit(destination_compacted_table_id="flat")
    launch = world.launcher.launch

    def launch_late(spec):
        deltacompact.DeltaStreamCatalog(world.lake).table("t").retract(delta.position)
        launch(spec)

    world.launcher.launch = launch_late
    world.work()
    assert world.run.state is JobRunState.SUCCEEDED and world.session.state is SessionState.NOTHING_TO_DO


# --- a table that is dropped ---------------------------------------------------------------------------------------


def test_a_table_that_is_dropped_under_a_session_fails_it_and_leaves_no_folder(monkeypatch, tmp_path):
    """The folder is removed before each of the last operations of the session, the seal among them."""
    at, total = 0, 1
    while at <= total:
        world = World(monkeypatch, tmp_path / str(at))
        world.append(1, 2)
        world.append(2, 3)
        world.submit()
        done, real = [], world.asked

        def asked(kind, path, act, world=world, done=done, at=at, real=real):
            if world.launches and not world.launcher.ended and not kind.startswith("stat"):
                done.append((kind, path))
                if at and len(done) == at:
                    world.lake.delete([stat.path for stat in world.lake.list("")])
            return real(kind, path, act)

        world.catalog.store._intercept = asked
        world.work_until_it_ends()
        if at == 0:
            total = len(done)
            assert world.run.state is JobRunState.SUCCEEDED and total > 15
        else:
            assert world.run.state is JobRunState.FAILED, done[at - 1]
            assert "was dropped" in world.run.error or "does not exist" in world.run.error
            assert list(world.lake.list("")) == [], done[at - 1]
        at = at + 1 if at else max(1, total - 12)

"""What a dispatcher says before a session starts and while it runs: why it waits, what is expected, what never fits."""

from __future__ import annotations

import json
import statistics
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sessions_place import SLOW, place  # noqa: F401
from sessions_processes import until
from sessions_records import plan, session

from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.base.events import GroupWritten
from deltacompact.storage.memory import MemoryStore
from sessions.base.model import JobRunSession, JobRunState, Outcome, Progress, SessionState
from sessions.base.settings import DispatcherSettings
from sessions.cli import dispatch as command
from sessions.cli import run
from sessions.cli.dispatch import dispatcher_of, quiet_windows
from sessions.dispatch import looks
from sessions.dispatch.held_group import HeldGroup
from sessions.documents.instruction import of_values
from sessions.events.event import EventType
from sessions.events.outbox import Outbox
from sessions.events.recording import EventRecorder
from sessions.launchers.launcher import GroupState, GroupStatus
from sessions.launchers.local import LocalLauncher
from sessions.planning.admission import QuietWindow
from sessions.planning.learning import RateStore
from sessions.planning.planner import Planner
from sessions.planning.prices import offers_here
from sessions.planning.reasons import Wait
from sessions.planning.starts import STARTS_KEPT, Starts, StartStore
from sessions.records.state_store import StateStore
from sessions.records.swapping import SwappedRecords
from sessions.runner.reporting import SessionReport


@contextmanager
def dispatching_here(place, drain=False, **options):
    """A dispatcher in a thread of this process, with its sessions in processes of their own."""
    options.setdefault("observer", EventRecorder(place.state))
    settings = DispatcherSettings(lease_s=20.0, drain=drain)
    dispatcher = dispatcher_of(place.queue, place.state_uri, (place.lake,), settings, **options)
    working = threading.Thread(target=dispatcher.run)
    working.start()
    try:
        yield working
    finally:
        dispatcher.stop()
        dispatcher.stop()
        working.join()


def rates_of(place):
    return RateStore(SwappedRecords(place.state.store))


def starts_of(place):
    return StartStore(SwappedRecords(place.state.store))


def slow_past(place, table_id):
    """Rates of sessions that took 50 times as long as the shipped ones say: less than Ray takes to start here."""
    rates = rates_of(place)
    document = {"version": 1, "catalog": place.lake, "source_table_id": table_id}
    (plan,) = Planner(rates, starts_of(place), offers_here(2, 8 << 30), 2)(of_values(document))
    past = [JobRunSession(f"s{number}", "past", {}, SessionState.SUCCEEDED, plan=plan) for number in range(8)]
    took = Outcome(50 * plan.expected.seconds)
    rates.learn([JobRunSession(run.id, "past", {}, run.state, plan=plan, outcome=took) for run in past])


@pytest.mark.processes
def test_what_waits_says_why_and_an_sla_that_cannot_be_met_is_said_at_once(place, capsys):
    place.table("orders")
    slow_past(place, "orders")
    place.submit("orders", "run-1", desired_sla=1)
    with dispatching_here(place, quiet=("* * * * *, 5",)):
        delay = until(lambda: _session(place) and _session(place).delay, "the session says why it waits")
    assert delay.reason == Wait.QUIET and delay.until_s > 0
    waiting = place.run("run-1")
    assert waiting.state is JobRunState.RUNNING and waiting.expected_first.seconds > 1
    assert waiting.nearest_sla_s >= waiting.expected_first.promise_s > waiting.expected_first.seconds > 1
    assert run(["status", "--state", place.state_uri, "--job-run", "run-1"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "nearest" in told and "quiet" in told
    events = _told(place, "run-1")  # more than one on a busy machine: what waits ends later than was expected
    assert waiting.nearest_sla_s in {event["nearest_sla_s"] for event in events}
    assert {event["desired_sla_s"] for event in events} == {1}
    with dispatching_here(place, drain=True) as working:
        working.join(60)
        assert not working.is_alive()
    done = place.run("run-1")
    assert done.state is JobRunState.SUCCEEDED and done.expected_first == waiting.expected_first
    assert place.session("run-1").delay is None
    learned = rates_of(place).rates("local/local").observations
    assert learned[-1].session_id == "run-1/all" and len(learned) == 9


@pytest.mark.processes
def test_the_expected_sla_is_refined_while_a_session_runs(place):
    place.table("orders", rows=2000)
    place.submit("orders", "run-1", desired_sla=900, settings=SLOW)
    with dispatching_here(place, drain=True) as working:
        working.join(60)
        assert not working.is_alive()
    done, session = place.run("run-1"), place.session("run-1")
    assert done.state is JobRunState.SUCCEEDED and done.nearest_sla_s is None
    assert session.outcome.seconds > 2 * session.expected_first.seconds, "its reads are limited, which no rate knows"
    assert session.expected.seconds > 2 * session.expected_first.seconds
    assert done.expected.seconds > 2 * done.expected_first.seconds
    assert 0 < session.progress.share <= 1
    assert len(_told(place, "run-1")) >= 2 and len(_told(place, "run-1", session.id)) >= 2
    assert session.plan.choices and session.plan.slots == 1


def test_a_retry_counts_what_the_first_try_took():
    """Expected seconds are those from the first start on, so what is left is the whole session."""
    state = StateStore(MemoryStore())
    now_s = time.time()
    again = session(state=SessionState.PLANNED, started_s=now_s - 100, attempt="run-1/1/2", attempts=2, failures=1)
    state.add_session(again)
    stored = state.session("run-1", again.id)
    report = SessionReport(state, stored, lambda: None)
    group = HeldGroup("g1", {again.id: again}, launched_s=time.monotonic())
    assert group.left(now_s).seconds == pytest.approx(400 + again.plan.start_s, abs=1), "not launched for long"
    report.begin()
    report.write()
    begun = state.session("run-1", again.id).value
    assert begun.expected.seconds == pytest.approx(500, abs=1) and begun.expected.low_s == pytest.approx(471, abs=1)
    group.update([begun])
    assert group.left(now_s).seconds == pytest.approx(400, abs=1)
    assert begun.expected_first == again.expected_first
    assert group.patience_s(60, 600) == 600 + 2 * 10 * 400 and group.patience_s(9000, 0) == 18000
    group.update([replace(begun, progress=Progress("dedupe"))])
    assert group.patience_s(60, 600) == 2 * 10 * 400, "the workers are there"
    group.update([replace(begun, plan=replace(begun.plan, executor="local"))])
    assert group.patience_s(60, 600) == 2 * 10 * 400


def test_written_groups_of_an_iceberg_branch_are_progress():
    state = StateStore(MemoryStore())
    planned = plan({"branch": "main"}, rounds=1, stage_s={"dedupe": 1.0, "materialize": 3.0})
    running = session(state=SessionState.RUNNING, started_s=time.time(), attempt="run-1/1/1", plan=planned)
    state.add_session(running)
    report = SessionReport(state, state.session("run-1", running.id), lambda: None)
    report(GroupWritten("ns.t", {}, written=3, groups=4, rows=30, bytes=300))
    progress = state.session("run-1", running.id).value.progress
    assert (progress.stage, progress.tasks_done, progress.tasks) == ("materialize", 3, 4)
    assert progress.share == pytest.approx((1 + 3 * 3 / 4) / 4)


@pytest.mark.processes
@pytest.mark.parametrize("ends_late_s", [0.0, 0.5])
def test_what_a_start_takes_is_learned(place, monkeypatch, ends_late_s):
    """The dispatcher's own share of a job run: the process, and that its end is noticed.

    Also where records say first that all has ended, and the process ends only after that.
    """
    told, ended_s = LocalLauncher.status, {}

    def status(launcher, group_id):
        found = told(launcher, group_id)
        late = found.state is GroupState.ENDED
        if late and time.monotonic() - ended_s.setdefault(group_id, time.monotonic()) < ends_late_s:
            return GroupStatus(GroupState.RUNNING)
        return found

    monkeypatch.setattr(LocalLauncher, "status", status)
    monkeypatch.setattr(looks, "_LOOK_EVERY_S", 0.0)
    place.table("orders", partitions=("a", "b", "c"))
    for day in "abc":
        place.submit("orders", f"run-{day}", partitions=[{"day": day}])
    with dispatching_here(place, drain=True) as working:
        working.join(180)
        assert not working.is_alive()
    starts = starts_of(place).read()
    assert len(starts.seconds["local/local"]) == 3 and all(0 < took < 20 for took in starts.seconds["local/local"])
    (here, _) = offers_here(2, 8 << 30)
    learned = starts.expected(here)
    assert learned.start_s == statistics.median([here.start_s, *starts.seconds["local/local"]])
    place.table("items")
    document = {"version": 1, "catalog": place.lake, "source_table_id": "items"}
    (plan,) = Planner(rates_of(place), starts_of(place), (here,), 2)(of_values(document))
    assert plan.start_s == learned.start_s


def test_starts_forget_the_old_ones_and_what_they_do_not_understand():
    records = SwappedRecords(MemoryStore())
    assert records.create("rates/starts", {"seconds": 7})
    starts = StartStore(records)
    assert starts.read() == Starts()
    for number in range(STARTS_KEPT + 5):
        starts.learn("kuberay/ray", number - 1)
    assert starts.read().seconds == {"kuberay/ray": tuple(float(number) for number in range(4, STARTS_KEPT + 4))}


@pytest.mark.processes
def test_what_fits_no_machine_fails_and_says_so(place, monkeypatch):
    monkeypatch.setattr(command, "_MEMORY_SHARE", 0.002)
    place.table("orders")
    place.submit("orders", "run-1")
    with dispatching_here(place, drain=True) as working:
        working.join(60)
        assert not working.is_alive()
    done = place.run("run-1")
    assert done.state is JobRunState.FAILED
    assert "even alone: it is planned for more memory than is left on this machine" in done.error
    assert place.session("run-1").started_s is None


def test_quiet_windows_are_read_from_the_command_line():
    found = quiet_windows(["0 8 * * 1-5, 600, Europe/Berlin", "0 8,20 * * *, 30", "30 23 * * *,120,UTC"])
    assert found == (
        QuietWindow("0 8 * * 1-5", 600, "Europe/Berlin"),
        QuietWindow("0 8,20 * * *", 30),
        QuietWindow("30 23 * * *", 120),
    )
    for wrong in ("", "0 8 * * *", "0 8 * * *, soon", "noon, 5", "0 8 * * *, 5, Berlin"):
        with pytest.raises(InputError, match="--quiet"):
            quiet_windows([wrong])


def _session(place):
    try:
        return place.session("run-1")
    except (NotFoundError, ValueError):
        return None


def _told(place, job_run_id, subject=None):
    """The data of the estimates that were told of a job run, or of one of its sessions."""
    store, outbox = place.state.store, Outbox(place.state.store)
    assert outbox.recorded(job_run_id)
    events = [json.loads(store.get(stat.path)) for stat in store.list(f"job-runs/{job_run_id}/events/")]
    kind = f"deltacompact.{EventType.SLA_UPDATED}"
    return [event["data"] for event in events if event["type"] == kind and event.get("subject") == subject]

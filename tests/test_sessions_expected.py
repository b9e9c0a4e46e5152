"""What a dispatcher says before a session starts and while it runs: why it waits, what is expected, what never fits."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager

import pytest
from sessions_processes import until
from test_sessions_dispatch import SLOW, Place

from deltacompact.base.errors import InputError, NotFoundError
from sessions.base.model import JobRunState, Outcome, Session, SessionState
from sessions.cli import dispatch as command
from sessions.cli import run
from sessions.cli.dispatch import dispatcher_of, quiet_windows
from sessions.documents.instruction import of_values
from sessions.events.event import EventType
from sessions.events.outbox import Outbox
from sessions.events.recording import EventRecorder
from sessions.planning.admission import QuietWindow
from sessions.planning.learning import RateStore
from sessions.planning.planner import Planner
from sessions.planning.prices import offers_here
from sessions.planning.reasons import Wait
from sessions.records.swapping import SwappedRecords


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@contextmanager
def dispatching_here(place, **options):
    """A dispatcher in a thread of this process, with its sessions in processes of their own."""
    options.setdefault("observer", EventRecorder(place.state))
    dispatcher = dispatcher_of(place.queue, place.state_uri, (place.lake,), lease_s=20.0, **options)
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


def slow_past(place, table_id):
    """Rates of sessions that took 200 times as long as the shipped ones say."""
    rates = rates_of(place)
    document = {"version": 1, "catalog": place.lake, "source_table_id": table_id}
    (plan,) = Planner(rates, offers_here(2, 8 << 30), 2)(of_values(document))
    past = [Session(f"s{number}", "past", {}, SessionState.SUCCEEDED, plan=plan) for number in range(8)]
    took = Outcome(200 * plan.expected.seconds)
    rates.learn([Session(one.id, "past", {}, one.state, plan=plan, outcome=took) for one in past])


def test_what_waits_says_why_and_an_sla_that_cannot_be_met_is_said_at_once(place, capsys):
    place.table("orders")
    slow_past(place, "orders")
    place.submit("orders", "run-1", desired_sla=1)
    with dispatching_here(place, quiet=("* * * * *, 5",)):
        delay = until(lambda: _session(place) and _session(place).delay, "the session says why it waits")
    assert delay.reason == Wait.QUIET and delay.until_s > 0
    waiting = place.run("run-1")
    assert waiting.state is JobRunState.RUNNING and waiting.expected_first.seconds > 1
    assert waiting.nearest_sla_s >= 1.1 * waiting.expected_first.seconds > 1
    assert run(["status", "--state", place.state_uri, "--job-run", "run-1"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "nearest" in told and "quiet" in told
    (event,) = _told(place, "run-1")
    assert event["nearest_sla_s"] == waiting.nearest_sla_s and event["desired_sla_s"] == 1
    with dispatching_here(place, drain=True) as working:
        working.join(60)
        assert not working.is_alive()
    done = place.run("run-1")
    assert done.state is JobRunState.SUCCEEDED and done.expected_first == waiting.expected_first
    assert place.session("run-1").delay is None
    learned = rates_of(place).rates("local/local").observations
    assert learned[-1].session_id == "run-1/all" and len(learned) == 9


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

"""Dispatchers as processes: from a message to compacted tables; stopped, suspended, killed; on disk and on S3."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from holding import RUNS
from sessions_place import SLOW, Place, place  # noqa: F401
from sessions_processes import chain, resume, suspend, until
from sqs_pair import sqs_queue, sqs_queues

from deltacompact.base.errors import InputError
from sessions.base.model import JobRunState, SessionState
from sessions.base.settings import DispatcherSettings
from sessions.cli import run
from sessions.cli.dispatch import dispatcher_of
from sessions.queues.opening import open_queue

pytestmark = pytest.mark.processes


# --- what is asked for is done -------------------------------------------------------------------------------------


def test_job_runs_from_submit_to_status(place, capsys):
    """On a laptop: directory queue, local state; documents, duplicates and dead letters; --drain ends.

    The dispatcher is the program as users start it, with its own pace.
    """
    place.table("orders", partitions=("a", "b"))
    place.table("items")
    document = place.folder / "job.json"
    document.write_text(
        json.dumps({"version": 1, "catalog": place.lake, "source_table_id": "orders", "desired_sla": 900})
    )
    for _ in range(2):
        assert run(["submit", str(document), "--queue", place.queue, "--job-run-id", "nightly", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.split("}\n")[0] + "}")["job_run_id"] == "nightly"
    place.submit("items", "of-items", partitions=[{}])
    place.submit("items", "nothing-left")
    place.submit("none", "no-table")
    place.submit("\x1b[2J", "hostile")
    place.submit("orders", "no-partition", partitions=[{"day": "a"}, {"day": "z"}])
    place.submit("orders", "nightly", desired_sla=1)
    place.submit("orders", "elsewhere", catalog="/etc")
    open_queue(place.queue).send('{"version": 1, "partitions": 7}')
    command = [sys.executable, "-m", "sessions", "dispatch", "--queue", place.queue, "--state", place.state_uri]
    dispatched = subprocess.run(
        [*command, "--drain", "--allow", place.lake, "--max-sessions", "1"],
        cwd=Path(__file__).parents[3],
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert dispatched.returncode == 1, dispatched.stderr
    assert "3 job runs failed" in dispatched.stderr, "schedulers see it"
    assert run(["status", "--state", place.state_uri, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    states = {run["id"]: run["state"] for run in told["job_runs"]}
    assert states == {
        "nightly": "succeeded",
        "of-items": "succeeded",
        "nothing-left": "succeeded",
        "no-table": "failed",
        "hostile": "failed",
        "no-partition": "failed",
    }
    nightly = next(run for run in told["job_runs"] if run["id"] == "nightly")
    assert {session["partition"]["day"]: session["state"] for session in nightly["sessions"]} == {
        "a": "succeeded",
        "b": "succeeded",
    }
    assert nightly["desired_sla_s"] == 900 and nightly["expected"]["seconds"] > 0
    assert "'none' does not exist" in place.run("no-table").error
    assert "1 of 2 sessions failed; day=z" in place.run("no-partition").error
    assert place.run("no-partition").failed_session_ids == ("day=z",)
    assert told["dispatchers"] == []
    letters = {letter.reason: letter.field for letter in open_queue(place.queue).dead_letters()}
    assert letters == {
        "job_run_id_taken": "job_run_id",
        "catalog_not_allowed": "catalog",
        "invalid_document": "catalog",
    }
    for table, days in (("orders", ("a", "b")), ("items", (None,))):
        for day in days:
            assert len(chain(place.catalog, table, {"day": day} if day else None)) == 2
    assert place.catalog.read("items").num_rows == 3
    assert run(["status", "--state", place.state_uri]) == 0
    printed = capsys.readouterr().out
    assert "nightly" in printed and "\\x1b[2J" in printed and "\x1b" not in printed
    assert run(["status", "--state", place.state_uri, "--job-run", "nightly"]) == 0
    assert "day=a" in capsys.readouterr().out
    assert run(["status", "--state", place.state_uri, "--job-run", "none"]) == 2


def test_many_small_partitions_share_a_process(place):
    days = [f"d{number:03d}" for number in range(30)]
    place.table("orders", partitions=days)
    place.submit("orders", "many")
    with place.dispatcher("--drain") as dispatcher:
        assert dispatcher.wait(120) == 0
    sessions = list(place.state.sessions("many"))
    assert {session.state for session in sessions} == {SessionState.SUCCEEDED} and len(sessions) == 30
    groups = {session.plan.group for session in sessions}
    assert len(groups) <= 3, "a start is shared by ten times its work at least"
    assert len(list((place.folder / "state" / "logs").iterdir())) == len(groups)


def test_on_sqs_and_s3(s3_catalog_uri, tmp_path):
    """Two dispatchers, one of which is killed."""
    url, _ = sqs_queues()
    place = Place(tmp_path, s3_catalog_uri, url, s3_catalog_uri.replace("/tables", "/state"))
    for number in range(4):
        place.table(f"t{number}")
        place.submit(f"t{number}", f"run-{number}")
        place.submit(f"t{number}", f"run-{number}")
    place.submit("t0", "bad", priority=1)
    with place.dispatcher() as first, place.dispatcher("--drain", "--allow", s3_catalog_uri) as second:
        until(lambda: list(place.state.job_runs()), "a job run is accepted")
        until(lambda: "without --allow" in first.log.read_text(), "the first has begun as well")
        first.kill()
        assert second.wait(150) == 0, second.log.read_text()
        assert "without --allow" not in second.log.read_text()
    runs = {run.id: run.state for run in place.state.job_runs()}
    assert runs == {f"run-{number}": JobRunState.SUCCEEDED for number in range(4)}
    assert all(len(chain(place.catalog, f"t{number}")) == 2 for number in range(4))
    assert next(open_queue(url).dead_letters()).field == "priority"
    assert open_queue(url).depth().is_empty


def test_a_queue_that_cannot_bury_a_bad_document_is_named_at_the_start(moto_endpoint, tmp_path, caplog):
    """A bad document came again until its retention ended, and a drain did not end before."""
    url, state, draining = sqs_queue(), str(tmp_path / "state"), DispatcherSettings(drain=True)
    advice = f"queue {url} has no redrive policy: give it one, or name a dead-letter queue (--dead-letters)"
    with pytest.raises(InputError) as refused:
        dispatcher_of(url, state, settings=draining).run()
    assert str(refused.value).startswith(advice) and "--drain would not end" in str(refused.value)
    dispatcher_of(url, state, settings=draining, dead_letters=sqs_queue()).run()
    served = dispatcher_of(url, state)
    served.stop()
    served.run()
    (said,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert said.startswith(advice)


# --- processes that are suspended ----------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["dispatcher and session", "session"])
def test_what_was_suspended_beyond_its_lease_publishes_nothing_when_it_wakes(place, who):
    place.table("orders")
    place.submit("orders", "run-1")
    with place.dispatcher(held=RUNS) as first:
        until(place.hold.reached, "the session runs")
        runners = first.runners()
        assert len(runners) == 1
        stopped = first.everything() if who == "dispatcher and session" else runners
        suspend(stopped)
        if who == "session":
            first.kill()
        assert len(chain(place.catalog, "orders")) == 1
        with place.dispatcher() as second:
            until(lambda: place.run("run-1").lease.epoch == 2, "the lease is taken over")
            until(lambda: place.session("run-1").epoch == 2, "the first attempt is fenced off")
            place.hold.release()
            resume(stopped)
            until(lambda: not any(psutil.pid_exists(runner.pid) for runner in runners), "the first session ends")
            versions = chain(place.catalog, "orders")
            done = place.ended("run-1")
            assert done.state is JobRunState.SUCCEEDED and done.takeovers == 1
            assert place.session("run-1").attempt == "run-1/2/2"
            assert len(chain(place.catalog, "orders")) == 2
            assert len(versions) == 1 or place.session("run-1").outcome.version == versions[-1].version
            if who != "session":
                place.table("items")
                second.kill()
                place.submit("items", "run-2")
                assert place.ended("run-2").state is JobRunState.SUCCEEDED, "the first one works on"
    fences = chain(place.catalog, "orders")[0].fences
    assert fences == {"run-1/1/1"}


def test_a_dispatcher_that_is_suspended_without_its_session_wakes_up_to_find_it_done(place):
    """The session sees that it was superseded and ends, or it ended in time: it is published once."""
    place.table("orders")
    place.submit("orders", "run-1")
    with place.dispatcher(held=RUNS) as first:
        until(place.hold.reached, "the session runs")
        own = [psutil.Process(first.pid)]
        suspend(own)
        with place.dispatcher("--drain") as second:
            until(lambda: place.run("run-1").lease.epoch == 2, "the lease is taken over")
            place.hold.release()
            assert second.wait(100) == 0
        resume(own)
        assert place.run("run-1").state is JobRunState.SUCCEEDED
        first.process.terminate()
        assert first.wait(30) == 0
    assert len(chain(place.catalog, "orders")) == 2
    assert place.run("run-1").lease.epoch == 2


# --- processes that end --------------------------------------------------------------------------------------------


def test_a_session_that_is_killed_is_tried_again_and_resumes(place):
    place.table("orders")
    place.submit("orders", "run-1")
    with place.dispatcher(held=RUNS) as dispatcher:
        until(place.hold.reached, "the session runs")
        engine_session = place.session("run-1").engine_session_id
        os.kill(dispatcher.runners()[0].pid, signal.SIGKILL)
        done = place.ended("run-1")
    session = place.session("run-1")
    assert done.state is JobRunState.SUCCEEDED and done.takeovers == 0
    assert (session.attempts, session.failures) == (2, 1)
    assert session.engine_session_id == engine_session, "the rounds of the first attempt are not lost"
    assert len(chain(place.catalog, "orders")) == 2


def test_a_session_that_hangs_is_ended_and_tried_again(place):
    place.table("orders")
    place.submit("orders", "run-1")
    with place.dispatcher("--stall", "5", held=RUNS) as dispatcher:
        until(place.hold.reached, "the session runs")
        (runner,) = dispatcher.runners()
        suspend([runner])
        until(lambda: not psutil.pid_exists(runner.pid), "it is ended though it cannot hear SIGTERM")
        done = place.ended("run-1")
        assert "hangs: it recorded nothing for" in dispatcher.log.read_text()
    session = place.session("run-1")
    assert done.state is JobRunState.SUCCEEDED and done.takeovers == 0
    assert (session.attempts, session.failures) == (2, 1)
    assert len(chain(place.catalog, "orders")) == 2


def test_a_session_that_fails_again_and_again_fails_its_job_run(place):
    place.table("orders", rows=2000)
    place.submit("orders", "run-1", settings=SLOW)
    with place.dispatcher("--tries", "2") as dispatcher:
        for attempt in ("run-1/1/1", "run-1/1/2"):
            until(lambda attempt=attempt: place.session("run-1").attempt == attempt if _there(place) else 0, attempt)
            (runner,) = until(dispatcher.runners, "the session runs")
            runner.kill()
            until(lambda runner=runner: not psutil.pid_exists(runner.pid), "it is gone")
        done = place.ended("run-1")
    assert done.state is JobRunState.FAILED
    assert "failed 2 times: its process ended before it did" in done.error
    assert len(chain(place.catalog, "orders")) == 1


def test_a_dispatcher_that_is_told_to_stop_lets_sessions_end_and_gives_the_rest_back(place):
    place.table("orders")
    place.table("items")
    place.submit("orders", "run-1")
    with place.dispatcher("--max-sessions", "1", lease_s=60, held=RUNS) as first:
        until(place.hold.reached, "the session runs")
        place.submit("items", "run-2")
        until(lambda: any(run.id == "run-2" and run.lease for run in place.state.job_runs()), "the next one waits")
        first.process.terminate()
        until(lambda: "stopping" in first.log.read_text(), "it is told")
        place.hold.release()
        assert first.wait(60) == 0, first.log.read_text()
    assert place.run("run-1").state is JobRunState.SUCCEEDED
    assert place.run("run-2").state is not JobRunState.SUCCEEDED
    began_s = time.monotonic()
    with place.dispatcher("--drain", lease_s=60) as second:
        assert second.wait(60) == 0
    assert time.monotonic() - began_s < 50, "the lease was given back, not waited for"
    assert place.run("run-2").state is JobRunState.SUCCEEDED and place.run("run-2").takeovers == 0


def test_a_second_signal_ends_sessions_at_once_and_another_dispatcher_resumes(place):
    place.table("orders")
    place.submit("orders", "run-1")
    with place.dispatcher(lease_s=60, held=RUNS) as first:
        until(place.hold.reached, "the session runs")
        runners = first.runners()
        first.process.terminate()
        until(lambda: "stopping" in first.log.read_text(), "it is told")
        first.process.terminate()
        assert first.wait(20) == 0
        assert not any(psutil.pid_exists(runner.pid) for runner in runners)
    assert place.run("run-1").state is JobRunState.RUNNING
    with place.dispatcher(lease_s=60) as second:
        until(lambda: place.session("run-1").attempt == "run-1/2/2", "it goes on")
        second.kill()


def _there(place):
    return list(place.state.job_runs()) and list(place.state.sessions("run-1"))

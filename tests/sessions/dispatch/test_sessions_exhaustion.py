"""A dispatcher that runs for months, and one on a machine that has nothing left: no good job run fails for it."""

from __future__ import annotations

import pytest
from budgets import examples
from sessions_place import Place
from sessions_processes import forked
from starved_processes import soak, starved

import deltacompact
from sessions.base.exhaustion import exhausted
from sessions.base.model import JobRunState
from sessions.queues.opening import open_queue

pytestmark = pytest.mark.processes


def ended(process, log):
    process.join(120)
    assert process.exitcode == 0, log.read_text()[-3000:]
    return log.read_text()


def test_groups_leave_no_descriptor_thread_or_process_behind(tmp_path):
    log = tmp_path / "log"
    ended(forked(soak, str(tmp_path / "groups"), examples(10), log=log), log)


def test_job_runs_succeed_although_the_dispatcher_has_no_descriptor_left_now_and_then(tmp_path):
    place = Place(tmp_path)
    for number in range(4):
        place.table(f"t{number}")
        place.submit(f"t{number}", f"run-{number}")
    log = tmp_path / "log"
    said = ended(forked(starved, place.queue, place.state_uri, log=log), log)
    runs = list(place.state.job_runs())
    assert [run.state for run in runs] == [JobRunState.SUCCEEDED] * 4, [run.error for run in runs]
    assert all(session.failures == 0 for run in runs for session in place.state.sessions(run.id))
    assert not list(open_queue(place.queue).dead_letters())
    assert "Too many open files" in said or "file descriptors" in said, "it was starved"


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (OSError(24, "Too many open files"), "file descriptors of this process (ulimit -n)"),
        (BlockingIOError(11, "Resource temporarily unavailable"), "processes or memory"),
        (OSError(12, "Cannot allocate memory"), "memory"),
        (MemoryError(), "memory"),
        (RuntimeError("can't start new thread"), "threads"),
        (FileNotFoundError(2, "No such file"), None),
        (ValueError("no"), None),
    ],
)
def test_what_has_run_out_is_told_from_what_is_wrong(error, what):
    assert exhausted(error) == what
    try:
        try:
            raise error
        except Exception as cause:
            raise deltacompact.InputError("wrapped") from cause
    except deltacompact.InputError as wrapped:
        assert exhausted(wrapped) == what

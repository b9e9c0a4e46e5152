"""Old job runs are removed, and nothing that anybody still needs: whatever dies meanwhile, whoever is at work."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from counting_store import CountingStore
from sessions_clock import clock  # noqa: F401
from sessions_records import job_run, session, succeeded
from stores import Crash, FailsAt, InterceptedStore, copy_of

from deltacompact.storage.memory import MemoryStore
from sessions import cli
from sessions.base.model import JobRunState, Lease
from sessions.cli.status import _document, _every
from sessions.dispatch.expiry import expire
from sessions.events.outbox import Outbox
from sessions.overview.overview import OverviewReader
from sessions.records.lives import retry
from sessions.records.state_store import StateStore
from sessions.records.trigger_ends import remembered_ends, slot_path, submitted_id

DAY_S = 86_400.0
TABLE = "5c" * 8


@pytest.fixture
def memory(clock):
    return MemoryStore(clock=clock)


def ended(memory, name, state=JobRunState.SUCCEEDED, **changes):
    """A job run that has ended, with a session, a group, an event and a log."""
    store = StateStore(memory)
    store.accept(job_run(name, state=JobRunState.ACCEPTED, lease=Lease("a", 1, 60.0)))
    store.add_session(succeeded(session(run=name)))
    store.put_group(name, "g1.1", ["day=2024-01-01"])
    memory.put(f"job-runs/{name}/events/job_run.accepted~~0.json", b"{}")
    memory.put(f"logs/{name}.1.g1.1.1.log", b"done")
    run = replace(store.job_run(name).value, state=state, **changes)
    assert store.change_job_run(store.job_run(name), run)
    store.close(run)


def ids(memory):
    return {run.id for run in StateStore(memory).job_runs()}


def left_of(memory, name):
    return [stat.path for stat in memory.list("") if f"/{name}" in f"/{stat.path}"]


def test_of_what_ended_long_ago_nothing_is_left_and_everything_else_stays(memory, clock):
    ended(memory, "old")
    ended(memory, "old.2", JobRunState.FAILED)
    ended(memory, "unsent")
    Outbox(memory).expect("unsent")
    state = StateStore(memory)
    state.accept(job_run("open"))
    clock.now_s += 40 * DAY_S
    ended(memory, "young")
    before = dict(memory._objects)
    planned = expire(StateStore(memory), 30 * DAY_S, dry_run=True)
    assert {**memory._objects, "clock": None} == {**before, "clock": None}, "a dry run removes nothing"
    done = expire(StateStore(memory), 30 * DAY_S)
    assert done == planned and sorted(done.job_run_ids) == ["old", "old.2"] and done.unsent == ["unsent"]
    assert ids(memory) == {"open", "unsent", "young"}
    assert left_of(memory, "old.") == left_of(memory, "old/") == []
    assert len(left_of(memory, "young")) == len(left_of(memory, "unsent")) - 1
    assert expire(StateStore(memory), 30 * DAY_S).job_run_ids == []


def test_job_runs_are_removed_and_shown_side_by_side(memory, clock):
    """Each costs half a dozen requests: one after another, a thousand of them took minutes."""
    for number in range(40):
        ended(memory, f"old-{number:02d}")
    clock.now_s += 40 * DAY_S
    store = CountingStore(memory, 0.01)
    runs = sorted(StateStore(memory).job_runs(), key=lambda run: run.id)
    shown, delays = _every(StateStore(store))
    told = sorted(
        (each["id"], len(each["sessions"])) for each in _document(StateStore(store), shown, delays, False)["job_runs"]
    )
    assert told == [(run.id, 1) for run in runs]
    assert most_at_once(store, "list job-runs/old-") >= 6
    store.reset()
    assert expire(StateStore(store), 30 * DAY_S).job_run_ids == [run.id for run in runs]
    assert most_at_once(store, "delete") >= 6 and ids(memory) == set()


def most_at_once(store, named):
    spans = [(began, end) for began, end, name in store._spans if name.startswith(named)]
    return max(sum(began <= at < end for began, end in spans) for at, _ in spans)


def test_the_mark_of_an_earlier_end_goes_too(memory, clock):
    """It is left if whoever ran the job run again was killed, and was looked up for ever by each page."""
    state = StateStore(memory)
    ended(memory, "old", JobRunState.FAILED, finished_s=clock.now_s)
    (mark,) = (stat.path for stat in memory.list("ended/"))
    retry(state, "old")
    memory.put(mark, b"")
    clock.now_s += 60
    again = replace(state.job_run("old").value, state=JobRunState.SUCCEEDED, finished_s=clock.now_s)
    assert state.change_job_run(state.job_run("old"), again)
    state.close(again)
    clock.now_s += 2 * DAY_S
    assert expire(state, DAY_S).job_run_ids == ["old"] and list(memory.list("ended/")) == []


def test_what_a_killed_process_was_writing_into_a_folder_goes_too(tmp_path):
    state = StateStore(str(tmp_path))
    state.now_s()
    (tmp_path / ".unfinished").mkdir(exist_ok=True)
    begun = [tmp_path / ".unfinished" / (name * 16) for name in ("5c", "77")]
    for path in begun:
        path.write_bytes(b"{")
    os.utime(begun[0], (0, 0))
    expire(state, DAY_S)
    assert not begun[0].exists() and begun[1].exists()


def test_an_expiry_that_is_killed_anywhere_is_finished_by_the_next_one(memory, clock):
    ended(memory, submitted_id(TABLE, 0))
    memory.put(slot_path(TABLE, 0), b"{}")
    memory.put(f"open/{submitted_id(TABLE, 0)}", b"")  # its dispatcher died before it took the mark away
    clock.now_s += 2 * DAY_S
    for after in (False, True):
        for at in range(100):
            killed = copy_of(memory)
            kill = FailsAt(at, after=after, error=Crash)
            try:
                expire(StateStore(InterceptedStore(killed, kill)), DAY_S)
            except Crash:
                run = submitted_id(TABLE, 0)
                if run not in ids(killed):  # its record goes last, and what a trigger needs goes first
                    assert left_of(killed, run) == [] and 0 in remembered_ends(killed, TABLE)
                expire(StateStore(killed), DAY_S)
            assert ids(killed) == set() and not StateStore(killed).open_job_runs()
            assert remembered_ends(killed, TABLE) == {0: JobRunState.SUCCEEDED}
            if kill.failed is None:
                break
        assert at > 5


def test_how_a_triggers_job_runs_ended_is_remembered(memory, clock):
    how = {slot: state for slot, state in enumerate(JobRunState) if state.ended}
    for slot, state in how.items():
        memory.put(slot_path(TABLE, slot), b"{}")
        ended(memory, submitted_id(TABLE, slot), state)
    clock.now_s += 2 * DAY_S
    expire(StateStore(memory), DAY_S)
    assert remembered_ends(memory, TABLE) == how


def test_foreign_objects_among_the_remembered_ends_are_skipped(memory):
    memory.put(f"watch-ends/{TABLE}/7", b"succeeded")
    for name, content in {"8": b"\xff", "9": b"done", "notes.txt": b"succeeded"}.items():
        memory.put(f"watch-ends/{TABLE}/{name}", content)
    assert remembered_ends(memory, TABLE) == {7: JobRunState.SUCCEEDED}


def test_a_job_run_that_is_accepted_under_the_name_of_one_that_expires_is_not_removed(memory, clock):
    ended(memory, "again")
    clock.now_s += 2 * DAY_S
    other = StateStore(memory)

    def intercept(kind, path, act):
        if kind == "get" and "again/run" in path:
            seen.append(path)
            if len(seen) == 2:  # right before the record is looked at for the last time
                expire(StateStore(memory), DAY_S)
                other.accept(job_run("again", state=JobRunState.ACCEPTED, lease=None))
        return act()

    seen: list[str] = []
    expire(StateStore(InterceptedStore(memory, intercept)), DAY_S)
    assert len(seen) >= 2 and other.job_run("again").value.state is JobRunState.ACCEPTED


def test_a_mark_whose_record_never_came_goes_too(memory, clock):
    """Each dispatcher read it at each sweep, for ever."""
    dying = StateStore(InterceptedStore(memory, _dies_at_the_record))
    for name in ("old", "accepted-later"):
        with pytest.raises(Crash):
            dying.accept(job_run(name, state=JobRunState.ACCEPTED))
    StateStore(memory).accept(job_run("under-way", state=JobRunState.RUNNING))
    clock.now_s += 40 * DAY_S
    assert StateStore(memory).accept(job_run("accepted-later", state=JobRunState.ACCEPTED))
    with pytest.raises(Crash):
        dying.accept(job_run("young", state=JobRunState.ACCEPTED))
    state = StateStore(memory)
    assert expire(state, 30 * DAY_S, dry_run=True).objects == 1 and len(state.open_job_runs()) == 4
    assert expire(state, 30 * DAY_S).objects == 1
    assert {mark.job_run_id for mark in state.open_job_runs()} == {"accepted-later", "under-way", "young"}


@pytest.mark.parametrize("at", ["before the record", "after the record"])
def test_a_job_run_that_is_accepted_while_its_old_mark_expires_keeps_a_mark(memory, clock, at):
    with pytest.raises(Crash):
        StateStore(InterceptedStore(memory, _dies_at_the_record)).accept(job_run("x", state=JobRunState.ACCEPTED))
    clock.now_s += 40 * DAY_S

    def accepts(kind, path, act):
        if kind != "put_if_absent" or "job-runs/x/run" not in path:
            return act()
        before = at == "before the record" and expire(StateStore(memory), 30 * DAY_S)
        done = act()
        assert before or expire(StateStore(memory), 30 * DAY_S)
        return done

    assert StateStore(InterceptedStore(memory, accepts)).accept(job_run("x", state=JobRunState.ACCEPTED))
    assert [mark.job_run_id for mark in StateStore(memory).open_job_runs()] == ["x"]


@pytest.mark.parametrize("older_than_s", [0.0, 1.0])
def test_no_expiry_takes_the_mark_of_a_job_run_that_is_being_accepted(memory, clock, older_than_s):
    """Without its mark no dispatcher ever finds it."""

    def accepts(kind, path, act):
        if kind == "put_if_absent" and "job-runs/x/run" in path:
            clock.now_s += 2.0
            assert expire(StateStore(memory), older_than_s).objects == 0
        return act()

    assert StateStore(InterceptedStore(memory, accepts)).accept(job_run("x", state=JobRunState.ACCEPTED))
    assert [mark.job_run_id for mark in StateStore(memory).open_job_runs()] == ["x"]


def _dies_at_the_record(kind, path, act):
    if kind == "put_if_absent" and "/run" in path.removeprefix("job-runs"):
        raise Crash
    return act()


def test_the_page_forgets_what_has_expired(memory, clock):
    ended(memory, "old")
    reader = OverviewReader(StateStore(memory), clock=clock)
    assert len(reader.read().job_runs) == 1
    clock.now_s += 2 * DAY_S
    expire(StateStore(memory), DAY_S)
    assert reader.read().job_runs == ()


def test_the_command_says_what_it_removed(tmp_path, capsys):
    state = str(tmp_path / "state")
    assert cli.run(["job-runs", "expire", "--state", state, "--older-than", "30d"]) == 0
    assert capsys.readouterr().out.endswith("/state/: there is no such folder\n"), "another one may grow for ever"
    assert not (tmp_path / "state").exists(), "so that whoever looks next hears it, too"
    StateStore(state).store.put("clock", b"")
    for arguments, said in ((["--dry-run"], "0 job runs would be removed"), ([], "0 job runs removed")):
        assert cli.run(["job-runs", "expire", "--state", state, "--older-than", "30d", *arguments]) == 0
        assert said in capsys.readouterr().out
    assert cli.run(["job-runs", "expire", "--state", state, "--older-than", "2h", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job_run_ids"] == []
    for slip in ("soon", "30ms"):
        assert cli.run(["job-runs", "expire", "--state", state, "--older-than", slip]) == 2
        assert f"'{slip}' is no span of time" in capsys.readouterr().err

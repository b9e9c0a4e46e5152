"""Compare-and-swap over put-if-absent, and leases: on memory, on a disk with many threads, and on S3."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sessions_clock import clock  # noqa: F401
from stores import FailsAt, InterceptedStore

from deltacompact.base.errors import NotFoundError, StoreError
from deltacompact.storage.memory import MemoryStore
from sessions.base.ids import session_id
from sessions.base.model import Dispatcher, JobRun, JobRunState, Lease, Session, SessionState
from sessions.records.leases import LeaseLostError, allowed_skew_s, claim, is_free
from sessions.records.state_store import StateStore
from sessions.records.swapping import SwappedRecords

RUN = JobRun("run-1", {"version": 1}, JobRunState.ACCEPTED, accepted_s=1.0)


@pytest.fixture
def memory(clock):  # noqa: F811
    return MemoryStore(clock=clock)


@pytest.fixture
def state(memory):
    return StateStore(memory)


# --- compare-and-swap ----------------------------------------------------------------------------------------------


def test_exactly_the_version_that_was_read_is_replaced(memory):
    records = SwappedRecords(memory)
    with pytest.raises(NotFoundError):
        records.read("a")
    assert records.create("a", 1) and not records.create("a", 2)
    first = records.read("a")
    second = records.swap(first, 2)
    assert second is not None and records.swap(first, 3) is None
    assert records.read("a").value == 2
    assert records.swap(second, 4).value == 4
    version = records.read("a")
    for value in range(20):
        version = records.swap(version, value)
    assert len(list(memory.list("a/"))) == 8, "what nobody reads any more is removed"


def test_a_writer_that_slept_for_long_learns_that_it_lost(memory):
    """Its slot is free again: others came past it and removed what was there."""
    records = SwappedRecords(memory)
    records.create("a", 0)
    asleep = records.read("a")
    version = asleep
    for value in range(1, 20):
        version = records.swap(version, value)
    assert records.swap(asleep, "late") is None
    assert records.read("a").value == 19
    assert not records.create("a", "late too")
    assert records.read("a").value == 19
    for value in range(20, 60):
        version = records.swap(version, value)
    with pytest.raises(StoreError, match="read it again"):  # nobody remembers the first put
        records.swap(asleep, "too late")
    assert not records.create("a", "too late") and records.read("a").value == 59
    assert records.swap(version, 60) is not None and len(list(memory.list("a/"))) == 8


@pytest.mark.parametrize("where", ["disk", "s3"])
def test_of_many_writers_one_wins_each_version(where, tmp_path, request):
    uri = str(tmp_path / "state") if where == "disk" else request.getfixturevalue("s3_catalog_uri")
    store = StateStore(uri).store
    SwappedRecords(store).create("n", 0)
    each, workers = (50, 8) if where == "disk" else (5, 4)

    def add():
        records, done = SwappedRecords(store), 0
        while done < each:
            version = records.read("n")
            done += records.swap(version, version.value + 1) is not None

    threads = [threading.Thread(target=add) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert SwappedRecords(store).read("n").value == each * workers


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(4))
def test_a_swap_of_which_an_operation_fails_has_happened_or_not(memory, at, after):
    SwappedRecords(memory).create("a", 0)
    records = SwappedRecords(InterceptedStore(memory, FailsAt(at, after=after)))
    version = SwappedRecords(memory).read("a")
    try:
        swapped = records.swap(version, 1)
        assert swapped is not None
    except StoreError:
        swapped = None
    now = SwappedRecords(memory).read("a").value
    assert now == 1 if swapped else now in (0, 1)
    assert SwappedRecords(memory).swap(SwappedRecords(memory).read("a"), 2) is not None


# --- the state store -----------------------------------------------------------------------------------------------


def test_a_job_run_is_accepted_once_and_open_until_it_is_closed(state):
    assert state.accept(RUN) and not state.accept(RUN)
    assert [mark.job_run_id for mark in state.open_job_runs()] == ["run-1"]
    ended = replace(RUN, state=JobRunState.SUCCEEDED)
    assert state.change_job_run(state.job_run("run-1"), ended) is not None
    state.close(ended)
    assert state.open_job_runs() == []
    assert not state.accept(RUN), "a duplicate of what has ended"
    assert [run.state for run in state.job_runs()] == [JobRunState.SUCCEEDED]


def test_sessions_by_job_run_in_any_number(state):
    state.accept(RUN)
    names = [session_id({"day": str(number)}) for number in range(30)]
    for name in names:
        assert state.add_session(Session(name, "run-1", {"day": name}))
    assert not state.add_session(Session(names[0], "run-1", {}))
    assert sorted(session.id for session in state.sessions("run-1")) == sorted(names)
    assert [session.id for session in state.some_sessions("run-1", names[::-1])] == names[::-1]
    assert list(state.sessions("run-2")) == []
    stored = state.session("run-1", names[3])
    assert state.change_session(stored, replace(stored.value, state=SessionState.RUNNING)) is not None
    assert [run.id for run in state.job_runs()] == ["run-1"]
    state.put_group("run-1", "g0", names)
    assert state.group("run-1", "g0") == names


def test_dispatchers_say_that_they_are_there_and_are_forgotten(state, clock):  # noqa: F811
    record = Dispatcher("a", "host", 1, 0.0, 0.0, "file:///queue", 2, ("run-1",))
    assert state.say(record) == clock.now_s
    clock.now_s += 100
    state.say(replace(record, owner="b"))
    assert {said.dispatcher.owner: clock.now_s - said.modified_s for said in state.dispatchers()} == {"a": 100, "b": 0}
    state.unsay("b")
    state.forget_dispatchers(clock.now_s + 25 * 3600)
    assert list(state.dispatchers()) == []


def test_observers_see_each_change_once_and_may_fail(memory, caplog):
    seen = []

    class Watching:
        def changed(self, before, after):
            seen.append((before.state if before else None, after.state))
            raise ValueError("watched badly")

    state = StateStore(memory, Watching())
    state.accept(RUN)
    state.accept(RUN)
    stored = state.job_run("run-1")
    state.change_job_run(stored, replace(RUN, state=JobRunState.RUNNING))
    assert state.change_job_run(stored, replace(RUN, state=JobRunState.FAILED)) is None
    assert seen == [(None, JobRunState.ACCEPTED), (JobRunState.ACCEPTED, JobRunState.RUNNING)]
    assert "watched badly" in caplog.text


@given(st.dictionaries(st.text(max_size=30), st.none() | st.text(max_size=200), max_size=4))
def test_names_of_sessions_can_be_names_of_files_and_differ(partition):
    name = session_id(partition)
    assert name and len(name) <= 120 and "/" not in name and name not in (".", "..") and name.isascii()
    other = {**partition, "more": "x"}
    assert session_id(other) != name or other == partition


# --- leases --------------------------------------------------------------------------------------------------------


def test_a_lease_is_claimed_renewed_and_taken_over_with_a_later_epoch(state, clock):  # noqa: F811
    state.accept(RUN)
    a = claim(state, state.job_run("run-1"), "a", 60, clock.now_s)
    assert a is not None and a.epoch == 1
    clock.now_s += 59
    a.renew()
    clock.now_s += 60 + allowed_skew_s(60)
    assert claim(state, state.job_run("run-1"), "b", 60, clock.now_s) is None, "it was renewed"
    clock.now_s += 1
    b = claim(state, state.job_run("run-1"), "b", 60, clock.now_s)
    assert b is not None and b.epoch == 2 and b.run.takeovers == 1
    for act in (a.renew, a.release, lambda: a.change(error="late"), lambda: a.end(JobRunState.SUCCEEDED)):
        with pytest.raises(LeaseLostError):
            act()
    assert a.lost and not b.lost
    b.end(JobRunState.SUCCEEDED)
    assert state.job_run("run-1").value.error is None
    assert state.open_job_runs() == []
    assert not is_free(state.job_run("run-1"), clock.now_s + 1e6)


def test_of_two_that_claim_at_once_one_wins(state, clock):  # noqa: F811
    state.accept(RUN)
    seen_by_both = state.job_run("run-1")
    assert claim(state, seen_by_both, "a", 60, clock.now_s) is not None
    assert claim(state, seen_by_both, "b", 60, clock.now_s) is None


def test_a_lease_that_is_given_back_is_free_at_once_and_its_epoch_goes_on(state, clock):  # noqa: F811
    state.accept(RUN)
    claim(state, state.job_run("run-1"), "a", 60, clock.now_s).release()
    b = claim(state, state.job_run("run-1"), "b", 60, clock.now_s)
    assert b is not None and b.epoch == 2 and b.run.takeovers == 0


def test_a_lost_reply_does_not_lose_the_lease(memory, clock):  # noqa: F811
    state = StateStore(memory)
    state.accept(RUN)
    held = claim(state, state.job_run("run-1"), "a", 60, clock.now_s)
    for at in range(6):  # every operation of a renewal fails once, after it has happened
        held.state.store = held.state._records._store = InterceptedStore(memory, FailsAt(at, after=True))
        try:
            held.renew()
        except StoreError:
            held.state._records._store = memory
            held.renew()
    held.state._records._store = memory
    assert held.change(error="still ours").error == "still ours"
    assert state.job_run("run-1").value.lease == Lease("a", 1, 60, held.run.lease.renewals)

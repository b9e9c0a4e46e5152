"""Compare-and-swap over put-if-absent, and leases: on memory, on a disk with many threads, and on S3."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from budgets import examples
from counting_store import CountingStore
from hypothesis import given, settings
from hypothesis import strategies as st
from sessions_clock import clock  # noqa: F401
from stores import FailsAt, InterceptedStore

from deltacompact.base.errors import NotFoundError, StoreError
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.numbered import numbered_path
from sessions.base.clock import allowed_skew_s
from sessions.base.ids import session_id
from sessions.base.model import DispatcherSign, JobRun, JobRunSession, JobRunState, Lease, SessionState
from sessions.records import swapping
from sessions.records.leases import LeaseLostError, Stillness, claim, free_in_s, is_free
from sessions.records.state_store import StateStore
from sessions.records.swapping import SwappedRecords

RUN = JobRun("run-1", {"version": 1}, JobRunState.ACCEPTED, accepted_s=1.0)


@pytest.fixture
def memory(clock):
    return MemoryStore(clock=clock)


@pytest.fixture(params=["one object", "numbered"])
def way(request, monkeypatch):
    """Both ways of replacing a record: with If-Match, and without it."""
    if request.param == "numbered":
        monkeypatch.setattr(swapping, "Swaps", type("NoStore", (), {}))
    return request.param


@pytest.fixture
def state(memory):
    return StateStore(memory)


# --- compare-and-swap ----------------------------------------------------------------------------------------------


def test_exactly_the_version_that_was_read_is_replaced(memory, way):
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
    kept = 8 if way == "numbered" else 1
    assert len(list(memory.list("a/"))) == kept, "what nobody reads any more is removed"


def test_a_writer_that_slept_for_long_learns_that_it_lost(memory, monkeypatch):
    """Its slot is free again: others came past it and removed what was there."""
    monkeypatch.setattr(swapping, "Swaps", type("NoStore", (), {}))
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


@pytest.mark.slow
@pytest.mark.parametrize("where", ["disk", pytest.param("s3", marks=pytest.mark.processes)])
def test_of_many_writers_one_wins_each_version(where, tmp_path, request):
    """Each adds its own names. Where nobody can say whether a swap has happened, its name tells that in the record."""
    uri = str(tmp_path / "state") if where == "disk" else request.getfixturevalue("s3_catalog_uri")
    store = StateStore(uri).store
    SwappedRecords(store).create("n", [])
    each, workers = (50, 8) if where == "disk" else (5, 4)

    def add(worker):
        records = SwappedRecords(store)
        for name in (f"{worker}.{number}" for number in range(each)):
            swapped = None
            while swapped is None:
                version = records.read("n")
                if name in version.value:
                    break  # it was in doubt
                with contextlib.suppress(StoreError):  # so many were faster that nobody can say
                    swapped = records.swap(version, [*version.value, name])

    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(add, range(workers)))
    value = SwappedRecords(store).read("n").value
    assert len(value) == len(set(value)) == each * workers


def test_a_version_that_went_while_its_writer_listed_the_disk_has_won_or_not(memory, way):
    """A disk is no snapshot: the listing lacks our version, which nine others have replaced and removed since."""
    records = SwappedRecords(memory)
    records.create("a", 0)
    version, others = records.read("a"), iter([True])

    def intercept(kind, path, act):
        found = list(act()) if kind == "list" else act()
        if kind == "list" and next(others, False):
            for value in range(2, 11):
                assert records.swap(records.read("a"), value)
            return iter([stat for stat in found if not stat.path.endswith("1.json")])
        return found

    writer = SwappedRecords(InterceptedStore(memory, intercept))
    with contextlib.suppress(StoreError):  # so many were faster that nobody can say
        assert writer.swap(version, 1) is not None
    assert records.read("a").value == (1 if next(others, False) else 10)


class _BusyDisk(LocalStore):
    """A disk on which others swap nine times whenever a listing has looked at its first file."""

    busy = 0

    def stat(self, path):
        found = super().stat(path)
        if self.busy:
            self.busy -= 1
            _swaps(SwappedRecords(_RemovesLate(self.root)), 9)
        return found


class _RemovesLate(LocalStore):
    """Whoever is to remove version 1 falls asleep before it does so."""

    def delete(self, paths):
        super().delete(path for path in paths if path != numbered_path("a/", 1))


def _swaps(records, many):
    for _ in range(many):
        version = records.read("a")
        assert records.swap(version, version.value + 1)


@pytest.fixture
def late(tmp_path):
    """What a writer read that puts its version 1 when the versions 0 to 31 have been removed."""
    records = SwappedRecords(LocalStore(tmp_path))
    records.create("a", 0)
    asleep = records.read("a")
    _swaps(records, 39)
    return asleep


@pytest.mark.parametrize("busy", range(1, 5))
def test_a_late_writer_is_not_told_that_it_won_while_others_replace_what_it_looks_at(tmp_path, late, busy):
    disk = _BusyDisk(tmp_path)
    disk.busy = busy
    with pytest.raises(StoreError, match="read it again"):  # so many were faster that nobody can say
        SwappedRecords(disk).swap(late, "late")
    assert SwappedRecords(disk).read("a").value == 39 + 9 * busy


def test_nobody_reads_what_a_late_writer_left_while_others_replace_the_newest(tmp_path, late):
    with pytest.raises(StoreError, match="read it again"):
        SwappedRecords(_RemovesLate(tmp_path)).swap(late, "late")
    disk = _BusyDisk(tmp_path)
    disk.busy = 1
    assert SwappedRecords(disk).read("a").value == 39 + 9


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(4))
def test_a_swap_of_which_an_operation_fails_has_happened_or_not(memory, at, after, way):
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


def test_a_writer_with_if_match_that_lost_learns_it_however_late(memory):
    records = SwappedRecords(memory)
    records.create("a", 0)
    asleep = version = records.read("a")
    for value in range(1, 60):
        version = records.swap(version, value)
    assert records.swap(asleep, "late") is None and not records.create("a", "late too")
    assert records.read("a").value == 59 and records.swap(version, 60) is not None


@given(st.data())
@settings(max_examples=examples(200), deadline=None)
def test_whoever_is_told_that_he_won_has_won_although_replies_are_lost_and_puts_repeated(data):
    """The client puts again where a reply was lost, and is refused for its own put, which others may have replaced."""
    memory = MemoryStore()
    others = SwappedRecords(memory)
    others.create("a", [])
    others.create("a", ["again"])

    def intercept(kind, path, act):
        if kind != "put_if_same" or ".put-if-same" in path:
            return act()
        for _ in range(data.draw(st.integers(0, 2), "others before")):
            replaced()
        first = act() if data.draw(st.booleans(), "carried out, and the reply is lost") else None
        for _ in range(data.draw(st.integers(0, 2), "others after")):
            replaced()
        if data.draw(st.booleans(), "nobody can say"):
            raise StoreError("no reply")
        return (first if data.draw(st.booleans(), "answered after all") else None) or act()

    def replaced():
        found = others.read("a")
        done.append(f"other-{len(done)}")
        assert others.swap(found, [*found.value, done[-1]]) is not None

    done: list[str] = []
    ours = SwappedRecords(InterceptedStore(memory, intercept))
    certain, lost = [], []
    for number in range(6):
        version = ours.read("a")
        try:
            swapped = ours.swap(version, [*version.value, f"ours-{number}"])
        except StoreError:
            continue
        (certain if swapped else lost).append(f"ours-{number}")
        if swapped is not None and data.draw(st.booleans(), "swaps again at once"):
            before = others.read("a").value
            try:
                again = ours.swap(swapped, [*swapped.value, f"next-{number}"])
            except StoreError:
                continue
            assert again is None or before[: len(swapped.value)] == swapped.value
            (certain if again else lost).append(f"next-{number}")
    kept = others.read("a").value
    assert set(done) | set(certain) <= set(kept) and not set(lost) & set(kept)
    assert len(kept) == len(set(kept))


def test_a_record_that_began_numbered_stays_so_for_dispatchers_of_the_version_before(memory, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(swapping, "Swaps", type("NoStore", (), {}))
        old = SwappedRecords(memory)
        old.create("a", 1)
    new = SwappedRecords(memory)
    replaced = new.swap(new.read("a"), 2)
    assert replaced is not None and replaced.etag is None
    assert old.swap(old.read("a"), 3) is not None and new.swap(replaced, 4) is None
    assert new.read("a").value == 3 and [version.value for version in new.read_all("")] == [3]


def test_a_job_run_that_is_one_object_is_damaged_to_the_version_before_which_never_works_on_it(memory, state):
    """The version before lists numbered objects, takes the greatest one, and reads its key "record"."""
    state.accept(RUN)
    (stat,) = memory.list("job-runs/run-1/run/")
    assert stat.path.endswith("/" + "9" * 20 + ".json")
    assert "record" not in json.loads(memory.get(stat.path))
    SwappedRecords(memory).create("rates/local", {"learned": 1})  # what nobody is harmed by, it reads
    assert json.loads(memory.get(f"rates/local/{'9' * 20}.json"))["record"] == {"learned": 1}


def test_a_store_that_ignores_if_match_has_numbered_records(memory):
    def intercept(kind, path, act):
        if kind == "put_if_same":
            memory.put(path, b"overwritten")
            return "etag"
        return act()

    records = SwappedRecords(InterceptedStore(memory, intercept))
    assert records.create("a", 1)
    assert records.swap(records.read("a"), 2).etag is None and records.read("a").value == 2


def test_reading_and_replacing_a_record_take_one_request_each_where_the_store_has_if_match(memory):
    records = SwappedRecords(memory)
    records.create("a", 1)
    counted = CountingStore(memory)
    records = SwappedRecords(counted)
    assert records.swap(records.read("a"), 2) is not None
    assert counted.by_kind() == {"get": 1, "put_if_same": 1}


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
        assert state.add_session(JobRunSession(name, "run-1", {"day": name}))
    assert not state.add_session(JobRunSession(names[0], "run-1", {}))
    assert sorted(session.id for session in state.sessions("run-1")) == sorted(names)
    assert [session.id for session in state.some_sessions("run-1", names[::-1])] == names[::-1]
    assert list(state.sessions("run-2")) == []
    stored = state.session("run-1", names[3])
    assert state.change_session(stored, replace(stored.value, state=SessionState.RUNNING)) is not None
    assert [run.id for run in state.job_runs()] == ["run-1"]
    state.put_group("run-1", "g0", names)
    assert state.group("run-1", "g0") == names


def test_dispatchers_say_that_they_are_there_and_are_forgotten(state, clock):
    record = DispatcherSign("a", "host", 1, 0.0, 0.0, "file:///queue", 2, ("run-1",))
    assert state.say(record) == clock.now_s
    clock.now_s += 100
    state.say(replace(record, owner="b"))
    assert {said.dispatcher.owner: clock.now_s - said.modified_s for said in state.dispatchers()} == {"a": 100, "b": 0}
    state.unsay("b")
    state.store.put("dispatchers/c.json", b"{}")  # of another release: it counted as unreadable for ever
    state.store.put("dispatchers/notes.txt", b"mine")
    state.forget_dispatchers(clock.now_s + 25 * 3600)
    assert [stat.path for stat in state.store.list("dispatchers/")] == ["dispatchers/notes.txt"]


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


def test_a_lease_is_claimed_renewed_and_taken_over_with_a_later_epoch(state, clock):
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


def test_a_dead_dispatchers_lease_is_stale_where_the_calendar_was_set_back(state, clock, monkeypatch):
    """By the store's clock it was renewed tomorrow: nobody would have worked on the job run for a day."""
    monotonic = [100.0]
    monkeypatch.setattr("sessions.records.leases.time.monotonic", lambda: monotonic[0])
    state.accept(RUN)
    held = claim(state, state.job_run("run-1"), "a", 60, clock.now_s)
    clock.now_s -= 86_400
    stillness = Stillness()
    assert stillness.of_s(state.job_run("run-1")) == 0.0
    monotonic[0] += 70
    stored = state.job_run("run-1")
    assert free_in_s(stored, clock.now_s, stillness.of_s(stored)) == pytest.approx(6)
    held.renew()
    assert stillness.of_s(state.job_run("run-1")) == 0.0, "it lives"
    monotonic[0] += 76
    stored = state.job_run("run-1")
    assert claim(state, stored, "b", 60, clock.now_s, stillness.of_s(stored)) is None
    monotonic[0] += 1
    b = claim(state, stored, "b", 60, clock.now_s, stillness.of_s(stored))
    assert b is not None and b.run.takeovers == 1
    stillness.keep(())
    assert stillness.of_s(state.job_run("run-1")) == 0.0


def test_of_two_that_claim_at_once_one_wins(state, clock):
    state.accept(RUN)
    seen_by_both = state.job_run("run-1")
    assert claim(state, seen_by_both, "a", 60, clock.now_s) is not None
    assert claim(state, seen_by_both, "b", 60, clock.now_s) is None


def test_an_end_whose_marks_could_not_be_changed_is_repeated(memory, clock):
    """It was recorded, and then said that the lease was lost; the mark of the open job run stayed."""
    fails = FailsAt(0, kinds=("delete",))
    state = StateStore(InterceptedStore(memory, fails))
    state.accept(RUN)
    held = claim(state, state.job_run("run-1"), "a", 60.0, clock())
    with pytest.raises(StoreError):
        held.end(JobRunState.SUCCEEDED)
    assert fails.failed and [mark.job_run_id for mark in state.open_job_runs()] == ["run-1"]
    held.end(JobRunState.SUCCEEDED)
    assert list(state.open_job_runs()) == [] and state.job_run("run-1").value.state is JobRunState.SUCCEEDED


def test_a_lease_that_is_given_back_is_free_at_once_and_its_epoch_goes_on(state, clock):
    state.accept(RUN)
    claim(state, state.job_run("run-1"), "a", 60, clock.now_s).release()
    b = claim(state, state.job_run("run-1"), "b", 60, clock.now_s)
    assert b is not None and b.epoch == 2 and b.run.takeovers == 0


def test_a_lost_reply_does_not_lose_the_lease(memory, clock):
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

"""One damaged or foreign object among the records or in the queue costs nobody else anything: named once, counted."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
from sessions_clock import clock  # noqa: F401
from sessions_records import job_run, session
from stores import InterceptedStore

from deltacompact.base.errors import CorruptionError, InputError
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.opening import open_store
from sessions import cli
from sessions.base.model import DispatcherSign, JobRunState
from sessions.dispatch.expiry import expire
from sessions.events.courier import Courier
from sessions.events.outbox import Outbox
from sessions.events.recording import record_missing
from sessions.metrics.collector import RecordsCollector
from sessions.metrics.families import exposition
from sessions.overview.next_steps import Places
from sessions.overview.overview import OverviewReader
from sessions.page.documents import row, summary
from sessions.planning.learning import RateStore
from sessions.planning.starts import StartStore
from sessions.queues.directory import DirectoryQueue
from sessions.records.leases import claim
from sessions.records.state_store import StateStore
from sessions.records.swapping import SwappedRecords

ONE = "9" * 20 + ".json"
GOOD = "good"
HARMS = {
    "no JSON": b"\x00\xff{",
    "empty": b"",
    "another type": b"[1, 2]",
    "no record": b'{"written": []}',
    "another record": json.dumps({"written": [], "number": 1, "value": {"id": 7}}).encode(),
    "a newer release": json.dumps({"written": [], "number": 1, "value": {"format": 9, "id": "bad"}}).encode(),
    "deep": b"[" * 100_000,
}
NO_NUMBERS = ["NaN", "-Infinity", "1e999", "9" * 400]


@pytest.fixture
def memory(clock):
    return MemoryStore(clock=clock)


def accepted(memory, *names):
    state = StateStore(memory)
    for name in names:
        state.accept(job_run(name, state=JobRunState.ACCEPTED, lease=None))
        state.add_session(session(run=name))


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
@pytest.mark.parametrize("what", ["run", "sessions/day=2024-01-01"])
def test_one_damaged_record_leaves_every_other_readable_and_is_named_once(memory, caplog, harm, what):
    accepted(memory, "bad", GOOD)
    damaged = f"job-runs/bad/{what}/{ONE}"
    assert memory.get(damaged)
    memory.put(damaged, harm)
    state = StateStore(memory)
    reader = OverviewReader(state, clock=memory._clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert GOOD in {seen.run.id for seen in reader.read().job_runs}
            assert GOOD in {run.id for run in state.job_runs()}
            assert len(list(state.sessions(GOOD))) == 1
    named = [record for record in caplog.records if "job-runs/bad" in record.getMessage()]
    assert len(named) == 1 and len(state.unreadable) == 1
    text = exposition(RecordsCollector(reader.read)).decode()
    assert f"deltacompact_unreadable_objects {len(state.unreadable):.1f}" in text
    assert expire(StateStore(memory), -1.0).unreadable == (["bad"] if what == "run" else [])
    assert memory.get(damaged) == harm, "nobody closes or replaces what he cannot read"


@pytest.mark.parametrize("number", NO_NUMBERS, ids=["nan", "infinity", "large", "long"])
@pytest.mark.parametrize(("what", "name"), [("run", "accepted_s"), ("sessions/day=2024-01-01", "started_s")])
def test_a_time_that_no_json_holds_costs_the_page_one_record(memory, what, name, number):
    """The page answered 500, also about all other job runs."""
    accepted(memory, "bad", GOOD)
    path = f"job-runs/bad/{what}/{ONE}"
    document = json.loads(memory.get(path))
    document["value"][name] = "here"
    memory.put(path, json.dumps(document).replace('"here"', number).encode())
    state = StateStore(memory)
    overview = OverviewReader(state).read()
    told = [summary(overview, Places("state", "queue")), *(row(one) for one in overview.sessions)]
    assert f'"id": "{GOOD}"' in json.dumps(told, allow_nan=False) and len(state.unreadable) == 1


def test_a_record_that_is_repaired_is_no_longer_counted(memory):
    accepted(memory, "bad")
    path = f"job-runs/bad/run/{ONE}"
    whole = memory.get(path)
    memory.put(path, b"{")
    state = StateStore(memory)
    reader = OverviewReader(state)
    assert reader.read().job_runs == () and len(state.unreadable) == 1
    memory.put(path, whole)
    assert len(reader.read().job_runs) == 1 and len(state.unreadable) == 0


def test_a_record_of_a_newer_release_is_neither_closed_nor_replaced(memory, clock):
    accepted(memory, "newer")
    state = StateStore(memory)
    stored = state.job_run("newer")
    path = f"job-runs/newer/run/{ONE}"
    document = json.loads(memory.get(path))
    document["value"] |= {"format": 9, "shape": "unknown"}
    memory.put(path, json.dumps(document).encode())
    with pytest.raises(CorruptionError, match="a newer one wrote it, so update this one"):
        state.job_run("newer")
    assert state.change_job_run(stored, replace(stored.value, state=JobRunState.FAILED)) is None
    assert json.loads(memory.get(path)) == document


def test_foreign_objects_in_every_folder_of_the_state_hinder_nobody(memory, caplog):
    accepted(memory, GOOD)
    Outbox(memory).expect(GOOD)
    state = StateStore(memory)
    state.say(DispatcherSign("a", "host", 1, 0.0, 0.0, "file:///queue", 2))
    for folder in ("open/", "job-runs/", f"job-runs/{GOOD}/", f"job-runs/{GOOD}/run/", "dispatchers/", "pending/",
                   "rates/", "watch-decisions/", "ended/", "logs/", f"job-runs/{GOOD}/events-sent/"):  # fmt: skip
        for name in (".DS_Store", "notes of mine.txt", "a/b/c.json", f"x/{'8' * 20}.json"):
            memory.put(folder + name, b"foreign")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert [mark.job_run_id for mark in state.open_job_runs()] == [GOOD]
            reader = OverviewReader(state)
            assert [seen.run.id for seen in reader.read().job_runs] == [GOOD]
            assert [said.dispatcher.owner for said in reader.read().dispatchers] == ["a"]
            assert reader.decisions() == []
            Courier(state, None).deliver()
            assert expire(state, -1.0).job_run_ids == []
    said = [record.getMessage() for record in caplog.records]
    assert any("open/.DS_Store" in line for line in said) and any("dispatchers/.DS_Store" in line for line in said)
    assert sum("open/notes of mine.txt" in line for line in said) == 1
    assert claim(state, state.job_run(GOOD), "a", 60.0, memory._clock()) is not None


def test_what_may_not_be_read_is_left_out_like_what_is_damaged(memory):
    accepted(memory, "bad", GOOD)

    def refuse(kind, path, act):
        if kind == "get" and "/bad/" in path:
            raise InputError(f"{path}: permission to read is denied")
        return act()

    state = StateStore(InterceptedStore(memory, refuse))
    assert [seen.run.id for seen in OverviewReader(state).read().job_runs] == [GOOD]
    assert [run.id for run in state.job_runs()] == [GOOD]


def test_damaged_rates_are_no_reason_for_a_job_run_to_fail(memory):
    records = SwappedRecords(memory)
    memory.put(f"rates/local-local/{ONE}", b"{")
    memory.put(f"rates/starts/{ONE}", b"{")
    assert RateStore(records).rates("local/local").observations == ()
    assert StartStore(records).read().seconds == {}
    assert len(records.unreadable) == 2


@pytest.mark.parametrize("where", ["memory", "folder"])
@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_damaged_rates_are_learned_again(memory, tmp_path, where, harm):
    """Each lesson was lost, with a warning, until somebody removed the damaged object by hand."""
    store = memory if where == "memory" else open_store(str(tmp_path))
    for _ in range(2):
        StartStore(SwappedRecords(store)).learn("a/b", 3.0)
    *_, newest = store.list("rates/starts/")
    store.put(newest.path, harm)
    records = SwappedRecords(store)
    assert StartStore(records).read().seconds == {}
    StartStore(records).learn("a/b", 4.0)
    assert StartStore(SwappedRecords(store)).read().seconds["a/b"][-1] == 4.0 and len(records.unreadable) == 0


@pytest.mark.parametrize("name", [".DS_Store", "notes of mine.txt", "a/b/c.json"])
def test_a_foreign_object_among_the_events_keeps_no_event_back(memory, name):
    """It was taken for an event that does not exist, so no event of the job run was ever sent."""
    accepted(memory, GOOD)
    record_missing(StateStore(memory), StateStore(memory).job_run(GOOD).value)
    outbox = Outbox(memory)
    recorded = outbox.recorded(GOOD)
    memory.put(f"job-runs/{GOOD}/events/{name}", b"foreign")
    assert outbox.recorded(GOOD) == recorded and all(outbox.read(GOOD, event) for event in recorded)


def test_a_damaged_event_or_batch_keeps_no_other_event_back(memory):
    accepted(memory, GOOD, "other")
    outbox = Outbox(memory)
    memory.put(f"job-runs/{GOOD}/events-sent/1.json", b"{")
    memory.put(f"job-runs/{GOOD}/events-sent/2.json", b'["a"]')
    assert outbox.sent(GOOD) == {"a"}


def test_foreign_files_in_the_queue_are_left_out_and_the_queue_is_empty_all_the_same(tmp_path, caplog):
    queue = DirectoryQueue(tmp_path / "q")
    queue.send("good")
    for name in ("ready", "leased", "dead"):
        (tmp_path / "q" / name / "notes.txt").write_text("mine")
        (tmp_path / "q" / name / ".DS_Store").write_text("a Mac's")
        (tmp_path / "q" / name / "folder.0").mkdir()
        (tmp_path / "q" / name / f"folder.1.{'a' * 32}").mkdir()
    (message,) = queue.receive(10, 0)
    assert message.body == "good" and queue.depth().leased == 1
    queue.acknowledge(message)
    for _ in range(3):
        assert queue.receive(10, 0) == [] and queue.depth().is_empty and list(queue.dead_letters()) == []
    assert queue.depth().unreadable >= 5
    assert sum("ready/notes.txt is left out" in record.getMessage() for record in caplog.records) == 1
    (tmp_path / "q" / "ready" / "notes.txt").unlink()
    before = queue.depth().unreadable
    assert queue.depth().unreadable == before < 9


def test_a_damaged_dead_letter_leaves_the_others_to_be_listed_and_sent_back(tmp_path):
    queue = DirectoryQueue(tmp_path / "q")
    queue.send("bad document")
    (message,) = queue.receive(1, 0)
    queue.dead_letter(message, "invalid_document", "", "why")
    for name, text in (("0.json", "{"), ("1.json", '{"body": 7, "more": 1}'), ("2.json", "[]")):
        (tmp_path / "q" / "dead" / name).write_text(text)
    (letter,) = queue.dead_letters()
    assert letter.body == "bad document"
    queue.redrive(letter)
    assert [received.body for received in queue.receive(1, 0)] == ["bad document"]


def test_status_shows_the_others_and_says_what_was_left_out(tmp_path, capsys):
    state = StateStore(str(tmp_path))
    accepted(state.store, "bad", GOOD)
    (stat,) = state.store.list("job-runs/bad/run/")
    state.store.put(stat.path, b"{")
    assert cli.run(["status", "--state", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert GOOD in said and "1 object left out: job-runs/bad/run:" in said and "is damaged" in said
    assert cli.run(["status", "--state", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [run["id"] for run in told["job_runs"]] == [GOOD] and list(told["unreadable"]) == ["job-runs/bad/run"]
    assert cli.run(["sla", "--state", str(tmp_path)]) == 0

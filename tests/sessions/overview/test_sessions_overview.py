"""What the reader of the page asks the store and the queue, and what it does without their answers."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from counting_store import CountingStore
from sessions_records import NOW_S, job_run, session, succeeded
from sqs_pair import sqs_queue, sqs_queues
from stores import InterceptedStore

from deltacompact.storage.memory import MemoryStore
from sessions.base.model import JobRunState
from sessions.cli import run
from sessions.overview.overview import OverviewReader
from sessions.queues.opening import open_queue
from sessions.records.decisions import keep_decisions
from sessions.records.lives import retry
from sessions.records.state_store import StateStore

ACCEPTED = job_run("run-1", accepted_s=NOW_S)


def decided(table: str) -> dict[str, object]:
    return {
        "table": table,
        "partition": {},
        "policy": "p",
        "action": "wait",
        "reason": "deltas",
        "text": "few",
        "job_run_id": None,
    }


def kept(store, tables: int) -> None:
    for number in range(tables):
        keep_decisions(store, f"t{number}", NOW_S, [decided(f"t{number}")])


def end(state: StateStore, as_: JobRunState, at_s: float) -> None:
    stored = state.job_run("run-1")
    state.close(state.change_job_run(stored, replace(stored.value, state=as_, finished_s=at_s)).value)


@pytest.mark.parametrize("is_seen_open", [True, False])
def test_a_job_run_that_is_run_again_is_seen_as_it_ended_last(is_seen_open):
    now_s = [NOW_S]
    state = StateStore(MemoryStore())
    reader = OverviewReader(state, clock=lambda: now_s[0])

    def seen():
        (job_run,) = reader.read().job_runs
        return job_run.run.state

    state.accept(ACCEPTED)
    end(state, JobRunState.FAILED, NOW_S)
    assert seen() is JobRunState.FAILED
    now_s[0] += 1
    retry(state, "run-1")
    if is_seen_open:
        assert seen() is JobRunState.ACCEPTED
    end(state, JobRunState.SUCCEEDED, NOW_S + 12)
    now_s[0] += 30
    assert seen() is JobRunState.SUCCEEDED


def test_an_end_is_read_once_though_an_open_mark_was_left_behind():
    memory = MemoryStore()
    state = StateStore(memory)
    state.accept(replace(ACCEPTED, session_ids=(session().id,)))
    state.add_session(succeeded(session()))
    end(state, JobRunState.SUCCEEDED, NOW_S)
    memory.put("open/run-1", b"")
    store = CountingStore(memory)
    reader = OverviewReader(StateStore(store))
    reader.read()
    store.reset()
    (job_run,) = reader.read().job_runs
    assert len(job_run.sessions) == 1 and not [path for _, path in store.requests if "/sessions/" in path]


@pytest.mark.processes
def test_job_runs_are_seen_though_their_queue_is_gone(moto_endpoint, caplog):
    import boto3

    url = sqs_queue()
    state, queue = StateStore(MemoryStore()), open_queue(url)
    state.accept(ACCEPTED)
    reader = OverviewReader(state, queue)
    assert reader.read().depth is not None
    boto3.client("sqs").delete_queue(QueueUrl=url)
    seen = reader.read()
    assert seen.depth is None and [job_run.run.id for job_run in seen.job_runs] == ["run-1"]
    assert reader.read().depth is None and caplog.text.count("does not exist") == 1


@pytest.mark.processes
def test_the_page_counts_the_dead_letters_of_a_queue_that_is_named(moto_endpoint, capsys):
    url, dead = sqs_queue(), sqs_queues()[1]
    open_queue(dead).send("{}")
    assert OverviewReader(StateStore(MemoryStore()), open_queue(url, dead)).read().depth.dead == 1
    assert run(["page", "--state", "/none", "--dead-letters", dead]) == 2
    assert "--dead-letters is for --queue" in capsys.readouterr().err


def test_decisions_are_read_side_by_side_and_again_only_if_they_were_replaced():
    now_s = [NOW_S]
    memory = MemoryStore()
    kept(memory, 40)
    store = CountingStore(memory, 0.01)
    reader = OverviewReader(StateStore(store), clock=lambda: now_s[0])
    assert len(reader.decisions()) == 40
    assert store.by_kind()["get"] == 40 and store.at_once_max >= 8
    store.reset()
    now_s[0] += 9
    keep_decisions(memory, "t7", NOW_S + 9, [decided("t7")])
    memory.delete(["watch-decisions/t8.json"])
    assert {each.table: each.at_s for each in reader.decisions()}["t7"] == NOW_S + 9
    assert store.by_kind() == {"list": 1, "get": 1}
    assert len(reader.decisions()) == 39


def test_reading_decisions_does_not_hold_up_the_overview():
    entered, go_on = threading.Event(), threading.Event()

    def intercept(kind, path, act):
        if kind == "get" and path.startswith("watch-decisions/"):
            entered.set()
            assert go_on.wait(30)
        return act()

    memory = MemoryStore()
    kept(memory, 1)
    StateStore(memory).accept(ACCEPTED)
    reader = OverviewReader(StateStore(InterceptedStore(memory, intercept)))
    asking = threading.Thread(target=reader.decisions)
    asking.start()
    try:
        assert entered.wait(30)
        reading = threading.Thread(target=reader.read, daemon=True)
        reading.start()
        reading.join(10)
        assert not reading.is_alive()
    finally:
        go_on.set()
        asking.join()

"""What the reader of the page asks the store and the queue, and what it does without their answers."""

from __future__ import annotations

import threading

import pytest
from counting_store import CountingStore
from sessions_records import NOW_S, job_run
from sqs_pair import sqs_queue, sqs_queues
from stores import InterceptedStore

from deltacompact.storage.memory import MemoryStore
from sessions.cli import run
from sessions.overview.overview import OverviewReader
from sessions.queues.opening import open_queue
from sessions.records.decisions import keep_decisions
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

"""Acceptance: recorded before it is acknowledged, once; put off where the state does not answer."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import replace
from unittest.mock import Mock

import pytest
from sessions_clock import clock  # noqa: F401
from stores import Crash, FailsAt, InterceptedStore

from deltacompact.base.errors import BucketMissingError, InputError, NotFoundError, StoreError
from deltacompact.storage.memory import MemoryStore
from sessions.base.model import JobRunState
from sessions.cli import run
from sessions.dispatch.intake import Intake
from sessions.documents.allow_list import AllowList
from sessions.queues.directory import DirectoryQueue
from sessions.records.state_store import StateStore

DOCUMENT = {"version": 1, "catalog": "s3://lake/tables", "source_table_id": "t", "job_run_id": "run-1"}


@pytest.fixture
def queue(tmp_path, clock):
    return DirectoryQueue(tmp_path, visibility_s=30, clock=clock)


def take_all(queue, store, allowed=()):
    intake = Intake(queue, StateStore(store), AllowList(allowed))
    taken = [intake.take(message) for message in queue.receive(10, 0)]
    return [name for name in taken if name]


def test_a_job_run_is_accepted_once_however_often_it_is_sent(queue):
    store = MemoryStore()
    for _ in range(3):
        queue.send(json.dumps(DOCUMENT))
    assert take_all(queue, store) == ["run-1"]
    assert queue.depth().is_empty
    queue.send(json.dumps(DOCUMENT))
    assert take_all(queue, store) == [] and queue.depth().is_empty


def test_a_message_without_id_is_known_by_its_own(queue, clock):
    store = MemoryStore()
    message_id = queue.send(json.dumps({**DOCUMENT, "job_run_id": None}))
    queue.receive(1, 0)  # by somebody who died
    clock.now_s += 31
    assert take_all(queue, store) == [message_id]


def test_a_dead_letter_that_is_sent_back_runs_once_its_id_is_free(queue, clock):
    """It kept its sending time, lay before the end of the job run that had its id, and died again."""
    store = MemoryStore()
    state = StateStore(store)
    for version in (DOCUMENT, {**DOCUMENT, "source_table_id": "other"}):
        queue.send(json.dumps(version))
    assert take_all(queue, store) == ["run-1"] and queue.depth().dead == 1
    stored = state.job_run("run-1")
    clock.now_s += 10
    state.change_job_run(stored, replace(stored.value, state=JobRunState.FAILED, finished_s=clock.now_s))
    clock.now_s += 10
    (letter,) = queue.dead_letters()
    queue.redrive(letter)
    assert take_all(queue, store) == ["run-1"] and queue.depth().dead == 0
    assert state.job_run("run-1").value.document["source_table_id"] == "other"


@pytest.mark.parametrize("fault", [StoreError, Crash])
@pytest.mark.parametrize("after", [False, True])
def test_whatever_fails_nothing_is_lost_and_nothing_is_accepted_twice(queue, clock, fault, after):
    """Every operation of the state fails once, before or after it happened, or the process dies there."""
    at, accepted = 0, Counter()
    while True:
        memory, name = MemoryStore(), f"run-{fault.__name__}-{after}-{at}"
        fails = FailsAt(at, after=after, error=fault)
        queue.send(json.dumps({**DOCUMENT, "job_run_id": name}))
        try:
            accepted.update(take_all(queue, InterceptedStore(memory, fails)))
        except Crash:
            assert not queue.depth().is_empty, "it was acknowledged before it was recorded"
        for _ in range(2):
            clock.now_s += 70  # whatever was put off, or whose receiver died, comes again
            accepted.update(take_all(queue, memory))
        state = StateStore(memory)
        assert [run.id for run in state.job_runs()] == [name] == [mark.job_run_id for mark in state.open_job_runs()]
        assert queue.depth().is_empty and not list(queue.dead_letters())
        if fails.failed is None:
            break
        at += 1
    assert at >= 4 and max(accepted.values()) == 1


def refused_s(queue, intake):
    """When the state last refused, once all messages that are there have been dealt with."""
    for message in queue.receive(10, 0):
        intake.take(message)
    return intake.refused_s


@pytest.mark.parametrize("refused", [StoreError("503"), InputError("no access"), BucketMissingError("no bucket")])
def test_only_refusals_of_the_state_keep_the_dispatcher_from_receiving(queue, clock, monkeypatch, refused):
    state = StateStore(MemoryStore())
    intake = Intake(queue, state, AllowList(()))
    queue.send(json.dumps(DOCUMENT))
    with monkeypatch.context() as down:
        down.setattr(queue, "acknowledge", Mock(side_effect=refused))
        assert refused_s(queue, intake) == -math.inf, "the queue refused"
    clock.now_s += 70
    with monkeypatch.context() as expired:
        expired.setattr(state, "job_run", Mock(side_effect=NotFoundError("it was removed meanwhile")))
        assert refused_s(queue, intake) == -math.inf, "one record is missing"
    clock.now_s += 70
    with monkeypatch.context() as down:
        down.setattr(state, "job_run", Mock(side_effect=refused))
        assert refused_s(queue, intake) > 0


def test_a_message_that_the_state_refuses_for_an_hour_does_not_die(queue, clock, monkeypatch):
    """The state may take the dispatcher's signs of life, and no job runs."""
    monkeypatch.setattr(random, "uniform", lambda least, most: (least + most) / 2)
    state = StateStore(MemoryStore())
    intake = Intake(queue, state, AllowList(()))
    queue.send(json.dumps(DOCUMENT))
    until_s = clock.now_s + 3600.0
    with monkeypatch.context() as denied:
        denied.setattr(state, "accept", Mock(side_effect=InputError("S3 refused access (AccessDenied)")))
        while clock.now_s < until_s:
            clock.now_s += 10.0
            refused_s(queue, intake)
    clock.now_s += 900.0
    refused_s(queue, intake)
    assert state.job_run("run-1") and queue.depth().is_empty and not queue.depth().dead


def test_what_can_never_be_served_says_why(queue):
    store = MemoryStore()
    queue.send(json.dumps(DOCUMENT))
    take_all(queue, store)
    queue.send(json.dumps({**DOCUMENT, "desired_sla": 5}))
    queue.send(json.dumps({**DOCUMENT, "catalog": "s3://other/x"}))
    queue.send(json.dumps({**DOCUMENT, "partitions": [{"day": []}]}))
    assert take_all(queue, store, ["s3://lake"]) == []
    assert {letter.reason: letter.field for letter in queue.dead_letters()} == {
        "job_run_id_taken": "job_run_id",
        "catalog_not_allowed": "catalog",
        "invalid_document": "partitions[0].day",
    }


def test_a_dead_letter_is_named_once_and_not_before_it_is_one(queue, clock, monkeypatch, caplog):
    message_id = queue.send("{")
    with monkeypatch.context() as full:
        full.setattr(queue, "_write", Mock(side_effect=StoreError("writing failed: No space left on device")))
        take_all(queue, MemoryStore())
    assert [message_id in line and "put off" in line for line in caplog.messages] == [True]
    clock.now_s += 70
    take_all(queue, MemoryStore())
    assert f"message {message_id} is a dead letter (invalid_document)" in caplog.messages[1]
    assert len(caplog.messages) == 2 and queue.depth().dead == 1


def test_submit_sends_what_a_dispatcher_accepts(tmp_path, queue, capsys):
    """A document just below the limit, in letters that JSON may spell longer."""
    document = tmp_path / "job.json"
    values = {**DOCUMENT, "partitions": [{"day": "é" * 900 + str(number)} for number in range(550)]}
    document.write_text(json.dumps(values, ensure_ascii=False))
    assert run(["submit", str(document), "--queue", queue.uri]) == 0
    assert take_all(queue, MemoryStore()) == ["run-1"]
    assert run(["submit", str(document), "--queue", queue.uri, "--job-run-id", "a/b"]) == 2
    assert "job_run_id" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--queue", "ftp://x", "--state", "STATE"],
        ["--queue", "QUEUE", "--state", "ftp://x"],
        ["--queue", "QUEUE", "--state", "STATE", "--allow", "s3://a/../b"],
        ["--queue", "QUEUE", "--state", "STATE", "--dead-letters", "https://x"],
        ["--queue", "QUEUE", "--state", "STATE", "--max-sessions", "0"],
        ["--queue", "QUEUE", "--state", "STATE", "--grace", "nan"],
        ["--queue", "QUEUE", "--state", "STATE", "--node-type", "r6in.4xlarge"],
        ["--queue", "QUEUE", "--state", "FILE"],
        ["--queue", "FILE", "--state", "STATE"],
    ],
)
def test_a_dispatcher_that_cannot_work_says_so_at_once(tmp_path, options, capsys):
    places = {name: str(tmp_path / name) for name in ("QUEUE", "STATE", "FILE")}
    (tmp_path / "FILE").touch()
    assert run(["dispatch", *(places.get(word, word) for word in options)]) == 2
    assert capsys.readouterr().err.strip()

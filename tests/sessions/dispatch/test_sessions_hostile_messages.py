"""No message holds up another one: each is accepted or a dead letter the first time that it is received.

A good document is broken in its values (any JSON value anywhere) or in its bytes, and sent between two good ones.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import pytest
from budgets import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltacompact.base.errors import CorruptionError, InputError
from deltacompact.storage.memory import MemoryStore
from sessions.cli import run
from sessions.dispatch.intake import Intake
from sessions.documents.allow_list import AllowList
from sessions.documents.instruction import parse
from sessions.documents.refusal import RefusedDocument
from sessions.queues.directory import DirectoryQueue
from sessions.queues.queue import DeadReason
from sessions.records.state_store import StateStore

GOOD = {"version": 1, "catalog": "s3://lake/tables", "source_table_id": "orders"}
FULL = {
    **GOOD,
    "job_run_id": "run-x",
    "primary_keys": ["id"],
    "sort_keys": [["updated", "ascending"]],
    "desired_sla": 900,
    "destination_compacted_table_id": "folded",
    "rows_per_compacted_file": 10,
    "hash_bucket_count": 4,
    "sns_event_topic_arn": "arn:aws:sns:eu-west-1:123456789012:events",
    "compacted_file_content_type": "parquet",
    "partitions": [{"day": "a", "hour": 1}, {"day": None}],
    "purge": True,
    "settings": {"executor": "local", "rows_per_round": 10, "compression": "zstd", "read_mb_per_s": 1.5},
}
ICEBERG = {
    **GOOD,
    "catalog": "iceberg://prod",
    "source_table_id": "db.orders",
    "mode": "rewrite",
    "options": {"delete-file-threshold": 1, "partial-progress.enabled": True, "x": 1.5},
    "branch": "main",
}
URIS = ["s3://[x/t", "s3://[::1", "http://[", "file://[a]b/c", "s3://a\u2100b/t", "s3://x\x00/t"]
TEXTS = [
    *URIS,
    "//[",
    "iceberg://[x",
    "",
    "\x00",
    "\ud800",
    "é" * 2000,
    "x" * 100_000,
    "\u202e",
    "%00",
    "..",
    "/a" * 3000,
]
NUMBERS = [0, -1, 2**63, -(2**63) - 1, 10**4000, 1e999, -1e999, float("nan"), 1e-320, 1.0, True]
hostile_values = st.recursive(
    st.none() | st.sampled_from(TEXTS) | st.sampled_from(NUMBERS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(TEXTS) | st.text(max_size=3), inner),
    max_leaves=4,
)
BYTES = [b'"', b"\\", b"{", b"[", b"\x00", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"9" * 5000, b"1e999", b"NaN", b","]
DEEP = {"options": json.loads("[" * 300 + "]" * 300)}


def taken(folder, bodies: list[bytes], allowed: tuple[str, ...] = ("s3://lake", "iceberg://prod")):
    """What is accepted and what is dead after each message was received once."""
    queue, state = DirectoryQueue(folder), StateStore(MemoryStore())
    dead_before = {letter.id for letter in queue.dead_letters()}
    for body in bodies:
        queue.send(body.decode(errors="surrogateescape"))
    intake = Intake(queue, state, AllowList(allowed))
    for message in queue.receive(len(bodies), 0):
        intake.take(message)
    assert queue.depth().is_empty, "a message was neither accepted nor put among the dead letters"
    letters = [letter for letter in queue.dead_letters() if letter.id not in dead_before]
    return [found.id for found in state.job_runs()], letters


def send_between_good_ones(body: bytes) -> None:
    good = [json.dumps({**GOOD, "job_run_id": name}).encode() for name in ("before", "after")]
    with tempfile.TemporaryDirectory() as folder:
        accepted, letters = taken(Path(folder), [good[0], body, good[1]])
    assert {"before", "after"} <= set(accepted), "a good message was lost with the hostile one"
    assert len(accepted) + len(letters) == 3
    for letter in letters:
        assert letter.reason in (DeadReason.INVALID_DOCUMENT, DeadReason.CATALOG_NOT_ALLOWED) and letter.text


@settings(max_examples=examples(200), deadline=None)
@example(FULL, ["catalog"], "s3://[x/t")
@example(GOOD, ["source_table_id"], DEEP)
@example(ICEBERG, ["options", "x"], 1e999)
@given(
    st.sampled_from([FULL, ICEBERG]), st.lists(st.sampled_from(sorted({*FULL, *ICEBERG})), max_size=2), hostile_values
)
def test_a_hostile_value_anywhere_costs_no_other_job_run(document, path, value):
    values = json.loads(json.dumps(document))
    holder = values
    for step in path[:-1]:
        holder = holder.get(step) if isinstance(holder.get(step), dict) else holder
    holder[path[-1] if path else "more"] = value
    send_between_good_ones(json.dumps(values).encode())


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from([FULL, ICEBERG]),
    st.lists(
        st.tuples(st.integers(0, 600), st.integers(0, 3), st.sampled_from(BYTES) | st.binary(max_size=3)), min_size=1
    ),
)
def test_hostile_bytes_anywhere_cost_no_other_job_run(document, edits):
    body = json.dumps(document).encode()
    for at, cut, inserted in edits:
        body = body[:at] + inserted + body[at + cut :]
    send_between_good_ones(body)


@pytest.mark.parametrize("uri", URIS)
def test_a_catalog_that_is_no_uri_is_refused_by_its_field(tmp_path, uri):
    accepted, (letter,) = taken(tmp_path, [json.dumps({**GOOD, "catalog": uri}).encode()], ())
    assert accepted == [] and (letter.reason, letter.field) == (DeadReason.INVALID_DOCUMENT, "catalog")


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b'{"version": 1e999}', "version"),
        (b'{"options": {"x": -1e999}}', "options.x"),
        ('{"version": 1, "catalog": "\ud800"}', ""),
        (b'{"version": 1, "catalog": "\\ud800", "source_table_id": "t"}', "catalog"),
    ],
)
def test_what_no_json_holds_is_refused(raw, field):
    with pytest.raises(RefusedDocument) as refused:
        parse(raw)
    assert refused.value.field == field


def test_many_names_are_refused_at_once():
    """A megabyte of names with a repeated one at its end: the square of it would stop a dispatcher for an hour."""
    names = ",".join(f'"{number}":0' for number in range(90_000))
    began_s = time.process_time()
    with pytest.raises(RefusedDocument, match="the field is there twice"):
        parse(f'{{{names},"89999":1}}')
    assert time.process_time() - began_s < 5


@pytest.mark.parametrize("arn", ["events", "arn:aws:sns:eu-west-1:12:events", "arn:aws:sqs:eu-west-1:123456789012:q"])
def test_a_topic_that_cannot_be_is_refused_before_the_job_run(arn):
    with pytest.raises(RefusedDocument) as refused:
        parse(json.dumps({**GOOD, "sns_event_topic_arn": arn}))
    assert refused.value.field == "sns_event_topic_arn" and "is not an ARN like" in str(refused.value)


def test_what_nobody_foresaw_puts_off_its_message_alone(tmp_path, monkeypatch):
    """An error of ours while a message is dealt with: it comes again, and the batch goes on."""
    queue, state = DirectoryQueue(tmp_path), StateStore(MemoryStore())
    accept = state.accept

    def broken(run):
        if run.id == "bad":
            raise RuntimeError("nobody foresaw this")
        return accept(run)

    monkeypatch.setattr(state, "accept", broken)
    for name in ("bad", "good"):
        queue.send(json.dumps({**GOOD, "job_run_id": name}))
    intake = Intake(queue, state, AllowList(()))
    assert [intake.take(message) for message in queue.receive(10, 0)] == [None, "good"]
    assert (queue.depth().leased, queue.depth().dead) == (1, 0)


def test_a_bad_document_that_cannot_be_buried_is_put_off_alone(tmp_path, monkeypatch):
    queue = DirectoryQueue(tmp_path)

    def broken(*_):
        raise KeyError("nobody foresaw this")

    monkeypatch.setattr(queue, "dead_letter", broken)
    for body in ({}, {**GOOD, "job_run_id": "good"}):
        queue.send(json.dumps(body))
    intake = Intake(queue, StateStore(MemoryStore()), AllowList(()))
    assert {intake.take(message) for message in queue.receive(10, 0)} == {None, "good"}
    assert (queue.depth().leased, queue.depth().dead) == (1, 0)


def test_what_is_wrong_with_a_document_is_said_where_there_is_no_queue_for_it(tmp_path, monkeypatch, caplog):
    """The log named the queue that is missing, again and again, and never what was wrong with the document."""
    queue = DirectoryQueue(tmp_path)

    def missing(*_):
        raise InputError("the queue has no redrive policy")

    monkeypatch.setattr(queue, "dead_letter", missing)
    queue.send("{")
    for message in queue.receive(10, 0):
        Intake(queue, StateStore(MemoryStore()), AllowList(())).take(message)
    (said,) = (record.getMessage() for record in caplog.records)
    assert "is put off" in said and "not JSON" in said and "the queue has no redrive policy" in said


def test_a_record_that_is_damaged_puts_off_its_message_alone(tmp_path, monkeypatch):
    queue, state = DirectoryQueue(tmp_path), StateStore(MemoryStore())

    def damaged(run):
        raise CorruptionError("damaged")

    monkeypatch.setattr(state, "accept", damaged)
    queue.send(json.dumps(GOOD))
    assert [Intake(queue, state, AllowList(())).take(message) for message in queue.receive(10, 0)] == [None]
    assert queue.depth().leased == 1


@pytest.mark.parametrize("uri", ["http://[x", "file://[x", "https://[x/123/q"])
def test_a_queue_that_is_no_uri_is_one_line(uri, capsys, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(GOOD))
    assert run(["submit", str(tmp_path / "job.json"), "--queue", uri]) == 2
    assert "Traceback" not in capsys.readouterr().err

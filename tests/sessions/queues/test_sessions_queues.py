"""Queues: one contract for the directory and for SQS, and what only one of them can show."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
import uuid
from unittest.mock import Mock

import pytest
from faulty_s3 import faulty_s3, first
from sessions_clock import clock  # noqa: F401
from sqs_pair import sqs_queue, sqs_queues

from deltacompact.base.errors import InputError, StoreError
from sessions.base.clock import StoreClock
from sessions.cli import run
from sessions.queues import sqs
from sessions.queues.directory import DirectoryQueue
from sessions.queues.opening import open_queue
from sessions.queues.queue import DeadReason
from sessions.queues.sqs import SqsQueue, _Ages


class Ahead:
    """The time of now, and as many seconds later as a test says."""

    def __init__(self) -> None:
        self.by_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.by_s


@pytest.fixture
def ahead(monkeypatch):
    """The clock of a directory, and of moto, which stands in for SQS."""
    from moto.sqs import models

    clock, unix_time, unix_time_millis = Ahead(), models.unix_time, models.unix_time_millis
    monkeypatch.setattr(models, "unix_time", lambda *of: unix_time(*of) + clock.by_s)
    monkeypatch.setattr(models, "unix_time_millis", lambda *of: unix_time_millis(*of) + 1000 * clock.by_s)
    return clock


@pytest.fixture(autouse=True)
def sqs_is_not_waited_for(monkeypatch):
    """Of moto's, each answer has all messages."""
    monkeypatch.setattr(sqs, "_LOOK_S", 0)


@pytest.fixture(params=["directory", *(pytest.param(kind, marks=pytest.mark.processes) for kind in ("sqs", "fifo"))])
def queue(request, tmp_path, ahead):
    """A queue of which nobody sees a message for two seconds after it was received."""
    if request.param == "directory":
        return DirectoryQueue(tmp_path / "queue", visibility_s=2, clock=ahead)
    request.getfixturevalue("moto_endpoint")
    return SqsQueue(sqs_queues(is_fifo=request.param == "fifo")[0], visibility_s=2)


def received(queue, count, wait_s=5.0):
    """So many messages, however many come at a time."""
    messages = []
    deadline_s = time.monotonic() + wait_s
    while len(messages) < count and time.monotonic() < deadline_s:
        messages += queue.receive(count - len(messages), 1)
    return messages


# --- the contract --------------------------------------------------------------------------------------------------


def test_a_message_that_is_acknowledged_is_gone(queue, ahead):
    message_id = queue.send('{"a": "é\\n"}', "orders")
    assert (queue.depth().ready, queue.depth().is_empty) == (1, False)
    (message,) = queue.receive(10, 1)
    assert (message.id, message.body, message.receives) == (message_id, '{"a": "é\\n"}', 1)
    assert abs(message.sent_s - time.time()) < 60
    assert queue.receive(10, 0) == []
    assert (queue.depth().ready, queue.depth().leased) == (0, 1)
    queue.acknowledge(message)
    assert queue.depth().is_empty
    ahead.by_s += 2.5
    assert queue.receive(10, 0) == []


def test_a_message_that_nobody_acknowledges_comes_again(queue, ahead):
    queue.send("a")
    (first,) = queue.receive(1, 1)
    ahead.by_s += 2.2
    (second,) = received(queue, 1)
    assert (second.id, second.receives) == (first.id, 2) and second.receipt != first.receipt
    queue.acknowledge(second)
    queue.acknowledge(first)  # an old receipt does no harm
    assert queue.depth().is_empty


def test_a_message_that_is_released_comes_again_after_its_time(queue, ahead):
    queue.send("a")
    (message,) = queue.receive(1, 1)
    queue.release(message, 0)
    (again,) = received(queue, 1)
    assert again.receives == 2
    queue.release(again, 30)
    ahead.by_s += 2.2
    assert queue.receive(1, 0) == []


def test_dead_letters_say_why_and_can_be_sent_back_or_deleted(queue):
    sent = [queue.send(body) for body in ("a", "b")]
    for message in received(queue, 2):
        field = "partitions[3].day" if message.body == "a" else ""
        queue.dead_letter(message, DeadReason.INVALID_DOCUMENT, field, f"{message.body} is wrong:\n\x07bell")
    assert queue.depth().is_empty and queue.depth().dead == 2
    letters = {letter.body: letter for letter in queue.dead_letters()}
    assert set(letters) == {"a", "b"}
    assert [letters[body].message_id or letters[body].id for body in ("a", "b")] == sent
    assert (letters["a"].reason, letters["a"].field) == ("invalid_document", "partitions[3].day")
    assert letters["b"].field == "" and letters["a"].text.startswith("a is wrong:")
    assert len(list(queue.dead_letters())) == 2, "listing takes nothing away"
    queue.redrive(letters["a"])
    assert [letter.body for letter in queue.dead_letters()] == ["b"]
    (message,) = received(queue, 1)
    assert message.body == "a"
    queue.drop(letters["b"])
    queue.drop(letters["b"])
    assert list(queue.dead_letters()) == [] and queue.depth().dead == 0


def test_only_dead_letters_that_are_named_are_deleted(tmp_path, capsys):
    queue, at = open_queue(str(tmp_path)), ["--queue", str(tmp_path)]
    names = {queue.send(body): body for body in ("a", "b", "c")}
    for message in queue.receive(3, 0):
        reason = DeadReason.CATALOG_NOT_ALLOWED if message.body == "c" else DeadReason.INVALID_DOCUMENT
        queue.dead_letter(message, reason, "", "bad")
    first, *_ = names

    def left() -> set[str]:
        return {names[letter.id] for letter in queue.dead_letters()}

    for words, code, bodies, said in (
        ([], 2, "abc", "their IDs, a --reason, or --all"),
        (["--all", first], 2, "abc", "their IDs, a --reason, or --all"),
        ([first, "typo"], 2, "abc", "no dead letter 'typo'"),
        (["--reason", "not_allowed"], 0, "abc", "'not_allowed', only catalog_not_allowed, invalid_document"),
        ([first], 0, "bc", "1 deleted from"),
        (["--reason", "catalog_not_allowed"], 0, "b", "1 deleted from"),
        (["--all"], 0, "", "1 deleted from"),
    ):
        assert (run(["dlq", "drop", *at, *words]), left()) == (code, set(bodies)), words
        assert said in "".join(capsys.readouterr())


def test_many_receivers_get_each_message_once(queue):
    sent = {queue.send(str(number)) for number in range(60)}
    got: list[str] = []

    def work():
        while messages := queue.receive(3, 0):
            for message in messages:
                got.append(message.id)
                queue.acknowledge(message)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(got) == sent
    if isinstance(queue, DirectoryQueue):
        assert len(got) == 60
    assert queue.depth().is_empty


def test_long_polling_returns_as_soon_as_there_is_a_message(queue):
    threading.Timer(0.5, lambda: queue.send("late")).start()
    began_s = time.monotonic()
    (message,) = queue.receive(1, 10)
    assert message.body == "late" and 0.3 < time.monotonic() - began_s < 5


# --- the directory -------------------------------------------------------------------------------------------------


def test_a_process_that_dies_between_any_two_steps_loses_no_message(tmp_path, monkeypatch):
    """Every system call that changes something is made to kill the process, before it and after it, one by one."""
    changing = ("rename", "replace", "utime", "unlink")

    class Died(BaseException):
        pass

    def history(queue):
        queue.send("good")
        queue.send("bad")
        for message in queue.receive(2, 0):
            if message.body == "good":
                queue.release(message, 0)
            else:
                queue.dead_letter(message, DeadReason.INVALID_DOCUMENT, "x", "bad")
        for letter in queue.dead_letters():
            queue.redrive(letter)

    def run_until(step, after, folder):
        count = 0
        originals = {name: getattr(os, name) for name in changing}

        def patched(name):
            def call(*arguments, **named):
                nonlocal count
                count += 1
                if count == step and not after:
                    raise Died
                result = originals[name](*arguments, **named)
                if count == step:
                    raise Died
                return result

            return call

        with monkeypatch.context() as patch:
            for name in changing:
                patch.setattr(os, name, patched(name))
            try:
                history(DirectoryQueue(folder, visibility_s=0))
            except Died:
                return True
        return False

    step, runs = 1, 0
    while run_until(step, False, tmp_path / f"{step}-before"):
        run_until(step, True, tmp_path / f"{step}-after")
        runs += 1
        step += 1
    assert runs >= 8
    for folder in tmp_path.iterdir():
        queue = DirectoryQueue(folder)
        bodies = {message.body for message in queue.receive(10, 0)} | {each.body for each in queue.dead_letters()}
        sent_both = folder.name not in ("1-before", "1-after", "2-before")
        assert bodies >= ({"good", "bad"} if sent_both else set()), folder.name


@pytest.mark.processes
@pytest.mark.parametrize("named", [True, False])
def test_a_dead_letter_queue_that_is_gone_is_the_one_that_is_named(moto_endpoint, named):
    """The queue of the documents was said not to exist."""
    import boto3

    url, dead = sqs_queues()
    queue = SqsQueue(url, dead if named else None)
    queue.send("a")
    (message,) = queue.receive(1, 1)
    boto3.client("sqs").delete_queue(QueueUrl=dead)
    with pytest.raises(InputError, match=f"{dead.rpartition('/')[2]} does not exist"):
        queue.dead_letter(message, DeadReason.INVALID_DOCUMENT, "", "bad")
    with pytest.raises(InputError, match=f"{dead.rpartition('/')[2]} does not exist"):
        list(queue.dead_letters())


def test_what_is_received_too_often_becomes_a_dead_letter(tmp_path, clock):
    queue = DirectoryQueue(tmp_path, visibility_s=10, receives_max=3, clock=clock)
    queue.send("poison")
    for receives in (1, 2, 3):
        (message,) = queue.receive(1, 0)
        assert message.receives == receives
        clock.now_s += 11
    assert queue.receive(1, 0) == []
    (letter,) = queue.dead_letters()
    assert (letter.body, letter.reason) == ("poison", "received_too_often")


def test_a_message_comes_again_although_the_clock_was_set_back_by_a_day(tmp_path, clock):
    queue = DirectoryQueue(tmp_path, visibility_s=60, clock=clock)
    queue.send("{}")
    (message,) = queue.receive(1, 0)
    clock.now_s -= 24 * 3600  # and whoever received it died
    (again,) = queue.receive(1, 0)
    assert (again.id, again.receives) == (message.id, 2)
    assert queue.receive(1, 0) == []
    clock.now_s -= 30  # less than anybody may put it off: it waits
    assert queue.receive(1, 0) == []
    clock.now_s -= 1800
    assert [message.receives for message in queue.receive(1, 0)] == [3]


def test_the_age_of_the_oldest_message(tmp_path, clock):
    queue = DirectoryQueue(tmp_path, clock=clock)
    assert queue.depth().oldest_s is None
    queue.send("a")
    clock.now_s += 90
    queue.send("b")
    assert queue.depth().oldest_s == pytest.approx(90, abs=1)


def test_a_document_that_is_no_utf8_survives_the_way(tmp_path):
    queue = open_queue(tmp_path.as_uri())
    (tmp_path / "ready" / "by-hand.0").write_bytes(b"\xff\xfe{}")
    (message,) = queue.receive(1, 0)
    queue.dead_letter(message, DeadReason.INVALID_DOCUMENT, "", "no UTF-8")
    (letter,) = queue.dead_letters()
    queue.redrive(letter)
    (again,) = (tmp_path / "ready").iterdir()
    assert again.read_bytes() == b"\xff\xfe{}"


@pytest.mark.parametrize("name", ["ready/{id}.0", "leased/{id}.1.{receipt}"])
@pytest.mark.parametrize("kind", ["link to nothing", "link to itself", "pipe", "folder", "far too long"])
def test_what_is_named_like_a_message_and_is_none_is_named_once_and_not_waited_for(tmp_path, caplog, name, kind):
    queue = DirectoryQueue(tmp_path)
    queue.send("good")
    path = tmp_path / name.format(id="00000000000001-aa", receipt="a" * 32)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "far too long":
        path.touch()
        os.truncate(path, 1 << 40)  # the disk has nothing of it
    else:
        path.symlink_to(path if kind == "link to itself" else tmp_path / "nowhere")
    for _ in range(2):
        for message in queue.receive(10, 0):
            assert message.body == "good"
            queue.acknowledge(message)
        assert queue.depth().is_empty and queue.depth().unreadable == 1
    assert [str(path) in record.getMessage() for record in caplog.records] == [True]
    path.rmdir() if kind == "folder" else path.unlink()
    assert queue.depth().unreadable == 0


def refused(*_, **__):
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_a_message_of_another_user_is_received_or_it_is_said_why_not(tmp_path, monkeypatch, caplog):
    """Only its owner, or root, may date a file."""
    DirectoryQueue(tmp_path).send("theirs")
    (sent,) = (tmp_path / "ready").iterdir()
    theirs, dated, queue = sent.stat().st_ino, os.utime, DirectoryQueue(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: sent.stat().st_uid + 1)
    monkeypatch.setattr(os, "utime", lambda path, t: refused() if path.stat().st_ino == theirs else dated(path, t))
    with monkeypatch.context() as sticky:
        sticky.setattr(os, "replace", refused)
        assert queue.receive(1, 0) == queue.receive(1, 0) == []
    (record,) = caplog.records
    assert "may not read and replace this file of another user" in record.getMessage()
    assert not any((tmp_path / "unfinished").iterdir())
    (message,) = queue.receive(1, 0)
    assert (message.body, message.receives) == ("theirs", 1) and queue.receive(1, 0) == []
    queue.acknowledge(message)
    assert queue.depth().is_empty and queue.depth().unreadable == 0


def test_a_write_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    queue = DirectoryQueue(tmp_path)

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        queue.send("a" * 1000)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("uri", ["", "s3://bucket/queue", "ftp://x"])
def test_what_is_no_queue_is_refused(uri):
    with pytest.raises(InputError):
        open_queue(uri)


# --- SQS -----------------------------------------------------------------------------------------------------------


def test_the_longest_documents_become_dead_letters_too(moto_endpoint):
    """SQS counts attributes with the body: of the reasons, what fits is sent."""
    url, _ = sqs_queues()
    queue = open_queue(url)
    queue.send("x" * ((1 << 20) - 40))
    (message,) = queue.receive(1, 0)
    queue.dead_letter(message, DeadReason.INVALID_DOCUMENT, "priority", "no JSON")
    (letter,) = queue.dead_letters()
    assert (letter.reason, letter.field, len(letter.body)) == ("invalid_document", "", (1 << 20) - 40)


@pytest.mark.processes
@pytest.mark.parametrize("is_fifo", [False, True])
def test_dead_letters_may_go_to_a_queue_of_the_other_kind(moto_endpoint, is_fifo):
    """A FIFO queue needs an id that a standard queue of AWS refuses."""
    queue = SqsQueue(sqs_queue(is_fifo), sqs_queue(not is_fifo))
    queue.send("no JSON", "orders")
    (message,) = received(queue, 1)
    with pytest.MonkeyPatch.context() as patch:  # the letter is sent, and its answer lost
        patch.setattr(queue._client, "delete_message", refused := Mock(side_effect=StoreError("no answer")))
        with pytest.raises(StoreError):
            queue.dead_letter(message, DeadReason.INVALID_DOCUMENT, "", "no JSON")
    assert refused.called
    queue.dead_letter(message, DeadReason.INVALID_DOCUMENT, "", "no JSON")
    letters = list(queue.dead_letters())
    assert len(letters) == (2 if is_fifo else 1), "a FIFO queue takes a letter once"
    queue.redrive(letters[0])
    (again,) = received(queue, 1)
    assert again.body == "no JSON"


def test_a_server_that_does_not_say_how_long_messages_may_be_takes_dead_letters(moto_endpoint, monkeypatch):
    url, dead = sqs_queues()
    queue = SqsQueue(url, dead)
    queue.send("bad")
    (message,) = queue.receive(1, 0)
    monkeypatch.setattr(queue._client, "get_queue_attributes", lambda **_: {})
    queue.dead_letter(message, DeadReason.INVALID_DOCUMENT, "priority", "no JSON")
    (letter,) = queue.dead_letters()
    assert (letter.body, letter.reason, letter.field) == ("bad", "invalid_document", "priority")


@pytest.fixture
def receipts_expire(moto_endpoint, monkeypatch):
    """A FIFO queue of AWS deletes no message that it shows again; moto's does."""
    from moto.sqs import models

    deleted = models.Queue.delete_message

    def delete(queue, receipt):
        of_it = [each for each in queue._messages if each.had_receipt_handle(receipt)]
        if any(each.visible or each.receipt_handle != receipt for each in of_it):
            raise models.InvalidParameterValue(
                f"Value {receipt} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
            )
        return deleted(queue, receipt)

    monkeypatch.setattr(models.Queue, "delete_message", delete)


def test_letters_of_a_fifo_queue_are_dealt_with_while_it_hides_them(receipts_expire, capsys):
    url, _ = sqs_queues(is_fifo=True)
    queue, at = SqsQueue(url), ["--queue", url, "--json"]
    for body in ("a", "b", "c"):
        queue.send(body, body)
    for message in received(queue, 3):
        queue.dead_letter(message, DeadReason.INVALID_DOCUMENT, "", "bad")
    names = {letter.body: letter.id for letter in queue.dead_letters()}
    for command, name, done in (("redrive", names["a"], "redriven"), ("drop", names["b"], "dropped")):
        assert run(["dlq", command, name, *at]) == 0
        assert json.loads(capsys.readouterr().out) == {done: [name]}
    assert [message.body for message in queue.receive(10, 0)] == ["a"]
    (letter,) = queue.dead_letters()
    assert letter.body == "c", "it is shown again"
    with pytest.raises(StoreError, match="is still there, because its receipt had expired: repeat this"):
        queue.drop(letter)


def test_one_letter_that_the_queue_refuses_stays_and_the_others_are_sent_back(moto_endpoint, capsys):
    url, dead = sqs_queue(MaximumMessageSize="1024"), sqs_queue()
    for body in ("a", "x" * 1025, "b"):
        SqsQueue(dead).send(body)
    long = next(letter.id for letter in SqsQueue(url, dead).dead_letters() if len(letter.body) > 1)
    assert run(["dlq", "redrive", "--queue", url, "--dead-letters", dead, "--json"]) == 2
    printed = capsys.readouterr()
    said = json.loads(printed.out)
    assert len(said["redriven"]) == 2 and f"dead letter {long} stays: " in said["error"]["message"]
    assert printed.err.count("\n") == 1
    assert {message.body for message in SqsQueue(url).receive(10, 0)} == {"a", "b"}
    assert [letter.id for letter in SqsQueue(url, dead).dead_letters()] == [long]


def test_letters_that_somebody_else_received_meanwhile_are_told(moto_endpoint, monkeypatch, capsys):
    url, dead = sqs_queues()
    SqsQueue(dead).send("a")
    monkeypatch.setattr(SqsQueue, "_show_again", lambda *_: None)  # as if another listing were under way
    for command in (["redrive"], ["drop", "--all"]):
        assert run(["dlq", *command, "--queue", url]) == 1
        printed = capsys.readouterr()
        assert printed.out.startswith("0 ") and "1 dead letter could not be received again: repeat this" in printed.err
        SqsQueue(dead).send("another")


def test_letters_that_came_from_another_queue_are_left_alone(moto_endpoint, monkeypatch):
    """Queues may share a dead-letter queue. SQS says whence it moved a message; moto does not."""
    url, dead = sqs_queues()
    queue, name = SqsQueue(url), url.rpartition("/")[2]
    for body in ("sent by a dispatcher", name, f"{name}-of-others"):
        SqsQueue(dead).send(body)
    received = queue._client.receive_message

    def with_source(**asked):
        answer = received(**asked)
        for message in answer.get("Messages", []):
            if message["Body"].startswith("job-runs-"):
                arn = f"arn:aws:sqs:us-east-1:123456789012:{message['Body']}"
                message["Attributes"]["DeadLetterQueueSourceArn"] = arn
        return answer

    monkeypatch.setattr(queue._client, "receive_message", with_source)
    assert {letter.body for letter in queue.dead_letters()} == {"sent by a dispatcher", name}
    assert len(list(SqsQueue(url).dead_letters())) == 3, "all are shown again"


def test_letters_that_cannot_be_shown_again_hold_nobody_up(moto_endpoint, monkeypatch):
    url, dead = sqs_queues()
    for number in range(25):
        SqsQueue(dead).send(str(number))
    with faulty_s3(moto_endpoint) as faulty:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", faulty.url)
        queue = SqsQueue(url)
        shown = [len(list(queue.dead_letters()))]
        faulty.fault = lambda asked: "500" if "Visibility" in asked.headers.get("X-Amz-Target", "") else None
        shown.append(len(list(queue.dead_letters())))
        asked = [request for request in faulty.seen if "Visibility" in request.headers.get("X-Amz-Target", "")]
    assert shown == [25, 25] and len(asked) == 3 + 3, "three batches; afterwards one, tried thrice"


def test_sqs_moves_what_is_received_too_often_by_itself(moto_endpoint, ahead):
    url, _ = sqs_queues(receives_max=1)
    queue = SqsQueue(url, visibility_s=1)
    queue.send("poison")
    assert len(queue.receive(1, 1)) == 1
    ahead.by_s += 1.2
    assert queue.receive(1, 0) == []
    (letter,) = queue.dead_letters()
    assert (letter.body, letter.reason) == ("poison", "received_too_often")


@pytest.mark.parametrize("ahead_s", [0, 3600, -3600])
def test_the_age_of_the_oldest_message_goes_by_those_received(moto_endpoint, ahead_s):
    """Whatever the calendar of this host says: SQS stamps messages, and its answers tell its time."""
    url, _ = sqs_queues()
    queue = SqsQueue(url, clock=StoreClock(lambda: time.time() + ahead_s))

    def as_old_as(message) -> bool:
        """SQS tells whole seconds, and rounds them down."""
        from_s = time.time()
        age_s = queue.depth().oldest_s
        return max(0.0, from_s - 1 - message.sent_s) <= age_s <= time.time() - message.sent_s

    assert queue.depth().oldest_s is None
    queue.send("a")
    assert queue.depth().oldest_s is None, "nobody has seen when it was sent"
    time.sleep(1.2)
    for body in ("b", "c"):
        queue.send(body)
    oldest, left = sorted(received(queue, 2), key=lambda message: message.sent_s)
    assert as_old_as(oldest)
    queue.acknowledge(oldest)
    assert as_old_as(left)
    queue.dead_letter(left, DeadReason.INVALID_DOCUMENT, "", "bad")
    assert as_old_as(left), "one is ready, about as old at most"
    for message in received(queue, 1):
        queue.acknowledge(message)
    assert queue.depth().oldest_s is None
    ages_of_another = _Ages()
    ages_of_another.received([left], left.sent_s)
    assert ages_of_another.oldest_s(0, left.sent_s + 60) == 60
    assert ages_of_another.oldest_s(0, left.sent_s + 1000) is None, "somebody else has dealt with it"


def test_a_dead_letter_cannot_command_a_terminal(tmp_path, capsys):
    queue = open_queue(str(tmp_path))
    queue.send('{"version": 1,\n "catalog": "\x1b[2J\u202e"}')
    (message,) = queue.receive(1, 0)
    queue.dead_letter(message, DeadReason.INVALID_DOCUMENT, "a\x1b]0;x\x07", "bad \x1b[31m")
    for command in (["list"], ["show", message.id]):
        assert run(["dlq", *command, "--queue", str(tmp_path)]) == 0
        printed = capsys.readouterr().out
        assert "\\x1b[31m" in printed and not {"\x1b", "\x07", "\u202e"} & set(printed)


def test_what_is_sent_within_a_millisecond_is_received_in_its_order(tmp_path):
    queue = DirectoryQueue(tmp_path, clock=lambda: 1_763_000_000.0)
    bodies = [f"message {number}" for number in range(40)]
    for body in bodies:
        queue.send(body)
    assert [message.body for message in queue.receive(40, 0)] == bodies


def test_what_a_sender_that_was_killed_was_writing_is_removed_a_day_later(tmp_path):
    DirectoryQueue(tmp_path)
    old, young = (tmp_path / "unfinished" / name for name in ("old", "young"))
    for path in (old, young):
        path.write_text("{")
    os.utime(old, (0, 0))
    DirectoryQueue(tmp_path)
    assert not old.exists() and young.exists()


def test_dead_letters_of_a_queue_that_is_not_there_make_no_queue(tmp_path, capsys):
    assert run(["dlq", "list", "--queue", str(tmp_path / "typo")]) == 2
    assert "there is no queue in" in capsys.readouterr().err and not (tmp_path / "typo").exists()


def test_a_queue_without_redrive_policy_needs_its_dead_letters_named(moto_endpoint, tmp_path):
    import boto3

    client = boto3.client("sqs")
    url, dead = (client.create_queue(QueueName=f"q-{uuid.uuid4().hex[:8]}")["QueueUrl"] for _ in "12")
    queue = SqsQueue(url)
    queue.send("a")
    (message,) = queue.receive(1, 1)
    with pytest.raises(InputError, match="--dead-letters"):
        queue.dead_letter(message, DeadReason.INVALID_DOCUMENT, "", "bad")
    with pytest.raises(InputError, match="its own dead-letter queue"):  # it would come again as a new message
        SqsQueue(url, url).dead_letter(message, DeadReason.INVALID_DOCUMENT, "", "bad")
    assert SqsQueue(url, dead).no_dead_letters() is None and DirectoryQueue(tmp_path).no_dead_letters() is None
    for lacking, said in (
        ((url, None), "no redrive policy"),
        ((url, url), "its own"),
        ((url, f"{dead}x"), "does not exist"),
    ):
        assert said in SqsQueue(*lacking).no_dead_letters()
    SqsQueue(url, dead).dead_letter(message, DeadReason.INVALID_DOCUMENT, "", "bad")
    assert [letter.body for letter in SqsQueue(url, dead).dead_letters()] == ["a"]


def test_an_answer_that_is_cut_short_is_an_error_of_the_queue(moto_endpoint, monkeypatch):
    """boto3 takes it for an empty one. The dispatcher asks again."""
    url, _ = sqs_queues()
    with faulty_s3(moto_endpoint) as faulty:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", faulty.url)
        queue = SqsQueue(url.replace(moto_endpoint, faulty.url))
        queue.send("bad")
        (message,) = queue.receive(1, 1)
        bury = lambda: queue.dead_letter(message, DeadReason.INVALID_DOCUMENT, "", "no JSON")  # noqa: E731
        asked = [(queue.depth, at) for at in range(4)] + [(bury, at) for at in range(3)]
        for ask, at in [*asked, (lambda: queue.send("x"), 0), (lambda: queue.receive(1, 0), 0)]:
            queue._dead_url, faulty.fault = None, first(*[None] * at, "truncated")
            with pytest.raises(StoreError, match=r"\d+ of \d+ bytes of the answer of SQS came"):
                ask()
        bury()
        assert {letter.body for letter in queue.dead_letters()} == {"bad"}


def test_a_queue_that_does_not_exist_is_said_in_one_line(moto_endpoint, tmp_path, capsys):
    document = tmp_path / "job.json"
    document.write_text(json.dumps({"version": 1, "catalog": "/lake", "source_table_id": "t"}))
    assert run(["submit", str(document), "--queue", f"{moto_endpoint}/123456789012/none"]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_submit_and_dlq_on_sqs(moto_endpoint, tmp_path, capsys):
    url, _ = sqs_queues()
    document = tmp_path / "job.json"
    document.write_text(json.dumps({"version": 1, "catalog": "/lake", "source_table_id": "t"}))
    assert run(["submit", str(document), "--queue", url, "--json"]) == 0
    sent = json.loads(capsys.readouterr().out)
    queue = SqsQueue(url)
    (message,) = queue.receive(1, 1)
    assert json.loads(message.body)["job_run_id"] == sent["job_run_id"]
    queue.dead_letter(message, DeadReason.CATALOG_NOT_ALLOWED, "catalog", "not here")
    assert run(["dlq", "list", "--queue", url, "--json"]) == 0
    (letter,) = json.loads(capsys.readouterr().out)
    assert (letter["reason"], letter["field"]) == ("catalog_not_allowed", "catalog")
    assert run(["dlq", "show", letter["id"], "--queue", url]) == 0
    assert "not here" in capsys.readouterr().out
    assert run(["dlq", "redrive", "--reason", "invalid_document", "--queue", url]) == 0
    assert "0 sent back" in capsys.readouterr().out
    assert run(["dlq", "redrive", letter["id"], "--queue", url]) == 0
    assert len(received(queue, 1)) == 1
    assert run(["dlq", "show", "none", "--queue", url]) == 2

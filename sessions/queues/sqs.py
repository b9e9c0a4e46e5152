"""A queue of SQS: long polling, visibility, and a dead-letter queue that keeps reasons as message attributes.

    receive         ReceiveMessage, up to 10 messages, waits up to 20 s
    release         ChangeMessageVisibility
    dead_letter     SendMessage to the dead-letter queue, then DeleteMessage
    redrive         receive from the dead-letter queue, send to the queue, delete: one message at a time
                    of a FIFO queue while it is hidden: its receipt expires when it is shown again

A process that dies between sending and deleting leaves the message in both queues. No message is lost.

The user names the dead-letter queue, or else the queue's redrive policy does. SQS itself moves messages there that were
received too often. These have no reason, because only `dead_letter` writes one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import re
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from deltacompact.base.errors import CredentialsError, InputError, PassingError, StoreError
from deltacompact.base.wording import one_line
from deltacompact.storage.opening import uri_parts
from deltacompact.storage.s3_access import EXPIRED_CODES, aws_client
from sessions.base.clock import StoreClock
from sessions.queues.queue import VISIBILITY_S, DeadLetter, DeadReason, Depth, Message, RefusedMessage

LONG_POLL_S = 20
_ANSWER_WITHIN_S = LONG_POLL_S + 10.0
_BATCH_MAX = 10
_MESSAGE_BYTES = 256 << 10
"""A queue takes messages of this size where its server, another one than AWS', does not say."""
_LOOK_S = 1
"""An answer that is not waited for may lack messages: SQS then asks only some of its servers."""
_LISTED_FOR_S = 300
"""A list of 10,000 dead letters takes half a minute. One that is shown again meanwhile would be listed without end."""
_REMEMBERED_S = 900.0
_HOST = re.compile(r"sqs\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?")
_GROUP = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,./:;<=>?@\[\\\]^_`{|}~-]{1,128}")
_UNKNOWN = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "InvalidAddress")
_REFUSED = ("AccessDenied", "AccessDeniedException", "InvalidClientTokenId", "SignatureDoesNotMatch")
_LOG = logging.getLogger("sessions")


class SqsQueue:
    """Messages of one SQS queue. boto3's clients are safe to use from several threads."""

    def __init__(
        self,
        url: str,
        dead_letters: str | None = None,
        visibility_s: float = VISIBILITY_S,
        clock: StoreClock | None = None,
    ) -> None:
        self.uri = url
        self._visibility_s = visibility_s
        host = _HOST.fullmatch(uri_parts(url).netloc)
        with self._asking():
            self._client = aws_client("sqs", host["region"] if host else None, _ANSWER_WITHIN_S)
        self._client.meta.events.register("before-parse.sqs", self._refuse_cut)
        self.named_dead_letters = self._dead_url = dead_letters
        self._hidden: dict[str, str] = {}
        self._ages = _Ages()
        self._clock = clock or StoreClock()

    def send(self, body: str, group: str = "") -> str:
        with self._asking():
            return str(self._client.send_message(**_outgoing(self.uri, body, group))["MessageId"])

    def receive(self, most: int, wait_s: float) -> list[Message]:
        found = self._received(self.uri, most, wait_s, self._visibility_s)
        messages = [self._message(message) for message in found]
        self._ages.received(messages, self._clock())
        return messages

    def acknowledge(self, message: Message) -> None:
        with self._asking():
            self._client.delete_message(QueueUrl=self.uri, ReceiptHandle=message.receipt)
        self._ages.dealt_with(message)

    def release(self, message: Message, after_s: float) -> None:
        with self._asking():
            self._client.change_message_visibility(
                QueueUrl=self.uri, ReceiptHandle=message.receipt, VisibilityTimeout=max(0, round(after_s))
            )

    def dead_letter(self, message: Message, reason: DeadReason, field: str, text: str) -> None:
        about = {"reason": str(reason), "message_id": message.id, "field": field, "text": text}
        attributes = {name: _attribute(value) for name, value in about.items() if value}
        url = self._dead_letters_url()
        outgoing = _outgoing(url, message.body, message.id, message.id)
        with self._asking(url):
            fitting = _fitting(attributes, self._message_bytes_max(url) - len(message.body.encode()))
            self._client.send_message(MessageAttributes=fitting, **outgoing)
        with self._asking():
            self._client.delete_message(QueueUrl=self.uri, ReceiptHandle=message.receipt)
        self._ages.dealt_with(message)

    def dead_letters(self) -> Generator[DeadLetter, None, None]:
        """List the dead letters. SQS hides each from others meanwhile; at the end we show the rest again.

        Of a FIFO queue, it shows ten of a message group at most until they are dealt with.
        """
        url = self._dead_letters_url()
        listed: set[str] = set()
        hidden = self._hidden = {}
        try:
            while found := self._received(url, _BATCH_MAX, _LOOK_S, _LISTED_FOR_S):
                hidden |= {message["MessageId"]: message["ReceiptHandle"] for message in found}  # all: a caller may end
                for message in found:
                    if message["MessageId"] not in listed and self._is_of_this_queue(message):
                        listed.add(message["MessageId"])
                        yield _letter(message)
        finally:
            self._show_again(url, list(hidden.values()))

    def redrive(self, dead: DeadLetter) -> None:
        with self._asking():
            self._client.send_message(**_outgoing(self.uri, dead.body, dead.id, dead.id))
        self.drop(dead)

    def drop(self, dead: DeadLetter) -> None:
        url = self._dead_letters_url()
        with self._asking(url, f"dead letter {dead.id} is still there, because its receipt had expired: repeat this"):
            self._client.delete_message(QueueUrl=url, ReceiptHandle=dead.receipt)
        self._hidden.pop(dead.id, None)

    def depth(self) -> Depth:
        """The counts that SQS approximates. The age of the oldest message is that of one this process has received.

        SQS tells ages only to CloudWatch, and we cannot look at a message without receiving it.
        """
        dead = 0
        with contextlib.suppress(InputError):
            dead = sum(self._counts(self._dead_letters_url()))
        ready, leased = self._counts(self.uri)
        oldest_s = self._ages.oldest_s(ready, self._clock()) if ready + leased else None
        return Depth(ready, leased, dead, oldest_s)

    def no_dead_letters(self) -> str | None:
        try:
            self._counts(self._dead_letters_url())
        except InputError as error:
            return one_line(error)
        return None

    # Inside

    def _is_of_this_queue(self, letter: Mapping[str, Any]) -> bool:
        """False: SQS moved it here from another queue of the account, which shares the dead-letter queue."""
        source = letter.get("Attributes", {}).get("DeadLetterQueueSourceArn")
        return source is None or source.rpartition(":")[2] == self.uri.rstrip("/").rpartition("/")[2]

    def _show_again(self, url: str, receipts: Sequence[str]) -> None:
        """Where SQS does not answer, they come back by themselves: thousands of tries would look like a hang."""
        with contextlib.suppress(PassingError, InputError), self._asking(url):
            for start in range(0, len(receipts), _BATCH_MAX):
                entries = [
                    {"Id": str(number), "ReceiptHandle": receipt, "VisibilityTimeout": 0}
                    for number, receipt in enumerate(receipts[start : start + _BATCH_MAX])
                ]
                self._client.change_message_visibility_batch(QueueUrl=url, Entries=entries)

    def _received(self, url: str, most: int, wait_s: float, visibility_s: float) -> list[dict[str, Any]]:
        with self._asking(url):
            answer = self._client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=max(1, min(most, _BATCH_MAX)),
                WaitTimeSeconds=max(0, min(round(wait_s), LONG_POLL_S)),
                VisibilityTimeout=round(visibility_s),
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
        self._hear(answer)
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    @staticmethod
    def _message(found: dict[str, Any]) -> Message:
        system = found.get("Attributes", {})
        return Message(
            found["MessageId"],
            found["Body"],
            found["ReceiptHandle"],
            int(system.get("ApproximateReceiveCount", 1)),
            int(system.get("SentTimestamp", 0)) / 1000,
        )

    def _dead_letters_url(self) -> str:
        """Raises InputError if nobody named one and the queue has no redrive policy, or if it is the queue itself."""
        if self._dead_url is None:
            with self._asking():
                answer = self._client.get_queue_attributes(QueueUrl=self.uri, AttributeNames=["RedrivePolicy"])
                policy = answer.get("Attributes", {}).get("RedrivePolicy")
                if policy is None:
                    said = "give it one, or name a dead-letter queue (--dead-letters)"
                    raise InputError(f"queue {self.uri} has no redrive policy: {said}")
                arn = json.loads(policy)["deadLetterTargetArn"]
                *_, account, name = arn.split(":")
            with self._asking(arn):
                found = self._client.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)
                self._dead_url = str(found["QueueUrl"])
        if self._dead_url == self.uri:  # each dead letter would be a new message of it, without a pause
            raise InputError(f"queue {self.uri} cannot be its own dead-letter queue: name another one (--dead-letters)")
        return self._dead_url

    def _message_bytes_max(self, url: str) -> int:
        """The size limit of a message of a queue, attributes included."""
        answer = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=["MaximumMessageSize"])
        return int(answer.get("Attributes", {}).get("MaximumMessageSize", _MESSAGE_BYTES))

    def _counts(self, url: str) -> tuple[int, int]:
        names = (
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesDelayed",
            "ApproximateNumberOfMessagesNotVisible",
        )
        with self._asking(url):
            answer = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=list(names))
        self._hear(answer)
        counts = answer["Attributes"]
        ready, delayed, leased = (int(counts.get(name, 0)) for name in names)
        return ready + delayed, leased

    def _hear(self, answer: Mapping[str, Any]) -> None:
        """Set our clock by the date of an answer, because SQS stamps messages by its own clock."""
        with contextlib.suppress(KeyError, TypeError, ValueError):
            self._clock.told(parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp())

    def _refuse_cut(self, response_dict: Mapping[str, Any], **_: Any) -> None:
        """Called with each answer. boto3 takes one that was cut short for an empty one: no message, no policy."""
        came, sent = len(response_dict["body"]), int(response_dict["headers"].get("content-length", 0))
        if came < sent:
            raise StoreError(f"queue {self.uri}: {came} of {sent} bytes of the answer of SQS came")

    @contextlib.contextmanager
    def _asking(self, url: str | None = None, expired: str | None = None) -> Iterator[None]:
        """Turn errors of SQS into ours, each of one line.

        `url`: of the dead-letter queue, if that is asked. `expired`: the error of an expired receipt; None: it is none.
        """
        import botocore.exceptions as aws

        queue = url or self.uri
        try:
            yield
        except aws.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "unknown"))
            if code in _UNKNOWN:
                raise InputError(f"queue {queue} does not exist") from error
            if code in EXPIRED_CODES:
                raise CredentialsError(
                    f"queue {queue}: SQS refused access: the credentials have expired ({code})"
                ) from error
            if code in _REFUSED:
                raise InputError(f"queue {queue}: SQS refused access ({code})") from error
            if code in ("ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue") and "eceipt" in str(
                error
            ):
                if expired is not None:
                    raise StoreError(f"queue {queue}: {expired}") from error
                _LOG.info("queue %s: a receipt had expired, the message will be received again", queue)
                return
            if code in ("InvalidParameterValue", "InvalidMessageContents", "BatchRequestTooLong"):
                raise RefusedMessage(f"queue {queue}: {one_line(error)}") from error
            raise StoreError(f"queue {queue}: SQS answered {code}: {one_line(error)}") from error
        except (
            aws.NoCredentialsError,
            aws.PartialCredentialsError,
            aws.NoRegionError,
            aws.ParamValidationError,
        ) as error:
            raise InputError(f"queue {queue}: {one_line(error)}") from error
        except (aws.BotoCoreError, aws.HTTPClientError, ValueError) as error:
            raise StoreError(f"queue {queue}: {one_line(error)}") from error


class _Ages:
    """Guesses how old a queue's oldest message is, from the messages that this process has received.

    received a, sent 10:00, and b, sent 10:01        oldest: a
    a is acknowledged, b was put off                 oldest: b
    b is acknowledged, 50 are ready                  10:01: SQS hands out the oldest first, nearly always
    b was received by somebody else                  we forget b after a quarter of an hour
    """

    def __init__(self) -> None:
        self._open: dict[str, tuple[float, float]] = {}
        self._latest_s: float | None = None
        self._lock = threading.Lock()

    def received(self, messages: list[Message], now_s: float) -> None:
        with self._lock:
            self._open |= {message.id: (message.sent_s, now_s) for message in messages}
            if messages:
                self._latest_s = max(message.sent_s for message in messages)

    def dealt_with(self, message: Message) -> None:
        with self._lock:
            self._open.pop(message.id, None)

    def oldest_s(self, ready: int, now_s: float) -> float | None:
        """Age of the oldest message of a queue that is not empty; None until this process has received one."""
        with self._lock:
            recent = {name: times for name, times in self._open.items() if now_s - times[1] < _REMEMBERED_S}
            self._open = recent
            sent_s = [sent for sent, _ in recent.values()]
            if ready and self._latest_s is not None:
                sent_s.append(self._latest_s)
        return max(0.0, now_s - min(sent_s)) if sent_s else None


def _outgoing(url: str, body: str, group: str, once: str = "") -> dict[str, Any]:
    """What is sent to a queue. A FIFO queue takes what is named `once` only once within five minutes."""
    if not body:
        raise InputError("an empty document cannot be sent")
    outgoing: dict[str, Any] = {"QueueUrl": url, "MessageBody": body}
    if _GROUP.fullmatch(group):
        outgoing["MessageGroupId"] = group  # on a standard queue: fair among tables
    if url.endswith(".fifo"):
        outgoing.setdefault("MessageGroupId", "all")
        outgoing["MessageDeduplicationId"] = once or f"{time.time_ns()}"
    return outgoing


def _attribute(value: str) -> dict[str, str]:
    """A text attribute. SQS refuses control characters, so they become question marks."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in value)
    return {"DataType": "String", "StringValue": printable[:2000]}


def _fitting(attributes: Mapping[str, dict[str, str]], room: int) -> dict[str, dict[str, str]]:
    """As many of the attributes, from the first, as fit into `room` bytes beside the body."""
    sizes = [len("".join((name, *value.values())).encode()) for name, value in attributes.items()]
    ends = itertools.accumulate(sizes)
    return {name: value for (name, value), end in zip(attributes.items(), ends, strict=True) if end <= room}


def _letter(found: dict[str, Any]) -> DeadLetter:
    attributes = {name: value.get("StringValue", "") for name, value in found.get("MessageAttributes", {}).items()}
    return DeadLetter(
        found["MessageId"],
        found["Body"],
        attributes.get("reason", str(DeadReason.RECEIVED_TOO_OFTEN)),
        attributes.get("field", ""),
        attributes.get("text", "received too often and never dealt with: SQS moved it here"),
        int(found.get("Attributes", {}).get("SentTimestamp", 0)) / 1000,
        found["ReceiptHandle"],
        attributes.get("message_id", ""),
    )

"""A queue of instruction documents: receive, then acknowledge, release or dead-letter.

    send a         ready: a
    receive        leased: a, for 60 s, receipt r1, received once
                   … nobody acknowledges it: ready again, and received a second time, receipt r2
    acknowledge    gone
    dead_letter    among the dead letters, with reason and field; redrive sends it back, drop deletes it

Delivery is at least once and in any order: a receiver must bear to see a message twice.
"""

from __future__ import annotations

import enum
from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from deltacompact.base.errors import InputError
from sessions.base.settings import DEFAULTS

VISIBILITY_S = DEFAULTS.visibility_s
"""How long a received message is hidden from others. Accepting it takes a fraction of that."""

PUT_OFF_MAX_S = 900.0
"""Nobody releases a message for longer. So the 20 deliveries after which a message dies take hours."""


class RefusedMessage(InputError):
    """The queue does not take this message: it is too long, or has letters that SQS does not know."""


class DeadReason(enum.StrEnum):
    """Why a message is a dead letter."""

    INVALID_DOCUMENT = "invalid_document"
    CATALOG_NOT_ALLOWED = "catalog_not_allowed"
    JOB_RUN_ID_TAKEN = "job_run_id_taken"
    RECEIVED_TOO_OFTEN = "received_too_often"


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery. `id` is the same at each delivery of a message, `receipt` belongs to this one.

    `receives` counts deliveries, this one included; `sent_s` is when it was sent (Unix seconds).
    """

    id: str
    body: str
    receipt: str
    receives: int
    sent_s: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that cannot be served. `field` is the path of the bad field; "" if the whole message is bad.

    `message_id`: the message's id in the queue that it came from, if that is known.
    """

    id: str
    body: str
    reason: str
    field: str
    text: str
    dead_s: float
    receipt: str = ""
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Depth:
    """How many messages wait, are received and not acknowledged, and are dead; how long the oldest has waited.

    `unreadable` counts files or objects in the queue's place that are no messages.
    """

    ready: int
    leased: int
    dead: int
    oldest_s: float | None = None
    unreadable: int = 0

    @property
    def is_empty(self) -> bool:
        return self.ready + self.leased == 0


class Queue(Protocol):
    """Raises StoreError where the queue does not answer, InputError where it does not exist.

    `named_dead_letters`: its dead-letter queue, if that was named as it was opened.
    """

    uri: str
    named_dead_letters: str | None

    def send(self, body: str, group: str = "") -> str:
        """Send a document. Returns the message's id. SQS is fair among groups: `group` is a table's name."""

    def receive(self, most: int, wait_s: float) -> list[Message]:
        """Up to `most` messages. Waits up to `wait_s` for the first."""

    def acknowledge(self, message: Message) -> None:
        """Remove a message that was dealt with."""

    def release(self, message: Message, after_s: float) -> None:
        """Let it be received again, after so many seconds."""

    def dead_letter(self, message: Message, reason: DeadReason, field: str, text: str) -> None:
        """Put a message that can never be served among the dead letters."""

    def dead_letters(self) -> Generator[DeadLetter, None, None]:
        """All dead letters. Send back or delete one before the next comes: at the end, SQS takes its receipt back."""

    def redrive(self, dead: DeadLetter) -> None:
        """Send a dead letter back to the queue. Raises StoreError where its receipt has expired, RefusedMessage."""

    def drop(self, dead: DeadLetter) -> None:
        """Delete a dead letter. Raises StoreError where its receipt has expired."""

    def depth(self) -> Depth: ...

    def no_dead_letters(self) -> str | None:
        """Why messages cannot become dead letters here, and what to do about it. None: they can."""

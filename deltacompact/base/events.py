"""Events as values. A sink is any callable that takes an event. A sink that fails never fails a compaction."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from deltacompact.base.model import Partition
from deltacompact.base.wording import one_line

logger = logging.getLogger("deltacompact")


@dataclass(frozen=True, slots=True)
class Event:
    """Names the partition whose session the event is about. Events of Iceberg tables are about all partitions."""

    table_id: str
    partition: Partition


@dataclass(frozen=True, slots=True)
class SessionStarted(Event):
    """`base_version` is the version of the destination that the session replaces."""

    session_id: str
    rounds: int
    delta_rows: int
    why: str
    base_version: str | None = None


@dataclass(frozen=True, slots=True)
class ColumnsAdded(Event):
    """This session adds columns to the compacted rows."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StageStarted(Event):
    stage: str
    tasks: int
    rows: int


@dataclass(frozen=True, slots=True)
class TaskFinished(Event):
    stage: str
    rows: int


@dataclass(frozen=True, slots=True)
class StageFinished(Event):
    stage: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RoundCompleted(Event):
    round: int
    rounds: int
    rows: int


@dataclass(frozen=True, slots=True)
class FilesDecided(Event):
    """The decisions about the session's files: action, reason, number of files, as in ("keep", "no_row_died", 3)."""

    files: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True)
class SessionFinished(Event):
    """`error` is None if the result was published, as `version`. `files` is as in FilesDecided.

    `error_named` is the error without data of the table: its class, and the files and columns that it names.
    """

    error: str | None
    live: int
    error_named: str | None = None
    files: tuple[tuple[str, str, int], ...] = ()
    version: str | None = None


@dataclass(frozen=True, slots=True)
class WaitingForSession(Event):
    """A session on another machine may still work on the branch: wait up to `seconds` for a sign of life.

    `ahead_s`: how far the date of its last sign lies in the future, by the clock that dates objects now.
    """

    session: str
    seconds: float
    ahead_s: float


@dataclass(frozen=True, slots=True)
class ModeStarted(Event):
    """A mode ("rewrite") begins to work on an Iceberg table. `bytes` are stored bytes.

    `snapshot_id` is the planned snapshot.
    """

    mode: str
    groups: int
    rows: int
    bytes: int
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class GroupWritten(Event):
    """A group's output is written, as the `written`th of `groups`. Rows and bytes are those of its data files."""

    written: int
    groups: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GroupsCommitted(Event):
    """A snapshot with the results of `groups` groups is in the table, after `attempts` attempts.

    `summary` is the snapshot's summary: the operation, and counts of files, rows and bytes.
    """

    snapshot_id: int
    groups: int
    sequence_number: int = 0
    summary: Mapping[str, str] = field(default_factory=dict, hash=False)
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class ModeFinished(Event):
    """`error` is None if the mode ended well."""

    mode: str

    error: str | None


@dataclass(frozen=True, slots=True)
class UpkeepStarted(Event):
    """Upkeep begins: `work` is "vacuum" or "maintain". `version`: the table's version, or the branch's snapshot."""

    work: str
    version: str | None


@dataclass(frozen=True, slots=True)
class UpkeepFinished(Event):
    """`error` is the class of the error; None: the upkeep succeeded, and `version` is the table's version now."""

    work: str
    error: str | None
    version: str | None = None


EventSink = Callable[[Event], None]


def no_sink(event: Event) -> None:
    """A sink that drops every event."""


def fan_out(sinks: list[EventSink]) -> EventSink:
    """One sink that passes events on to all of these. An exception in a sink is logged and otherwise ignored.

    Sessions run side by side, but a sink gets one event at a time.
    """
    locked = [(sink, threading.RLock()) for sink in sinks]

    def emit(event: Event) -> None:
        for sink, lock in locked:
            try:
                with lock:
                    sink(event)
            except Exception as error:
                logger.warning("an event sink failed on %s: %s", type(event).__name__, one_line(error), exc_info=True)

    return emit

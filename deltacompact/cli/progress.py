"""Progress: bars on a terminal (see bars.py). Above them, or without a terminal, lines say what begins and ends.

Bars are imported only for a terminal: the import takes as long as a small compaction. Only some partitions get lines:

visits day=1: 3 deltas since …                  the first ten partitions
visits day=1: round 1 of 1 done, 29 rows live
visits: 240 partitions done                     for the others a count, every ten seconds
visits day=977: failed                          any partition
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from deltacompact.base.events import (
    Event,
    EventSink,
    GroupsCommitted,
    GroupWritten,
    ModeStarted,
    RoundCompleted,
    SessionFinished,
    SessionStarted,
    WaitingForSession,
    no_sink,
)
from deltacompact.base.model import Partition
from deltacompact.base.wording import counted, size
from deltacompact.reports.words import named_in_line

if TYPE_CHECKING:
    from rich.console import Console

PARTITIONS_LOGGED = 10
LOG_EVERY_S = 10.0


@contextlib.contextmanager
def progress(console: Console) -> Iterator[EventSink]:
    """An event sink that draws bars on a terminal, and elsewhere prints a line for each round."""
    if not console.is_terminal:
        yield Lines(console)
        return
    from deltacompact.cli.bars import Bars

    with Bars(console, Lines(console)) as bars:
        yield bars.draw


def progress_unless(as_json: bool) -> contextlib.AbstractContextManager[EventSink]:
    """Progress on stderr. Nothing if the answer is one JSON document."""
    if as_json:
        return contextlib.nullcontext(no_sink)
    from deltacompact.cli.console import err

    return progress(err)


def _time_in(seconds: float) -> str:
    """The time of day that comes in `seconds` seconds."""
    return (datetime.now() + timedelta(seconds=seconds)).strftime("%H:%M:%S")


class Lines:
    """Prints what begins and ends: one by one for the first `PARTITIONS_LOGGED` partitions, then a count."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._said: set[Partition] = set()
        self._done = 0
        self._counted_s = clock()

    def __call__(self, event: Event) -> None:
        if len(self._said) < PARTITIONS_LOGGED:
            self._said.add(event.partition)
        self._done += isinstance(event, SessionFinished) and event.error is None
        if event.partition in self._said or not isinstance(event, (SessionStarted, RoundCompleted, SessionFinished)):
            _say(self._console, event)
        elif isinstance(event, SessionFinished):
            self._count(event)

    def _count(self, event: SessionFinished) -> None:
        if event.error is not None:
            _say(self._console, event)
        elif self._clock() - self._counted_s >= LOG_EVERY_S:
            self._counted_s = self._clock()
            _print(self._console, f"{event.table_id}: {counted(self._done, 'partition')} done")


def _say(console: Console, event: Event) -> None:
    stream = f"{event.table_id} {named_in_line(dict(event.partition.values))}"
    match event:
        case SessionStarted():
            line = (
                f"{stream}: {event.why}, {counted(event.delta_rows, 'row')} in "
                f"{counted(event.rounds, 'round')}, session {event.session_id}"
            )
        case RoundCompleted():
            line = f"{stream}: round {event.round} of {event.rounds} done, {counted(event.rows, 'row')} live"
        case SessionFinished(error=str()):
            line = f"{stream}: failed"
        case WaitingForSession():
            ahead = f"; its last one is dated {event.ahead_s:,.0f} s in the future" if event.ahead_s >= 1 else ""
            line = (
                f"{event.table_id}: waiting until {_time_in(event.seconds)}, {event.seconds:.0f} s at most, for a sign "
                f"of life of session {event.session} on another machine{ahead}"
            )
        case ModeStarted():
            files = f"{counted(event.rows, 'row')}, {size(event.bytes)}"
            line = f"{event.table_id}: {counted(event.groups, 'group')} to {event.mode}, {files}"
        case GroupWritten():
            line = f"{event.table_id}: group {event.written} of {event.groups} written, {size(event.bytes)}"
        case GroupsCommitted():
            line = f"{event.table_id}: {counted(event.groups, 'group')} committed as snapshot {event.snapshot_id}"
        case _:
            return
    _print(console, line)


def _print(console: Console, line: str) -> None:
    console.print(line, style="dim", highlight=False, soft_wrap=True)

"""Progress on a terminal: for each partition a bar with the stage that runs, rows, rows per second and the time left.

day=1 hash_bucket (4 tasks)   ━━━━━━━━━━━━╸━━━━━  2000000/3000000
day=2 materialize (1 task)    ━━━━━━━━━━━━━━━━━━     9,000 rows          moves to and fro: one task is done or not
and 14 partitions more                                        no more bars than a screen has room for
ns.t (2 of 7 groups)          ━━━━━━━╸━━━━━━━━━━   900000/3000000     an Iceberg table: rows of groups that are written
checking orders               ━━╸━━━━━━━━━━━━━━━   12/200 0:01:40     a command that does something to each partition

Above the bars, and where there is no terminal, lines say what begins and ends. Those of partitions are few:

visits day=1: 3 deltas since …                  the first ten partitions
visits day=1: round 1 of 1 done, 29 rows live
visits: 240 partitions done                     of the others, how many, every ten seconds
visits day=977: failed                          whichever it is
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from deltacompact.base.events import (
    Event,
    EventSink,
    GroupsCommitted,
    GroupWritten,
    ModeFinished,
    ModeStarted,
    RoundCompleted,
    SessionFinished,
    SessionStarted,
    StageFinished,
    StageStarted,
    TaskFinished,
    WaitingForSession,
)
from deltacompact.base.model import Partition
from deltacompact.base.wording import counted
from deltacompact.reports.words import clipped, named

BARS_MAX = 8
PARTITIONS_SAID = 10
SAID_EVERY_S = 10.0
_NAME_MAX = 60


def _name() -> TextColumn:
    """What a bar is about. Names of tables and partitions may have brackets, which are no markup."""
    return TextColumn("{task.description:<34}", markup=False)


class _Rows(MofNCompleteColumn):
    """Rows that are done, of how many. A stage of one task is done or not: only how many it has."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text(f"{task.fields['rows']:,} rows", style="progress.download")
        return super().render(task)


class _RowsPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} rows/s" if task.speed else "", style="dim")


class _Bars(Progress):
    """The bars of the first partitions whose sessions run, and how many more there are."""

    def __init__(self, console: Console) -> None:
        columns = (
            _name(),
            BarColumn(),
            _Rows(),
            _RowsPerSecond(),
            TimeRemainingColumn(),
        )
        self._running: dict[Partition, TaskID] = {}
        self._lines = _Lines(console)
        super().__init__(*columns, console=console, transient=True)

    def draw(self, event: Event) -> None:
        """Show an event. Several sessions run at a time, but each has one stage."""
        match event:
            case StageStarted():
                name = f"{_named(event.partition)} {event.stage} ({counted(event.tasks, 'task')})"
                rows = max(1, event.rows)
                # Nothing tells how far a task is: a bar of one would stay at 0 until it ends.
                self._running[event.partition] = self.add_task(name, total=rows if event.tasks > 1 else None, rows=rows)
            case TaskFinished() if event.partition in self._running:
                self.advance(self._running[event.partition], event.rows)
            case ModeStarted():
                name = f"{event.table_id} ({counted(event.groups, 'group')})"
                self._end(event)
                self._running[event.partition] = self.add_task(name, total=max(1, event.rows))
            case GroupWritten() if event.partition in self._running:
                name = f"{event.table_id} ({event.written} of {counted(event.groups, 'group')})"
                self.update(self._running[event.partition], advance=event.rows, description=name)
            case ModeFinished():
                self._end(event)
            case StageFinished() | SessionFinished() if event.partition in self._running:
                self._end(event)
        if not isinstance(event, (StageStarted, TaskFinished, StageFinished, GroupWritten)):
            self._lines(event)

    def _end(self, event: Event) -> None:
        if event.partition in self._running:
            self.remove_task(self._running.pop(event.partition))

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks[:BARS_MAX])
        if (more := len(self.tasks) - BARS_MAX) > 0:
            yield Text(f"and {counted(more, 'partition')} more", style="dim")


@contextlib.contextmanager
def progress(console: Console) -> Iterator[EventSink]:
    """An event sink that draws bars on a terminal, and elsewhere prints a line for each round."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    with _Bars(console) as bars:
        yield bars.draw


@contextlib.contextmanager
def counting(console: Console, doing: str, partitions: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal that each call of what it yields moves on, from any thread. Elsewhere nothing is shown."""
    columns = (_name(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(doing, total=partitions)
        yield lambda: bar.advance(task)


def _named(partition: Partition) -> str:
    return clipped(named(dict(partition.values)), _NAME_MAX)


def opening(doing: str, partitions: int) -> contextlib.AbstractContextManager[Callable[[], None]]:
    """Such a bar on stderr."""
    from deltacompact.cli.console import err

    return counting(err, doing, partitions)


def _in(seconds: float) -> str:
    """The time of day in so many seconds."""
    return (datetime.now() + timedelta(seconds=seconds)).strftime("%H:%M:%S")


class _Lines:
    """Says what begins and ends, of at most `PARTITIONS_SAID` partitions one by one."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._said: set[Partition] = set()
        self._done = 0
        self._counted_s = clock()

    def __call__(self, event: Event) -> None:
        if len(self._said) < PARTITIONS_SAID:
            self._said.add(event.partition)
        self._done += isinstance(event, SessionFinished) and event.error is None
        if event.partition in self._said or not isinstance(event, (SessionStarted, RoundCompleted, SessionFinished)):
            _say(self._console, event)
        elif isinstance(event, SessionFinished):
            self._count(event)

    def _count(self, event: SessionFinished) -> None:
        if event.error is not None:
            _say(self._console, event)
        elif self._clock() - self._counted_s >= SAID_EVERY_S:
            self._counted_s = self._clock()
            _print(self._console, f"{event.table_id}: {counted(self._done, 'partition')} done")


def _say(console: Console, event: Event) -> None:
    stream = f"{event.table_id} {_named(event.partition)}"
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
                f"{event.table_id}: waiting until {_in(event.seconds)}, {event.seconds:.0f} s at most, for a sign of "
                f"life of session {event.session} on another machine{ahead}"
            )
        case ModeStarted():
            files = f"{counted(event.rows, 'row')}, {event.bytes:,} bytes"
            line = f"{event.table_id}: {counted(event.groups, 'group')} to {event.mode}, {files}"
        case GroupWritten():
            line = f"{event.table_id}: group {event.written} of {event.groups} written, {event.bytes:,} bytes"
        case GroupsCommitted():
            line = f"{event.table_id}: {counted(event.groups, 'group')} committed as snapshot {event.snapshot_id}"
        case _:
            return
    _print(console, line)


def _print(console: Console, line: str) -> None:
    console.print(line, style="dim", highlight=False, soft_wrap=True)

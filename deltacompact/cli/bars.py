"""Bars on a terminal: one for each partition, with the running stage, rows, rows per second and the time left.

day=1 hash_bucket (4 tasks)   ━━━━━━━━━━━━╸━━━━━  2000000/3000000
day=2 materialize (1 task)    ━━━━━━━━━━━━━━━━━━     9,000 rows          moves to and fro: one task is done or not
and 14 partitions more                                        a screen has room for only some bars
ns.t (2 of 7 groups)          ━━━━━━━╸━━━━━━━━━━   900000/3000000     an Iceberg table: rows of written groups
checking orders               ━━╸━━━━━━━━━━━━━━━   12/200 0:01:40     a command that does something to each partition
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

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
    GroupWritten,
    ModeFinished,
    ModeStarted,
    SessionFinished,
    StageFinished,
    StageStarted,
    TaskFinished,
)
from deltacompact.base.model import Partition
from deltacompact.base.wording import counted
from deltacompact.reports.words import named_in_line

BARS_MAX = 8


def _name() -> TextColumn:
    """The name of a bar. Names of tables and partitions may have brackets, which are not markup."""
    return TextColumn("{task.description:<34}", markup=False)


class _RowsDone(MofNCompleteColumn):
    """Rows that are done, and all rows. For a stage of one task, which is done or not, only all rows."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text(f"{task.fields['rows']:,} rows", style="progress.download")
        return super().render(task)


class _RowsPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} rows/s" if task.speed else "", style="dim")


class Bars(Progress):
    """The bars of the first running sessions, and how many more there are."""

    def __init__(self, console: Console, lines: EventSink) -> None:
        columns = (
            _name(),
            BarColumn(),
            _RowsDone(),
            _RowsPerSecond(),
            TimeRemainingColumn(),
        )
        self._running: dict[Partition, TaskID] = {}
        self._lines = lines
        super().__init__(*columns, console=console, transient=True)

    def draw(self, event: Event) -> None:
        """Show an event. Several sessions may run side by side; each has one stage."""
        match event:
            case StageStarted():
                name = f"{named_in_line(dict(event.partition.values))} {event.stage} ({counted(event.tasks, 'task')})"
                rows = max(1, event.rows)
                # A task does not report how far it is: the bar of a single task would stay at 0 until the end.
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
def counter(console: Console, doing: str, partitions: int) -> Iterator[Callable[[], None]]:
    """A progress bar. Call the yielded function, from any thread, to move it on."""
    columns = (_name(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(doing, total=partitions)
        yield lambda: bar.advance(task)

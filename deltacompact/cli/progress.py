"""Progress on a terminal: one bar for the stage that runs, with rows, rows per second and the time left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from deltacompact.base.events import (
    Event,
    EventSink,
    RoundCompleted,
    SessionFinished,
    SessionStarted,
    StageFinished,
    StageStarted,
    TaskFinished,
)
from deltacompact.base.wording import counted


class _RowsPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} rows/s" if task.speed else "", style="dim")


@contextlib.contextmanager
def progress(console: Console) -> Iterator[EventSink]:
    """An event sink that draws bars on a terminal, and elsewhere prints a line for each round."""
    if not console.is_terminal:
        yield lambda event: _say(console, event)
        return
    columns = (
        TextColumn("{task.description:<34}"),
        BarColumn(),
        MofNCompleteColumn(),
        _RowsPerSecond(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        current: list[int] = []

        def draw(event: Event) -> None:
            if isinstance(event, StageStarted):
                name = f"{event.partition} {event.stage} ({counted(event.tasks, 'task')})"
                current.append(bars.add_task(name, total=max(1, event.rows)))
            elif isinstance(event, TaskFinished) and current:
                bars.advance(current[-1], event.rows)  # type: ignore[arg-type]
            elif isinstance(event, StageFinished) and current:
                bars.remove_task(current.pop())  # type: ignore[arg-type]
            else:
                _say(bars.console, event)

        yield draw


def _say(console: Console, event: Event) -> None:
    stream = f"{event.table_id} {event.partition}"
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
        case _:
            return
    console.print(line, style="dim", highlight=False, soft_wrap=True)

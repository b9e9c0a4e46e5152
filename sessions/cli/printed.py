"""Tables on stdout.

on a terminal    as wide as it is: long errors are folded, the other columns keep each value on one line. Where these
                 do not fit, the table is wider
into a pipe      as wide as the table needs, so that a row is a line: `status … | grep run-7`
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType
    from rich.table import Table

    from sessions.base.model import JobRunSession
    from sessions.records.state_store import StateStore

_PIPE_WIDTH_MAX = 4000


def no_job_run(state: StateStore) -> str:
    """The line for a state without job runs. Its folder may not be the one that was meant."""
    return f"no job run in {state.uri}{': there is no such folder' if state.is_missing else ''}"


def plain_table(*columns: str) -> Table:
    """A table without lines. Values of the column "why" may take several lines."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name != "why", min_width=12 if name == "why" else None)
    return table


def states_of(sessions: Iterable[JobRunSession]) -> str:
    """ "7 succeeded, 1 running" """
    states = Counter(session.state.value.replace("_", " ") for session in sessions)
    return ", ".join(f"{count} {state}" for state, count in states.items())


def seconds_text(value: float | None, unit: str = " s") -> str:
    return "" if value is None else f"{value:,.1f}{unit}"


def print_whole(table: RenderableType) -> None:
    """Print without cutting anything off: a terminal that is too narrow breaks the lines."""
    from rich.measure import Measurement

    from deltacompact.cli.console import out

    options = out.options.update(max_width=_PIPE_WIDTH_MAX)
    least = _folded(table) if out.is_terminal else table
    out.width = max(out.width, Measurement.get(out, options, least).maximum)
    out.print(table)


def _folded(table: RenderableType) -> RenderableType:
    """The table with each column that folds as narrow as it may be. What is no table fits any width."""
    from rich.table import Table

    if not isinstance(table, Table):
        return ""
    narrow = deepcopy(table)
    for column in narrow.columns:
        if not column.no_wrap:
            column.max_width = column.min_width
    return narrow

"""Tables on stdout.

on a terminal    as wide as it is: long errors are folded, the other columns keep each value on one line
into a pipe      as wide as the table needs, so that a row is a line: `status … | grep run-7`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType
    from rich.table import Table

    from sessions.records.state_store import StateStore

_PIPE_WIDTH_MAX = 4000


def no_job_run(state: StateStore) -> str:
    """The line for a state without job runs. Its folder may not be the one that was meant."""
    missing = state.folder is not None and not state.folder.exists()
    return f"no job run in {state.uri}{': there is no such folder' if missing else ''}"


def plain_table(columns: Iterable[str], folded: str) -> Table:
    """A table without lines. Values of the column `folded` may take several lines."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name != folded, min_width=12 if name == folded else None)
    return table


def visible(text: str, kept: str = "") -> str:
    """The text with every character that a terminal would obey spelled out: whoever sends a document chooses it."""
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape").decode()
        for letter in text
    )


def print_whole(table: RenderableType) -> None:
    """Print without cutting anything off."""
    from rich.measure import Measurement

    from deltacompact.cli.console import out

    if not out.is_terminal:
        options = out.options.update(max_width=_PIPE_WIDTH_MAX)
        out.width = max(out.width, Measurement.get(out, options, table).maximum)
    out.print(table)

"""A table of cells, on the screen and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

Grid = tuple[list[str], list[list[str]]]
"""Names of columns, and rows of cells."""


def print_grid(console: Console, title: str, grid: Grid) -> None:
    names, rows = grid
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def markdown_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is to the left, numbers to the right."""
    head = "| " + " | ".join(names) + " |\n|---|" + "---:|" * (len(names) - 1) + "\n"
    return head + "".join("| " + " | ".join(row) + " |\n" for row in rows)


def write_between(begin: str, text: str, end: str, page: Path) -> None:
    """Put a report between its marks in a page. Raises ValueError where they are missing."""
    before, began, rest = page.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not began or not ended:
        raise ValueError(f"{page} has no place for the report: {begin} … {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")

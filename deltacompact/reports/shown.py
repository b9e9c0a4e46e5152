"""Reports without a terminal: as text, and as HTML for notebooks.

printed(lambda out: print_table(out, shown, Detail()))      the lines that `show` prints
html_table("orders", ["partition"], [["day=<b>"]])          <table>…<td>day=&lt;b&gt;</td>…: values are no markup
"""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def printed(print_: Callable[[Console], None]) -> str:
    """What is printed, without colours, and without the last line break."""
    from rich.console import Console

    said = io.StringIO()
    print_(Console(file=said, color_system=None, highlight=False, markup=False, emoji=False, soft_wrap=True))
    return said.getvalue().removesuffix("\n")


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a caption above it. The last column is text, the others are numbers."""
    lines = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return (
        f"<table><caption>{html.escape(caption)}</caption>"
        f"<thead><tr>{_cells('th', head)}</tr></thead><tbody>{lines}</tbody></table>"
    )


def _cells(tag: str, values: Sequence[str]) -> str:
    return "".join(f"<{tag}>{html.escape(value)}</{tag}>" for value in values)

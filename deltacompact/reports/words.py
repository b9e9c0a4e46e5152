"""Words and shapes that several reports share.

moment(1795308996.2)            2026-11-22 00:56 UTC
position_text(1795308996186)    1795308996186 (2026-11-22 00:56 UTC)
position_text(7)                7
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from deltacompact.base.printable import named

NOTHING_HELD = "nothing to do: the table holds no data"


@dataclass(frozen=True, slots=True)
class Report:
    """A document, and the errors of the partitions that could not be read. The document has these errors, too.

    `total` is what only the text says of all partitions together.
    """

    document: Any
    errors: tuple[Exception, ...] = ()
    total: Any = None


def in_columns(rows: Sequence[Sequence[str]], right: int = 0) -> list[str]:
    """Lines with aligned columns, the first `right` to the right. Long cells are neither cut off nor wrapped."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [str.rjust] * right + [str.ljust] * (len(widths) - right)
    return [
        "  ".join(to(cell, width) for to, cell, width in zip(aligned, row, widths, strict=True)).rstrip()
        for row in rows
    ]


def clipped(name: str, width: int) -> str:
    """A name for a line of a table: of a long one the beginning and the end."""
    return name if len(name) <= width else f"{name[: width // 2]}…{name[1 + width // 2 - width :]}"


def named_in_line(partition: Mapping[str, str | None]) -> str:
    """A partition in a line about progress."""
    return clipped(named(partition), 60)


def moment(seconds: float) -> str:
    """A time as date, hour and minute, and that it is UTC."""
    return f"{minute(seconds)} UTC"


def minute(seconds: float) -> str:
    """The same without UTC, for a table whose headline says it."""
    try:
        return f"{datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds):%Y-%m-%d %H:%M}"
    except OverflowError:
        return "a time after the year 9999" if seconds > 0 else "a time before the year 1"


_FIRST_TIME_MS = 10**12
"""2001-09-09. Smaller stream positions are numbers that somebody counts."""
_AHEAD_MAX_MS = 366 * 24 * 3600 * 1000


def position_text(position: int) -> str:
    """A stream position, and the time that it is in milliseconds, unless a writer counts in something else."""
    is_time = _FIRST_TIME_MS <= position <= time.time() * 1000 + _AHEAD_MAX_MS
    return f"{position} ({moment(position / 1000)})" if is_time else str(position)


def depth_lines(depth: Mapping[str, float]) -> list[str]:
    """How many files hold a value of the columns by which a table is clustered: a line, or none."""
    return ["depth: " + ", ".join(f"{name} {mean:,.1f}" for name, mean in depth.items())] if depth else []

"""Words and shapes that several reports share.

named({"day": "1995-04-03"})    day=1995-04-03
size(3 << 20)                   3.0 MiB
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltacompact.base.wording import counted

NOTHING_HELD = "nothing to do: the table holds no data"


@dataclass(frozen=True, slots=True)
class Shown:
    """A document, and the errors of the partitions that could not be read. The document has these errors, too."""

    document: Any
    errors: tuple[Exception, ...] = ()


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with aligned columns. Long cells are neither cut off nor wrapped."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def named(partition: Mapping[str, str | None]) -> str:
    """A partition by its values, as a path names it."""
    return "/".join(f"{name}={'null' if value is None else value}" for name, value in partition.items()) or "(all)"


def noticed(new_columns: Sequence[str], null_keys: Mapping[str, int]) -> list[str]:
    """What an eye should see of appended or compacted rows: a line for new columns, one for each key with nulls."""
    new = [f"{counted(len(new_columns), 'new column')}: {', '.join(new_columns)}"] if new_columns else []
    return new + [f"{counted(rows, 'row')} with null in key column {name!r}" for name, rows in null_keys.items()]


def size(count: float) -> str:
    """Bytes in a unit that people read."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"

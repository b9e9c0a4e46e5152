"""A number of bytes on the command line.

300MB, 2GiB, 1.5e9     300,000,000, 2,147,483,648, 1,500,000,000
300 apples             refused: "'300 apples' is no size: write 300MB or 2GiB"
"""

from __future__ import annotations

import re
from typing import Any

import click

from deltacompact.base.one_heap import share_one_heap
from deltacompact.planning.within_memory import MEMORY_BYTES_MIN


class ByteSize(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, at least `least` of them."""

    name = "size"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"([\d.]+(?:e\d+)?)\s*(?:([KMGT])(i?)B?|B)?", str(value), re.IGNORECASE)
        try:
            number, unit, binary = found.groups() if found else ("", None, None)
            size = int(float(number) * (1024 if binary else 1000) ** (" KMGT".index(unit.upper()) if unit else 0))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no size: write 300MB or 2GiB", param, ctx)
        if size < self._least:
            self.fail(f"{value} is too little: the least is {self._least >> 20}MiB", param, ctx)
        return size


def _bounding_memory(context: click.Context, option: click.Parameter, memory_bytes: int | None) -> int | None:
    """Before any other option is read, and without a bound as well: the process gets its heap."""
    share_one_heap(memory_bytes)
    return memory_bytes


BOUND: dict[str, Any] = {
    "type": ByteSize(MEMORY_BYTES_MIN),
    "is_eager": True,
    "callback": _bounding_memory,
    "metavar": "SIZE",
}
"""What --memory takes, and what it does at once, also where it is not given."""

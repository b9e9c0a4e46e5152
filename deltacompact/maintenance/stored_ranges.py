"""Checks that rows lie within the ranges by which readers skip files: those of a log, or the bounds of a manifest.

    day        the log says 3 to 9         rows have 3 to 9      holds
    day        the manifest says 3 to 9    rows have 2 to 9      a query for 2 skips the file, and misses rows
    customer   "ada" to "zp"               rows end at "zoë"     holds: long bounds are cut, the upper one rounded up

All rows of a file are compared with its ranges, dead ones too. A range that is not stored is not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.model import Partition
from deltacompact.base.wording import one_line
from deltacompact.layout.value_ranges import ONLY_NULL, Range, ValueRanges, joined, ranges_of, ranges_to_skip_by
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import files
from deltacompact.tabular.schemas import align

_CHARACTERS_SHOWN = 40
"""Most characters of a value in a message."""


def problems_of_file(store: ObjectStore, file: DataFile) -> Iterator[str]:
    """A line if a compacted file cannot be decoded; else a line for each range in the log that its rows contradict."""
    known = ranges_to_skip_by(file, file.schema)
    ranged = pa.schema([file.schema.field(name) for name in known])
    try:
        found = together(ranges_of(_as_logged(rows, ranged, file), list(known)) for _, rows in files.read(store, file))
    except Exception as error:
        yield f"file: {one_line(error)}"
        return
    yield from beyond(file.path, "the log", known, found)


def _as_logged(rows: pa.Table, columns: pa.Schema, file: DataFile) -> pa.Table:
    """These columns in the types of the log: Parquet stores seconds as milliseconds."""
    return align(rows.select(columns.names), columns, Partition(), file.path)


def together(ranges: Iterable[ValueRanges]) -> ValueRanges:
    """The ranges of the rows of several tables; empty for no table. One table is in memory at a time."""
    found: ValueRanges | None = None
    for of_file in ranges:
        found = of_file if found is None else joined([found, of_file])
    return found or {}


def beyond(path: str, said_by: str, known: Mapping[str, Range], found: ValueRanges) -> Iterator[str]:
    """A line for each column that has values beyond its known range."""
    for name, range_ in known.items():
        if not _holds(range_, has := found.get(name, ONLY_NULL)):
            what = f"column {name!r} has {_shown(has)}, {said_by} says {_shown(range_)}"
            yield f"file {path}: {what}: readers that skip by it miss rows, write the file anew"


def _holds(range_: Range, has: Range) -> bool:
    if has == ONLY_NULL:
        return True
    return range_ != ONLY_NULL and _in_order(range_[0], has[0]) and _in_order(has[1], range_[1])


def _in_order(one: Any, other: Any) -> bool:
    return one is None or other is None or bool(one <= other)


def _shown(range_: Range) -> str:
    return "only null" if range_ == ONLY_NULL else " to ".join(map(_text, range_))


def _text(value: Any) -> str:
    text = repr(value.decode(errors="replace")) if isinstance(value, bytes) else str(value)
    return text if len(text) <= _CHARACTERS_SHOWN else f"{text[:_CHARACTERS_SHOWN]}…"

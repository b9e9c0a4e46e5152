"""The statistics of a file, from its Parquet footer (PROTOCOL.md, "Per-file Statistics").

    id 1…9                  min 1, max 9
    price 0.5, NaN          nullCount only: a footer's bounds leave NaN out, and NaN is the greatest for Delta readers
    text, 40 characters     min: its first 32; max: its first 32, with the last character raised by one
    at …05.1239             min …05.123Z, max …05.124Z: right for readers of milliseconds and of microseconds

Readers that skip a file by a wrong bound lose rows. So uncertain bounds are left out.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_COLUMNS_MAX = 32
"""As many columns as Delta indexes by default."""
_CHARACTERS_MAX = 32
_EPOCH = datetime.datetime(1970, 1, 1)
_PER_MILLISECOND = {"milliseconds": 1, "microseconds": 1_000}


def statistics_of(footer: pq.FileMetaData, columns: pa.Schema, all_live: bool) -> str:
    """The statistics as the log has them. `columns`: those of the table, without partition keys."""
    found = _ColumnsSoFar()
    leaves = _flat_leaves(footer)
    for field in list(columns)[:_COLUMNS_MAX]:
        if field.name in leaves and not pa.types.is_nested(field.type):
            found.add(field, footer, leaves[field.name])
    return json.dumps(
        {
            "numRecords": footer.num_rows,
            "minValues": found.lower,
            "maxValues": found.upper,
            "nullCount": found.nulls,
            "tightBounds": all_live,
        },
        ensure_ascii=False,  # as commit_lines
    )


def _flat_leaves(footer: pq.FileMetaData) -> dict[str, int]:
    """The numbers of the columns that are not part of a nested column, by name."""
    leaves = [footer.schema.column(index) for index in range(footer.num_columns)]
    paths = Counter(leaf.path for leaf in leaves)
    return {
        leaf.name: index
        for index, leaf in enumerate(leaves)
        if leaf.name == leaf.path and paths[leaf.path] == 1 and leaf.max_repetition_level == 0
    }


class _ColumnsSoFar:
    """Bounds and counts of nulls by column, added column by column."""

    def __init__(self) -> None:
        self.lower: dict[str, Any] = {}
        self.upper: dict[str, Any] = {}
        self.nulls: dict[str, int] = {}

    def add(self, field: pa.Field, footer: pq.FileMetaData, index: int) -> None:
        chunks = [footer.row_group(group).column(index) for group in range(footer.num_row_groups)]
        chunks = [chunk for chunk in chunks if chunk.num_values]
        known = [chunk.statistics for chunk in chunks]
        if not all(stats is not None and stats.has_null_count for stats in known):
            return
        self.nulls[field.name] = sum(stats.null_count for stats in known)
        valued = [stats for stats, chunk in zip(known, chunks, strict=True) if stats.null_count < chunk.num_values]
        if valued and all(stats.has_min_max for stats in valued):
            with contextlib.suppress(OverflowError, ValueError):  # a value that the protocol cannot write
                lower, upper = _bounds(field.type, footer.schema.column(index), valued)
                self.lower |= {} if lower is None else {field.name: lower}
                self.upper |= {} if upper is None else {field.name: upper}


def _bounds(type_: pa.DataType, leaf: pq.ColumnSchema, known: Sequence[pq.Statistics]) -> tuple[Any, Any]:
    t = pa.types
    if t.is_timestamp(type_):
        return _times(type_, leaf, known)
    if t.is_string(type_):
        lower, upper = min(_text_of(stats.min) for stats in known), max(_text_of(stats.max) for stats in known)
        return lower[:_CHARACTERS_MAX], _not_below(upper)
    if t.is_date32(type_):
        return min(stats.min for stats in known).isoformat(), max(stats.max for stats in known).isoformat()
    if t.is_signed_integer(type_):
        return int(min(stats.min for stats in known)), int(max(stats.max for stats in known))
    return None, None


def _text_of(bound: str | bytes) -> str:
    """A bound as text. If DuckDB declared a text as JSON, PyArrow gives its bounds as bytes."""
    return bound if isinstance(bound, str) else bound.decode()


def _not_below(text: str) -> str | None:
    """A text of at most 32 characters that is not less. None: there is none. Readers compare code points."""
    if len(text) <= _CHARACTERS_MAX:
        return text
    for place in reversed(range(_CHARACTERS_MAX)):
        code = ord(text[place]) + 1
        if code <= 0x10FFFF:
            return text[:place] + chr(0xE000 if 0xD800 <= code < 0xE000 else code)
    return None


def _times(type_: pa.DataType, leaf: pq.ColumnSchema, known: Sequence[pq.Statistics]) -> tuple[Any, Any]:
    """The bounds in milliseconds: the least rounded down, the greatest up."""
    per = _PER_MILLISECOND.get(json.loads(leaf.logical_type.to_json()).get("timeUnit", ""))
    if per is None or leaf.physical_type != "INT64":
        return None, None
    lower, upper = min(stats.min_raw for stats in known) // per, -(-max(stats.max_raw for stats in known) // per)
    return _text(lower, type_.tz), _text(upper, type_.tz)


def _text(milliseconds: int, zone: str | None) -> str:
    text = (_EPOCH + datetime.timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
    return text + ("Z" if zone else "")

"""Sort keys that change events have as texts, in an order that their source means: inferred_keys.py says which.

A column that the table knows keeps its type. So does one that its file or frame says to be of texts, but for positions
in a log: Debezium writes Oracle's as texts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import SchemaError
from deltacompact.base.table_keys import TableKeys
from deltacompact.change_events.events import Events, Placed
from deltacompact.tabular import column_types, schemas
from deltacompact.tabular.inferred_keys import is_log_position, ordered_type
from deltacompact.tabular.text_types import time_type

_FIXED_WIDTH = r"^[0-9a-fA-F]{8}:[0-9a-fA-F]{8}:[0-9a-fA-F]{4}$"
"""Log positions of SQL Server, which are in order as texts."""


def in_their_order(
    events: Events, keys: TableKeys, known: Mapping[str, pa.DataType], kept: Collection[str], are_messages: bool
) -> Events:
    """The events, with sort keys in the types that `known` has, or that the texts mean. Primary keys stay texts, and
    those `kept`. `are_messages`: they come in envelopes, which have times as texts.

    Raises SchemaError for a value that does not fit a known type.
    """
    for name in (key.name for key in keys.sort if key.name not in (*keys.primary, *kept)):
        if texts := list(_texts(events, name)):
            type_ = known.get(name)
            if type_ is None:
                may_mean = are_messages or is_log_position(name)
                type_ = ordered_type(name, _together(texts)) if may_mean else pa.string()
            upserts, deletes = (_cast(side, name, type_, events.name) for side in (events.upserts, events.deletes))
            events = replace(events, upserts=upserts, deletes=deletes)
    return events


def compared_as_texts(events: Events, keys: TableKeys) -> list[str]:
    """The sort keys whose values are texts that may mean another order than that of their bytes."""
    return [
        key.name
        for key in keys.sort
        if not all(_all_match(texts, _FIXED_WIDTH) for texts in _texts(events, key.name) if len(texts))
    ]


def _texts(events: Events, name: str) -> Iterator[pa.ChunkedArray]:
    for side in (events.upserts, events.deletes):
        if name in side.rows.column_names:
            column = schemas.plain(side.rows[name])
            if column_types.is_string(column.type):
                yield column


def _together(texts: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for text in texts for chunk in text.cast(pa.string()).chunks], pa.string())


def _all_match(column: pa.ChunkedArray, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(column, pattern=pattern)).as_py() is not False


def _cast(side: Placed, name: str, type_: pa.DataType, origin: str) -> Placed:
    number = side.rows.schema.get_field_index(name)
    if number < 0 or not column_types.is_string(schemas.plain(side.rows[name]).type):
        return side
    column = schemas.plain(side.rows[name])
    if pa.types.is_timestamp(type_) and (said := time_type(column)) is not None:
        # In UTC where the type has no zone, as Arrow's parser of JSON. `time_type` has microseconds at least.
        column, type_ = column.cast(said), type_ if type_.unit == "ns" else pa.timestamp(said.unit, type_.tz)
    try:
        column = schemas.cast(column, type_, origin, name)
    except SchemaError as error:
        advice = "declare a wider type, or string, when you create the table (--columns, columns=)"
        raise SchemaError(f"{error}: {advice}") from None
    return replace(side, rows=side.rows.set_column(number, name, column))

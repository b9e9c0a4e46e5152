"""How files of delta streams lie by some columns: compacted files and deltas, by the statistics of their footers.

    orders, day 3    2 compacted files, 3 deltas       5 footers: 9 row groups have bounds of `id`, one has none
    depth of id      2.4 files hold a value            a reader opens 48 % of the files, and 31 % of the row groups

Whatever has no bounds may hold any value: CSV, JSON, a group of nulls, a footer that cannot be read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.model import DataFile, OperationType, Partition, Table
from deltacompact.base.partitions import side_by_side
from deltacompact.base.wording import column_meant, counted
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.streams import Streams
from deltacompact.layout.advice import READS, Advice, Outlook
from deltacompact.layout.boxes import ColumnBounds, boxes_of
from deltacompact.layout.cluster_by import ClusterColumn, cluster_columns
from deltacompact.layout.depth import depth_of
from deltacompact.layout.order import has_order
from deltacompact.layout.told_reads import ToldReads, told_reads
from deltacompact.tabular.key_ranges import KeyedGroup, keyed_groups

FOOTERS_MAX = 4_096
"""So many footers are read. Of a larger table, one names partitions."""


@dataclass(frozen=True, slots=True)
class _Lying:
    """A file, the number of its partition, and its row groups with the ranges of their columns."""

    file: DataFile
    partition: int
    groups: tuple[KeyedGroup, ...]


def advice_of_streams(
    streams: Streams,
    table_id: str,
    columns: str | Sequence[str] | None = None,
    partition: Partition | None = None,
    scan_reports: Iterable[Any] = (),
    spark_logs: Iterable[str | Path] = (),
) -> Advice:
    """The depth of these columns; without any, of those that reads ask for, else of those by which the table is
    clustered, else of the primary keys.

    Raises InputError for a column that no file has, that lies in a struct, or has no order, for reads of which none
    asks for a column of the table, and for too many files.
    """
    table = streams.declared(table_id)
    chosen = streams.partitions(table_id) if partition is None else [partition]
    states = side_by_side(chosen, lambda one: streams.state(table_id, one), streams.at_once)
    files = [(number, file) for number, state in enumerate(states) for file in _files(state)]
    if len(files) > FOOTERS_MAX:
        raise InputError(f"table {table_id!r} has {len(files):,} files, whose footers would be read: name a partition")
    told = told_reads(table_id, _ordered(file for _, file in files), time.time(), scan_reports, spark_logs)
    names = [one.name for one in _columns(table, columns, told)]
    if not (names := names or list(table.keys.primary if table.keys else ())):
        raise InputError(f"table {table_id!r} has no primary keys yet: name columns, day,customer")
    types = {name: _type(table_id, name, [file for _, file in files]) for name in names} if files else {}
    lying = side_by_side(files, lambda one: _Lying(one[1], one[0], _groups(streams, one[1], names)), streams.at_once)
    size = sum(file.bytes for _, file in files)
    found = Advice(table_id, tuple(names), len(chosen), len(files), size, (), READS, can_cluster=False)
    return _with_depth(replace(found, notes=told.notes), lying, types) if files else found


def _columns(table: Table, columns: str | Sequence[str] | None, told: ToldReads) -> tuple[ClusterColumn, ...]:
    if not columns and told.sources:
        return told.columns_asked()
    return cluster_columns("columns", columns or table.cluster_by or "")


def _ordered(files: Iterable[DataFile]) -> frozenset[str]:
    """The columns by which files may lie apart."""
    return frozenset(field.name for file in files for field in file.schema if has_order(field.type))


def _files(state: StreamState) -> Iterator[DataFile]:
    """The files that hold rows."""
    yield from state.compacted.files if state.compacted else ()
    for delta in state.deltas:
        yield from delta.files if delta.operation is OperationType.UPSERT else ()


def _groups(streams: Streams, file: DataFile, names: Sequence[str]) -> tuple[KeyedGroup, ...]:
    try:
        return keyed_groups(streams.store, replace(file, ranges=()), names)  # no reader sees those of text files
    except (ValueError, OverflowError):  # moments that Python does not have
        return (KeyedGroup(file.live_rows, file.bytes),)


def _type(table_id: str, name: str, files: Sequence[DataFile]) -> pa.DataType:
    """The type of a column, as the last file has it."""
    known = [file.schema.field(name).type for file in files if name in file.schema.names]
    if not known:
        why = "name one at the top level" if "." in name else column_meant(name, files[-1].schema.names)
        raise InputError(f"no file of table {table_id!r} has a column {name!r}: {why}")
    if not has_order(known[-1]):
        raise InputError(f"column {name!r} of table {table_id!r} is {known[-1]}, whose values have no order")
    return known[-1]


def _with_depth(advice: Advice, lying: Sequence[_Lying], types: dict[str, pa.DataType]) -> Advice:
    files = [[group.ranges for group in one.groups] for one in lying]
    groups = [[group.ranges] for one in lying for group in one.groups]
    partitions = [one.partition for one in lying] + [one.partition for one in lying for _ in one.groups]
    rows = [one.file.live_rows for one in lying] + [group.rows for one in lying for group in one.groups]
    bounds = [_bounds([*files, *groups], name, type_) for name, type_ in types.items()]
    together = boxes_of(advice.columns, bounds, np.array(partitions, np.int64), rows)
    boxes, of_groups = together.take(np.arange(len(files))), together.take(np.arange(len(files), together.files))
    places = range(len(advice.columns))
    found = [Outlook(depth_of(boxes.of(place), of_groups.of(place))) for place in places]
    together_too = [Outlook(depth_of(boxes, of_groups))] if len(places) > 1 else []
    notes = (*advice.notes, *_notes(advice.columns, bounds, len(files)))
    return replace(advice, outlooks=(*found, *together_too), notes=notes, boxes=boxes)


def _notes(columns: Iterable[str], bounds: Iterable[ColumnBounds], files: int) -> Iterator[str]:
    for name, of_column in zip(columns, bounds, strict=True):
        if unknown := of_column.low.slice(0, files).null_count:
            yield f"{counted(unknown, 'file')} without bounds of column {name!r}: readers open them always"


def _bounds(ranges: Sequence[Sequence[Any]], name: str, type_: pa.DataType) -> ColumnBounds:
    """The bounds of files, each of which has these ranges of its row groups."""
    known = [
        [of_group[name] for of_group in one] if all(name in of_group for of_group in one) else [] for one in ranges
    ]
    low, high = (
        pa.array([_compared(pick(pair[side] for pair in one), type_) if one else None for one in known], _held(type_))
        for side, pick in ((0, min), (1, max))
    )
    none = np.zeros(len(ranges), bool)
    return ColumnBounds(low, high, none, none)


def _held(type_: pa.DataType) -> pa.DataType:
    """The Arrow type in which bounds are compared."""
    if pa.types.is_floating(type_):
        return pa.float64()
    if pa.types.is_decimal(type_):
        return pa.decimal256(76, type_.scale)
    is_text = pa.types.is_string(type_) or pa.types.is_large_string(type_)
    is_bytes = pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_)
    return pa.binary() if is_text or is_bytes else pa.int64()


def _compared(value: Any, type_: pa.DataType) -> Any:
    """A bound in that type. None: it is of another type than the column."""
    if isinstance(value, str):
        return value.encode()
    try:
        if _held(type_) != pa.int64():
            return value
        stored = pa.array([value], type_)
        return stored.cast(pa.int32() if type_.bit_width == 32 else pa.int64()).cast(pa.int64())[0].as_py()
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None

"""The files of the chosen partitions: when each came, and the ranges of its row groups in the columns of interest.

    partition 0    c-7 of version 12     came at 09:00    3 row groups    day 1 to 3, 3 to 4, 4 to 9
    partition 0    delta 41              came at 09:20    1 row group     day 9
    partition 1    delta 8, a CSV        came at 08:10    1               any value

Ranges come from footers. A row group without bounds may hold any value: in CSV and JSON files, a group of nulls, or one
whose footer cannot be read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import InputError
from deltacompact.base.model import OperationType, Partition, Table
from deltacompact.base.partitions import side_by_side
from deltacompact.base.shared_arguments import ReportedReads
from deltacompact.base.wording import column_meant
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.streams import Streams
from deltacompact.layout.collected_reads import CollectedReads, collected_reads
from deltacompact.layout.order import has_order
from deltacompact.layout.value_ranges import ValueRanges
from deltacompact.steps.file_ranges import ranges_of_group
from deltacompact.tabular.column_types import stored_type
from deltacompact.tabular.key_ranges import KeyedGroup, keyed_groups

FOOTERS_MAX = 4_096
"""At most so many footers are read. For a larger table, the user names a partition."""


@dataclass(frozen=True, slots=True)
class ArrivedFile:
    """A file, the number of its partition, and when it came there, in Unix seconds."""

    file: DataFile
    partition: int
    came_s: float


@dataclass(frozen=True, slots=True)
class RangedFile:
    """A file, the number of its partition, and its row groups with the ranges of their columns."""

    file: DataFile
    partition: int
    groups: tuple[KeyedGroup, ...]
    ranges: tuple[ValueRanges, ...]

    def ranged_groups(self) -> Iterator[tuple[KeyedGroup, ValueRanges]]:
        return zip(self.groups, self.ranges, strict=True)


@dataclass(frozen=True)
class ExaminedFiles:
    """Some partitions of a table, and the files that hold rows there."""

    streams: Streams
    table: Table
    partitions: Sequence[Partition]
    files: Sequence[ArrivedFile]

    @classmethod
    def at(cls, streams: Streams, table_id: str, partition: Partition | None) -> ExaminedFiles:
        """One partition, or all. Raises InputError for a table of too many files."""
        table = streams.described(table_id)  # a compaction of another process may have declared its keys
        chosen = streams.chosen(table_id, partition)
        states = side_by_side(chosen, lambda part: streams.state(table_id, part), streams.at_once)
        files = [ArrivedFile(file, number, at_s) for number, state in enumerate(states) for file, at_s in _files(state)]
        if len(files) > FOOTERS_MAX:
            many = f"table {table_id!r} has {len(files):,} files, whose footers would be read"
            raise InputError(f"{many}: name a partition")
        return cls(streams, table, chosen, files)

    @cached_property
    def ordered_columns(self) -> frozenset[str]:
        """The columns that can cluster rows: those with an order, without partition keys, which have one value."""
        names = {field.name for arrived in self.files for field in arrived.file.schema if has_order(field.type)}
        return frozenset(names.difference(self.table.partition_keys))

    def reads(self, reported: ReportedReads) -> CollectedReads:
        """The reads of the table that others tell, by the columns that can cluster its rows."""
        return collected_reads(self.table.table_id, self.ordered_columns, time.time(), **reported)

    @property
    def bytes(self) -> int:
        return sum(arrived.file.bytes for arrived in self.files)

    def schema(self, names: Sequence[str]) -> pa.Schema:
        """The columns with their types. Raises InputError for a column that no file has, or that has no order."""
        files = [arrived.file for arrived in self.files]
        return pa.schema([(name, _type(self.table.table_id, name, files)) for name in names])

    def ranged(self, columns: pa.Schema) -> Sequence[RangedFile]:
        """The files with the ranges of these columns, from their footers."""
        return side_by_side(self.files, lambda arrived: self._ranged(arrived, columns), self.streams.at_once)

    def _ranged(self, arrived: ArrivedFile, columns: pa.Schema) -> RangedFile:
        file = arrived.file
        # Without the ranges of text files that the log has: no reader sees those.
        groups = keyed_groups(self.streams.store, replace(file, ranges=()), columns.names)
        ranges = tuple(ranges_of_group(group, file.schema, columns) for group in groups)
        return RangedFile(file, arrived.partition, groups, ranges)


def _files(state: StreamState) -> Iterator[tuple[DataFile, float]]:
    """The files that hold rows, and when each came."""
    made_s = (state.opened.time_ms or 0) / 1000
    yield from ((file, made_s) for file in (state.compacted.files if state.compacted else ()))
    times_s = {delta.position: commit.time_ms / 1000 for commit in state.commits for delta in commit.deltas}
    for delta in state.deltas:
        if delta.operation is OperationType.UPSERT:
            yield from ((file, times_s.get(delta.position, made_s)) for file in delta.files)


def _type(table_id: str, name: str, files: Sequence[DataFile]) -> pa.DataType:
    """The type in which a column is stored, as the last file has it."""
    known = [file.schema.field(name).type for file in files if name in file.schema.names]
    if not known:
        why = "name one at the top level" if "." in name else column_meant(name, files[-1].schema.names)
        raise InputError(f"no file of table {table_id!r} has a column {name!r}: {why}")
    type_ = stored_type(known[-1])  # a file's view of texts or binaries is compared as what it will be
    if not has_order(type_):
        raise InputError(f"column {name!r} of table {table_id!r} is {type_}, whose values have no order")
    return type_

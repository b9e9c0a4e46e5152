"""Which files and row groups a read leaves out, because none of their rows can match its filter.

    day > 5       a.parquet    the log or manifest says day 1 to 3            it is not opened
                  b.parquet    day 4 to 9     group 0: day 4 to 5             it is opened, and group 0 is not decoded
                                              group 1: day 6 to 9

The rest is still filtered row by row. Live rows must be known before: a row that a later delta replaced is dead, even
if it matches the filter and the later one does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from operator import and_

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact.base import compute as pc
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import SchemaError
from deltacompact.base.model import ContentType, Partition
from deltacompact.layout.skipping import (
    ANYTHING,
    ONLY_NULLS,
    KnownColumn,
    KnownColumns,
    bound_of,
    is_bounded,
    may_match,
)
from deltacompact.layout.value_ranges import in_type, known_from, ranges_to_skip_by
from deltacompact.reading.selection import Selected
from deltacompact.tabular import chunk_statistics, partition_texts
from deltacompact.tabular.files import FileReader

Mask = npt.NDArray[np.bool_]


_asked: ContextVar[tuple[tuple[str, ...], pc.Expression | None]] = ContextVar(
    "what another library asks", default=((), None)
)


@contextlib.contextmanager
def asked_by(columns: Sequence[str], wanted: pc.Expression | None) -> Iterator[None]:
    """Scans that begin here are asked by these columns too: the caller leaves out rows itself.

    `wanted`: true for all rows that it keeps. None: nobody can tell.
    """
    before = _asked.set((tuple(columns), wanted))
    try:
        yield
    finally:
        _asked.reset(before)


def columns_asked(selected: Selected) -> tuple[str, ...]:
    """The columns with a predicate, of a selection and of another library."""
    return tuple(dict.fromkeys([*selected.asked, *_asked.get()[0]]))


@dataclass(frozen=True, slots=True)
class Skipping:
    """What a read leaves out.

    columns    the columns that it reads
    asked      those of them that the filter uses and that have an order
    wanted     an expression that holds for every wanted row; None: unknown, so nothing is left out
    """

    columns: pa.Schema
    asked: pa.Schema
    wanted: pc.Expression | None = None

    @classmethod
    def of(cls, selected: Selected) -> Skipping:
        """By the filter of a selection, and by what another library says that it leaves out itself."""
        _, also = _asked.get()
        both = [expression for expression in (selected.expression, also) if expression is not None]
        names = columns_asked(selected)
        asked = [column for column in selected.needed if column.name in names and is_bounded(column.type)]
        return cls(selected.needed, pa.schema(asked), reduce(and_, both) if both and asked else None)

    def may_match(self, files: Sequence[KnownColumns]) -> list[bool]:
        """For each file, whether it may have wanted rows."""
        return [True] * len(files) if self.wanted is None else may_match(self.wanted, self.columns, files)

    def rows(self, file: DataFile, footer: pq.FileMetaData, lives: Mask | None) -> Mask | None:
        """The live rows (None: all) that lie in row groups which may have wanted rows."""
        if self.wanted is None:
            return lives
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        places = chunk_statistics.places_of(file, footer, self.asked.names)
        known = [{name: self._of_chunk(file, name, group, place) for name, place in places.items()} for group in groups]
        may = self.may_match(known)
        if all(may):
            return lives
        found = np.repeat(np.array(may, bool), [group.num_rows for group in groups])
        return found if lives is None else found & lives

    def live(self, reader: FileReader, lives: Mask | None) -> Mask | None:
        """As `rows`, for a file of a stream in any format."""
        if reader.file.content_type is not ContentType.PARQUET or not reader.file.rows:
            return lives
        return self.rows(reader.file, reader.parquet.metadata, lives)

    def _of_chunk(self, file: DataFile, name: str, group: pq.RowGroupMetaData, place: int) -> KnownColumn:
        """What a footer says of a column in a row group."""
        chunk, was, now = group.column(place), file.schema.field(name).type, self.asked.field(name).type
        said = chunk.statistics
        if said is None:
            return ANYTHING
        nulls = said.null_count if said.has_null_count else None
        if not said.has_min_max:
            return KnownColumn(values=nulls != group.num_rows, nulls=nulls != 0)
        low = high = None
        if (bounds := chunk_statistics.bounds(chunk, was)) is not None:
            with contextlib.suppress(pa.ArrowException, ValueError, TypeError, OverflowError):  # NaN, or a far moment
                stored = chunk_statistics.type_of_bounds(was)
                low, high = (bound_of(in_type(bound, stored, now), now) for bound in bounds)
        return KnownColumn(low, high, nulls=nulls != 0)


NOTHING_SKIPPED = Skipping(pa.schema([]), pa.schema([]))


def known_of(file: DataFile, partition: Partition, columns: pa.Schema) -> KnownColumns:
    """What the log tells about the columns of a file. Columns that it lacks have the partition's value, or null."""
    lacked = {name: ONLY_NULLS for name in columns.names if name not in file.schema.names}
    return {**lacked, **known_from(ranges_to_skip_by(file, columns), columns), **known_of_partition(partition, columns)}


def known_of_partition(partition: Partition, columns: pa.Schema) -> KnownColumns:
    """The partition's values, which all its rows have."""
    return {name: _constant(text, columns.field(name)) for name, text in partition.values if name in columns.names}


def _constant(text: str | None, column: pa.Field) -> KnownColumn:
    if text is None:
        return ONLY_NULLS
    try:
        value = partition_texts.partition_scalar(text, column)
    except SchemaError:  # reading the rows will raise it
        return ANYTHING
    return ANYTHING if pa.types.is_floating(column.type) else KnownColumn(value, value, nulls=False)

"""Collects tables until they fill a row group, by rows or by bytes. Columns with repeated values get a dictionary.

write(50,000 rows) · write(100,000 rows)      ->  group of 128 k rows · 22 k are waiting
write(2,000 rows of 64 KiB)                   ->  groups of 512 rows: 32 MiB each
write(100,000 rows) · cell_ends()             ->  group of 100 k rows: rows of the next cell would widen its ranges
"""

from __future__ import annotations

import base64
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.model import ContentType
from deltacompact.base.settings import DEFAULTS
from deltacompact.tabular import row_bytes

if TYPE_CHECKING:
    import pyarrow.parquet as pq

ROW_GROUP_ROWS = DEFAULTS.row_group_rows
ROW_GROUP_BYTES = 32 << 20
"""Most bytes of a row group. A single dead row makes a session decode and encode the whole group."""
CELLS_MAX = 48
"""Most cells of a file: the sample has 200 rows for each file, so four for a cell."""
_CELL_FULL = 0.8
"""The planned size of a cell as a share of a row group: real cells are larger or smaller than planned."""
DEFAULT_CODEC = "zstd"
_WITH_DICTIONARIES = frozenset({ContentType.PARQUET, ContentType.FEATHER})
"""Formats that keep dictionaries. Other formats get decoded values."""
_DICTIONARY_BYTES_MAX = 1 << 30
_DICTIONARY_ROWS_MIN = 1 << 10
_DICTIONARY_SAMPLE_ROWS = 32 << 10
_DICTIONARY_SAMPLE_ROWS_MIN = 64
_DICTIONARY_SAMPLE_BYTES = 4 << 20
"""Counting distinct values copies them, so the sample is small."""
_DICTIONARY_VALUE_BYTES_MAX = 1 << 20
"""One value of this size fills a dictionary page, after which pyarrow stops using the dictionary."""
_DICTIONARY_LOOK_ROWS = 1 << 10
_DICTIONARY_DISTINCT_MAX = 0.4


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How files are written. `codec` is pyarrow's name of a codec, also for ORC and Feather.

    Without a codec, an output has the codec of the files that it rewrites, else zstd.
    """

    content_type: ContentType = DEFAULTS.content_type
    codec: str | None = None
    row_group_rows: int = DEFAULTS.row_group_rows


def cells_of(rows: float, row_bytes: float, row_group_rows: int) -> int:
    """The number of cells for the rows of a file, so that a cell fits a row group. `row_bytes`: of a row in memory."""
    fitting = min(row_group_rows, ROW_GROUP_BYTES / max(1.0, row_bytes))
    return 1 if rows <= fitting else min(CELLS_MAX, math.ceil(rows / fitting / _CELL_FULL))


class RowGroups(ABC):
    """Collects tables of one schema until they fill a row group, by rows or by bytes.

    A row that would make a group too large begins the next group. A group exceeds the limit only with a single row.
    """

    def __init__(self, schema: pa.Schema, options: WriteOptions) -> None:
        self.rows = 0
        self.decoded_bytes = self.group_bytes = self.widest_row_bytes = 0
        self._schema = schema
        self._options = options
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._dictionaries_in: list[str] | None = None

    def write(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        whole = table
        while table.num_rows:
            fitting = self._fitting(table)
            if fitting:
                piece = row_bytes.compact(table.slice(0, fitting))
                self._waiting.append(piece)
                self._waiting_rows += fitting
                piece_bytes = self._bytes_of(piece)
                self._waiting_bytes += piece_bytes
                self.decoded_bytes += piece_bytes
                self.widest_row_bytes = max(self.widest_row_bytes, min(piece_bytes, row_bytes.widest(piece)))
                table = table.slice(fitting)
            if not fitting or self._waiting_rows == self._options.row_group_rows:
                if whole.num_rows > self._waiting_rows:  # a better sample
                    self._decide_dictionaries(whole)
                self.flush()

    def cell_ends(self) -> None:
        """End the row group, because rows of another cell follow, unless it would be less than half full."""
        if 2 * self._waiting_rows >= self._options.row_group_rows or 2 * self._waiting_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def _decide_dictionaries(self, sample: pa.Table) -> None:
        if self._dictionaries_in is None:
            self._dictionaries_in = _worth_a_dictionary(sample)

    def flush(self) -> None:
        """Write the waiting rows as a row group."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            whole = pa.concat_tables(waiting)
            self._decide_dictionaries(whole)
            self._write(whole.unify_dictionaries() if self._dictionaries_may_differ(whole) else whole)
        self.group_bytes = max(self.group_bytes, self._waiting_bytes)
        self._waiting_rows = self._waiting_bytes = 0

    def _fitting(self, table: pa.Table) -> int:
        """How many of the first rows fit the group: at least one if no row is waiting."""
        room = ROW_GROUP_BYTES - self._waiting_bytes
        rows = min(table.num_rows, self._options.row_group_rows - self._waiting_rows)
        if self._bytes_of(table.slice(0, rows)) <= room:
            return int(rows)
        fitting, above = 0, rows
        while above - fitting > 1:
            middle = (fitting + above) // 2
            if self._bytes_of(table.slice(0, middle)) <= room:
                fitting = middle
            else:
                above = middle
        return fitting if self._waiting else max(1, fitting)

    def _bytes_of(self, table: pa.Table) -> int:
        return row_bytes.of_table(table, self._options.content_type in _WITH_DICTIONARIES)

    def _dictionaries_may_differ(self, table: pa.Table) -> bool:
        columns = zip(table.schema, table.columns, strict=True)
        return any(column.num_chunks > 1 and row_bytes.has_dictionary(field.type) for field, column in columns)

    @abstractmethod
    def _write(self, table: pa.Table) -> None:
        """Write one row group."""


def _worth_a_dictionary(table: pa.Table) -> list[str]:
    """Top-level columns with repeated values. A dictionary of nearly distinct values costs time and saves nothing."""
    return [field.name for field in table.schema if _repeats(field.type, table[field.name])]


def _repeats(type_: pa.DataType, column: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(type_) or pa.types.is_nested(type_):
        return True
    if pa.types.is_boolean(type_) or column.nbytes > len(column) * _DICTIONARY_VALUE_BYTES_MAX:
        return False
    if len(column) < _DICTIONARY_ROWS_MIN:
        return True
    sample = column.slice(0, _DICTIONARY_SAMPLE_ROWS)
    while sample.nbytes > _DICTIONARY_SAMPLE_BYTES and len(sample) > _DICTIONARY_SAMPLE_ROWS_MIN:
        sample = sample.slice(0, max(_DICTIONARY_SAMPLE_ROWS_MIN, len(sample) // 2))
    if sample.nbytes > len(sample) * _DICTIONARY_VALUE_BYTES_MAX:
        return False
    try:
        if len(sample) > _DICTIONARY_LOOK_ROWS and _hardly_repeats(sample):
            return False
        return bool(pc.count_distinct(sample, mode="all").as_py() <= len(sample) * _DICTIONARY_DISTINCT_MAX)
    except pa.ArrowNotImplementedError:
        return True


def _hardly_repeats(sample: pa.ChunkedArray) -> bool:
    """Whether few rows, anywhere in the sample, show that it has many more values than rows. To count all of them took
    a fifth of the time to write 64 files."""
    rows = np.random.default_rng(0).choice(len(sample), _DICTIONARY_LOOK_ROWS, replace=False)
    return bool(pc.count_distinct(sample.take(pa.array(rows)), mode="all").as_py() >= _DICTIONARY_LOOK_ROWS - 2)


def parquet_writer(
    sink: IO[bytes] | pa.NativeFile,
    schema: pa.Schema,
    options: WriteOptions,
    dictionaries_in: list[str],
    page_index: bool = False,
) -> pq.ParquetWriter:
    """A Parquet writer that dictionary-encodes the columns `dictionaries_in`.

    The dictionary of an Arrow dictionary column is written whole, however large: above its own limit, pyarrow would
    decode all rows.
    """
    import pyarrow.parquet as pq  # with Arrow's file systems and TLS: a plan does without

    codec = options.codec or DEFAULT_CODEC
    arguments: dict[str, Any] = {"compression": codec, "use_dictionary": dictionaries_in or False}
    in_file = schema_in_file(schema)
    if in_file == schema:
        return pq.ParquetWriter(sink, schema, write_page_index=page_index, **arguments)
    if any(row_bytes.has_dictionary(field.type) for field in schema):
        arguments["dictionary_pagesize_limit"] = _DICTIONARY_BYTES_MAX
    writer = pq.ParquetWriter(sink, schema, write_page_index=page_index, store_schema=False, **arguments)
    writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(in_file.serialize())})
    return writer


def schema_in_file(schema: pa.Schema) -> pa.Schema:
    """The types that a file gives Arrow's readers: values for dictionaries, for dates the one type that Parquet has.
    Of two files, one with a dictionary of texts and one with texts, Polars and PyIceberg read only one."""
    return pa.schema([_in_file(field) for field in schema], schema.metadata)


def _in_file(field: pa.Field) -> pa.Field:
    t, type_ = pa.types, field.type
    if t.is_dictionary(type_):
        return _in_file(field.with_type(type_.value_type))
    if t.is_date64(type_):
        return field.with_type(pa.date32())
    if t.is_struct(type_):
        return field.with_type(pa.struct([_in_file(child) for child in type_]))
    if t.is_map(type_):
        return field.with_type(pa.map_(_in_file(type_.key_field), _in_file(type_.item_field), type_.keys_sorted))
    if t.is_fixed_size_list(type_):
        return field.with_type(pa.list_(_in_file(type_.value_field), type_.list_size))
    if t.is_list(type_) or t.is_large_list(type_):
        made = pa.list_ if t.is_list(type_) else pa.large_list
        return field.with_type(made(_in_file(type_.value_field)))
    return field

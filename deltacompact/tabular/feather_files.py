"""Arrow files, Feather V1 and IPC streams: their record batches by number.

rows.arrow    batches of 3, 3 and 1 rows      the head of each tells its rows; read one at a time
rows.feather  (V1), a stream                  one batch, which is read whole

A batch is validated before anybody follows its offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.feather

_TAIL_BYTES = 10
"""After the footer of an Arrow file: its length and six letters."""


@dataclass(frozen=True)
class Batches:
    """Record batches by number, with the rows of each. Feather V1 and an IPC stream are a single batch."""

    schema: pa.Schema
    rows: list[int]
    table: Any

    @property
    def bytes_max(self) -> int:
        """The bytes of the largest batch. All are decoded."""
        return max((self.table(number).nbytes for number in range(len(self.rows))), default=0)


def batches_of(source: pa.NativeFile, columns: list[str] | None) -> Batches:
    """The batches of an open file, with these columns. Raises ArrowInvalid where it is damaged."""
    magic = source.read(6)
    source.seek(0)
    if magic[:6] == b"ARROW1":
        plain = pa.ipc.open_file(source)
        fields = None if columns is None else sorted(plain.schema.get_field_index(name) for name in columns)
        # An empty selection would mean all columns, so read one column and drop it.
        reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields or None))
        try:
            rows = list(_batch_rows(source))
        except struct.error as error:
            raise pa.ArrowInvalid(f"the head of a record batch is damaged: {error}") from error
        return Batches(plain.schema, rows, lambda number: _sound(reader.get_batch(number)))
    whole = pa.feather.read_table(source) if magic[:4] == b"FEA1" else pa.ipc.open_stream(source).read_all()
    whole = pa.concat_tables(map(_sound, whole.to_batches())) if whole.num_rows else whole
    return Batches(whole.schema, [whole.num_rows], lambda _: whole)


def _batch_rows(source: pa.NativeFile) -> Iterator[int]:
    """The rows of each batch of an Arrow file: pyarrow tells them of batches that it has decoded."""
    footer_batches, message_header, batch_rows = 3, 2, 0
    end = source.size() - _TAIL_BYTES
    (length,) = struct.unpack("<i", source.read_at(4, end))
    footer = source.read_at(length, end - length)
    listed = _field(footer, _followed(footer, 0), footer_batches)
    if not listed:  # a writer may leave out an empty list
        return
    blocks = _followed(footer, listed)
    for number in range(_number("<I", footer, blocks)):
        at, head_bytes = struct.unpack_from("<qi", footer, blocks + 4 + 24 * number)
        head = source.read_at(max(0, min(head_bytes, end)), at)
        begin = 8 if head[:4] == b"\xff" * 4 else 4  # files of before Arrow 0.15 lack the four bytes
        message = head[begin:]
        batch = _followed(message, _field(message, _followed(message, 0), message_header))
        rows = _field(message, batch, batch_rows)
        yield _number("<q", message, rows) if rows else 0


# FlatBuffers, in which Arrow writes its metadata


def _number(kind: str, data: bytes, at: int) -> int:
    (value,) = struct.unpack_from(kind, data, at)
    return int(value)


def _followed(data: bytes, at: int) -> int:
    """Where the offset that is stored here leads."""
    return at + _number("<I", data, at)


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a table is. 0: it has its default."""
    fields = table - _number("<i", data, table)
    known = (_number("<H", data, fields) - 4) // 2
    offset = _number("<H", data, fields + 4 + 2 * number) if number < known else 0
    return table + offset if offset else 0


def _sound(batch: pa.RecordBatch) -> pa.Table:
    """The rows of a batch. Raises ArrowInvalid where bytes are damaged: to follow their offsets ends the process.

    date64 has no offsets, and Arrow refuses those that are no whole days in worse words than ours. It refuses times of
    day after 23:59, too, which all formats hold.
    """
    for column in batch.columns:
        if not pa.types.is_date64(column.type):
            numbers = _times_as_numbers(column.type)
            (column if numbers == column.type else column.view(numbers)).validate(full=True)
    return pa.Table.from_batches([batch])


def _times_as_numbers(type_: pa.DataType) -> pa.DataType:
    """The type, with the integers that times of day are stored as. Views of lists stay as they are."""
    t = pa.types
    if t.is_time(type_):
        return pa.int32() if t.is_time32(type_) else pa.int64()
    if t.is_dictionary(type_):
        return pa.dictionary(type_.index_type, _times_as_numbers(type_.value_type), type_.ordered)

    def below(field: pa.Field) -> pa.Field:
        return field.with_type(_times_as_numbers(field.type))

    if t.is_struct(type_):
        return pa.struct(map(below, type_))
    if t.is_map(type_):
        return pa.map_(below(type_.key_field), below(type_.item_field), type_.keys_sorted)
    if t.is_fixed_size_list(type_):
        return pa.list_(below(type_.value_field), type_.list_size)
    if t.is_list(type_) or t.is_large_list(type_):
        return (pa.list_ if t.is_list(type_) else pa.large_list)(below(type_.value_field))
    return type_

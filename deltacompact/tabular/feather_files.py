"""Arrow files, Feather V1 and IPC streams: their record batches by number.

rows.arrow    batches of 3, 3 and 1 rows      read one at a time
rows.feather  (V1), a stream                  one batch, which is read whole

A batch is validated before anybody follows its offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.feather


@dataclass(frozen=True)
class Batches:
    """Record batches by number, with the rows and bytes of each. Feather V1 and an IPC stream are a single batch."""

    schema: pa.Schema
    rows: list[int]
    bytes: list[int]
    table: Any


def batches_of(source: pa.NativeFile, columns: list[str] | None) -> Batches:
    """The batches of an open file, with these columns. Raises ArrowInvalid where it is damaged."""
    magic = source.read(6)
    source.seek(0)
    if magic[:6] == b"ARROW1":
        plain = pa.ipc.open_file(source)
        fields = None if columns is None else sorted(plain.schema.get_field_index(name) for name in columns)
        # An empty selection would mean all columns, so read one column and drop it.
        reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields or None))
        sizes = [_batch_sizes(reader, number) for number in range(reader.num_record_batches)]
        rows, held = [rows for rows, _ in sizes], [held for _, held in sizes]
        return Batches(plain.schema, rows, held, lambda number: _sound(reader.get_batch(number)))
    whole = pa.feather.read_table(source) if magic[:4] == b"FEA1" else pa.ipc.open_stream(source).read_all()
    whole = pa.concat_tables(map(_sound, whole.to_batches())) if whole.num_rows else whole
    return Batches(whole.schema, [whole.num_rows], [int(whole.nbytes)], lambda _: whole)


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


def _batch_sizes(reader: Any, number: int) -> tuple[int, int]:
    batch = reader.get_batch(number)
    batch.validate()
    return int(batch.num_rows), int(batch.nbytes)

"""Decodes sort key bytes. Only an index whose sort column has widened since it was written needs this.

01 80000005 (int32 5)       ->  5     ->  widened to int64    ->  01 8000000000000005
01 312e390000000000 03      ->  "1.9" ->  widened to 16 bytes ->  01 312e39…00 03
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.index.keys import Encoding, SortColumn

Bytes = npt.NDArray[np.uint8]


def decode(keys: Bytes, encoding: Encoding) -> list[pa.Array]:
    """The sort columns of (n, sort_key_bytes) encoded keys."""
    columns, offset = [], 0
    for column in encoding.sort_columns:
        width = column.encoded_bytes
        columns.append(_decode_column(keys[:, offset : offset + width], column))
        offset += width
    return columns


def _decode_column(keys: Bytes, column: SortColumn) -> pa.Array:
    present = keys[:, 0] == 1
    type_ = column.type
    if pa.types.is_null(type_):
        return pa.nulls(len(keys))
    raw = keys[:, 1:].copy()
    if column.descending:
        raw = ~raw
    if column.width is not None:
        return _variable(raw, type_, present)
    if pa.types.is_boolean(type_):
        return pa.array(raw[:, 0].astype(bool), mask=~present)
    if pa.types.is_fixed_size_binary(type_):
        return _from_bytes(raw, type_, present)
    if pa.types.is_floating(type_):
        raw = _float_bytes(raw)
    elif not pa.types.is_unsigned_integer(type_):
        raw[:, 0] ^= 0x80
    return _from_bytes(np.ascontiguousarray(raw[:, ::-1]), type_, present)


def _variable(raw: Bytes, type_: pa.DataType, present: npt.NDArray[np.bool_]) -> pa.Array:
    """Strings and binaries: each value is padded, and its length is the last byte."""
    lengths = np.where(present, raw[:, -1], 0)
    values = raw[:, :-1][np.arange(raw.shape[1] - 1) < lengths[:, None]]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [_validity(present), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(type_, len(raw), buffers)


def _float_bytes(raw: Bytes) -> Bytes:
    """Undo the encoding of floats: positive numbers have a flipped sign bit, negative numbers have all bits flipped."""
    positive = (raw[:, 0] & 0x80) != 0
    result: Bytes = np.where(positive[:, None], raw, ~raw)
    result[positive, 0] ^= 0x80
    return result


def _from_bytes(little_endian: Bytes, type_: pa.DataType, present: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.Array.from_buffers(type_, len(little_endian), [_validity(present), pa.py_buffer(little_endian)])


def _validity(present: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(present, bitorder="little"))

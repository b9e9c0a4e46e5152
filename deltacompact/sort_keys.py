"""Reading sort key bytes back: needed only where a sort column was widened since the index was written.

01 80000005 (int32 5)  ->  5  ->  widened to int64  ->  01 8000000000000005
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.keys import Encoding, SortColumn

Bytes = npt.NDArray[np.uint8]


def decode(keys: Bytes, encoding: Encoding) -> list[pa.Array]:
    """The sort columns of (n, sort_key_bytes) encoded keys."""
    columns, at = [], 0
    for column in encoding.sort_columns:
        width = 1 + column.value_bytes
        columns.append(_decode_column(keys[:, at : at + width], column))
        at += width
    return columns


def _decode_column(keys: Bytes, column: SortColumn) -> pa.Array:
    present = keys[:, 0] == 1
    type_ = column.type
    if pa.types.is_null(type_):
        return pa.nulls(len(keys))
    raw = keys[:, 1:].copy()
    if column.descending:
        raw = ~raw
    if pa.types.is_boolean(type_):
        return pa.array(raw[:, 0].astype(bool), mask=~present)
    if pa.types.is_fixed_size_binary(type_):
        return _from_bytes(raw, type_, present)
    if pa.types.is_floating(type_):
        raw = _float_bytes(raw)
    elif not pa.types.is_unsigned_integer(type_):
        raw[:, 0] ^= 0x80
    return _from_bytes(np.ascontiguousarray(raw[:, ::-1]), type_, present)


def _float_bytes(raw: Bytes) -> Bytes:
    """Positive numbers carry a flipped sign bit, negative ones are inverted whole."""
    positive = (raw[:, 0] & 0x80) != 0
    result: Bytes = np.where(positive[:, None], raw, ~raw)
    result[positive, 0] ^= 0x80
    return result


def _from_bytes(little_endian: Bytes, type_: pa.DataType, present: npt.NDArray[np.bool_]) -> pa.Array:
    validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(type_, len(little_endian), [validity, pa.py_buffer(little_endian)])

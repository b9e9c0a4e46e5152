"""Parquet footers that are taken apart, changed and put together again, to look as other writers' do.

footer(data)          {1: (I32, 2), 2: (LIST, (STRUCT, [{...}, ...])), ...}      Thrift's compact protocol, by field
with_footer(data, f)  the same file with this footer
"""

from __future__ import annotations

from typing import Any

BOOLEAN_TRUE, BOOLEAN_FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

Struct = dict[int, tuple[int, Any]]

SCHEMA, ROW_GROUPS, CREATED_BY, COLUMN_ORDERS = 2, 4, 6, 7
NAME, CONVERTED_TYPE, FIELD_ID, LOGICAL_TYPE = 4, 6, 9, 10
COLUMNS, COLUMN_FILE_OFFSET, META_DATA = 1, 2, 3
OFFSET_INDEX_OFFSET, OFFSET_INDEX_LENGTH, COLUMN_INDEX_OFFSET, COLUMN_INDEX_LENGTH = 4, 5, 6, 7
TOTAL_COMPRESSED, DATA_PAGE_OFFSET, DICTIONARY_PAGE_OFFSET, STATISTICS = 7, 9, 11, 12
MAX, MIN, NULL_COUNT, MAX_VALUE, MIN_VALUE = 1, 2, 3, 5, 6


def footer(data: bytes) -> Struct:
    length = int.from_bytes(data[-8:-4], "little")
    found, _ = _struct(data, len(data) - 8 - length)
    return found


def with_footer(data: bytes, changed: Struct) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    encoded = _encoded(STRUCT, changed)
    return data[: len(data) - 8 - length] + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"


def schema(of: Struct) -> list[Struct]:
    return of[SCHEMA][1][1]


def chunks(of: Struct) -> list[Struct]:
    """The columns of all row groups."""
    return [chunk for group in of[ROW_GROUPS][1][1] for chunk in group[COLUMNS][1][1]]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _struct(data: bytes, at: int) -> tuple[Struct, int]:
    found: Struct = {}
    field = 0
    while data[at]:
        kind, delta = data[at] & 15, data[at] >> 4
        at += 1
        if delta:
            field += delta
        else:
            zigzag, at = _varint(data, at)
            field = zigzag >> 1 ^ -(zigzag & 1)
        value, at = (kind == BOOLEAN_TRUE, at) if kind <= BOOLEAN_FALSE else _value(kind, data, at)
        found[field] = (kind, value)
    return found, at + 1


def _value(kind: int, data: bytes, at: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2 | 3:
            return data[at], at + 1
        case 4 | 5 | 6:
            zigzag, at = _varint(data, at)
            return zigzag >> 1 ^ -(zigzag & 1), at
        case 7:
            return data[at : at + 8], at + 8
        case 8:
            length, at = _varint(data, at)
            return data[at : at + length], at + length
        case 9 | 10:
            element, count = data[at] & 15, data[at] >> 4
            at += 1
            if count == 15:
                count, at = _varint(data, at)
            values = []
            for _ in range(count):
                value, at = _value(element, data, at)
                values.append(value)
            return (element, values), at
        case 12:
            return _struct(data, at)
    raise AssertionError(kind)


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _encoded(kind: int, value: Any) -> bytes:
    match kind:
        case 1 | 2 | 3:
            return bytes([value])
        case 4 | 5 | 6:
            return _as_varint(value << 1 if value >= 0 else (-value << 1) - 1)
        case 7:
            return bytes(value)
        case 8:
            return _as_varint(len(value)) + value
        case 9 | 10:
            element, values = value
            head = bytes([len(values) << 4 | element]) if len(values) < 15 else bytes([0xF0 | element])
            count = b"" if len(values) < 15 else _as_varint(len(values))
            return head + count + b"".join(_encoded(element, each) for each in values)
        case 12:
            out, before = bytearray(), 0
            for field, (of, field_value) in sorted(value.items()):
                if of <= BOOLEAN_FALSE:
                    of = BOOLEAN_TRUE if field_value else BOOLEAN_FALSE
                near = 0 < field - before <= 15
                out += bytes([field - before << 4 | of]) if near else bytes([of]) + _encoded(I16, field)
                out += b"" if of <= BOOLEAN_FALSE else _encoded(of, field_value)
                before = field
            return bytes(out) + b"\0"
    raise AssertionError(kind)

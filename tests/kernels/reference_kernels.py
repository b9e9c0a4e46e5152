"""What the kernels compute, said plainly: hashlib, struct, dictionaries, one row at a time.

key_bytes([[42]], [1])          -> [01 01 01 000000000000002a]
sort_keys([[5, None]], ...)     -> [01 85], [00 00]                                     int8, ascending
fold([(k, s1, f0.r4)], [upsert k s3 f7.r0])  -> [(k, s3, f7.r0)], f0.r4 superseded
"""

from __future__ import annotations

import decimal
import hashlib
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
TOMBSTONE = 0xFFFFFFFF
GONE = 0xFFFFFFFE
DELETE = 1 << 63
KEYLESS = 1 << 62
_WIDE = decimal.Context(prec=100)

Matrix = npt.NDArray[np.uint8]


# --- values of Arrow arrays, exactly ---------------------------------------------------------------------------------


def raw_values(column: pa.Array) -> list[Any]:
    """Temporal types as the integers they are stored as, decimals as unscaled integers, others as Python has them."""
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return list(column.cast(pa.int32()).to_pylist())
    if pa.types.is_temporal(kind):
        return list(column.view(pa.int64()).to_pylist()) if len(column) else []
    if pa.types.is_decimal(kind):
        return [None if v is None else int(v.scaleb(kind.scale, _WIDE)) for v in column.to_pylist()]
    return list(column.to_pylist())


# --- keys ------------------------------------------------------------------------------------------------------------


def key_bytes(columns: Sequence[pa.Array], tags: Sequence[int], rows: int) -> list[bytes]:
    parts = [
        [_key_value(value, column.type, tag) for value in raw_values(column)]
        for column, tag in zip(columns, tags, strict=True)
    ]
    return [b"".join(column[row] for column in parts) for row in range(rows)]


def _key_value(value: Any, kind: pa.DataType, tag: int) -> bytes:
    if value is None:
        return bytes([0])
    return bytes([1, tag]) + _KEY_VALUES[tag](value, kind)


def _integer(value: int, kind: pa.DataType) -> bytes:
    return bytes([value >= 0]) + (value % 2**64).to_bytes(8, "big")


def _float(value: float, kind: pa.DataType) -> bytes:
    if math.isnan(value):
        return bytes.fromhex("7ff8000000000000")
    return struct.pack(">d", float(value) + 0.0)


def _decimal(value: int, kind: pa.DataType) -> bytes:
    return value.to_bytes(32, "big", signed=True)


def _instant(value: int, kind: pa.DataType) -> bytes:
    seconds, rest = divmod(value, PER_SECOND[kind.unit])
    return struct.pack(">qI", seconds, rest * (10**9 // PER_SECOND[kind.unit]))


def _date(value: int, kind: pa.DataType) -> bytes:
    if pa.types.is_date64(kind):
        value, rest = divmod(value, 86_400_000)
        assert rest == 0
    return struct.pack(">q", value)


def _time(value: int, kind: pa.DataType) -> bytes:
    return struct.pack(">q", value * (10**9 // PER_SECOND[kind.unit]))


def _bytes(value: str | bytes, kind: pa.DataType) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(data)) + data


def _bool(value: bool, kind: pa.DataType) -> bytes:
    return bytes([value])


_KEY_VALUES = {
    1: _integer,
    2: _float,
    3: _decimal,
    4: _instant,
    5: _instant,
    6: _date,
    7: _time,
    8: _instant,
    9: _bytes,
    10: _bytes,
    11: _bool,
}


def key_digests(columns: Sequence[pa.Array], tags: Sequence[int], rows: int) -> Matrix:
    digests = [hashlib.sha1(key).digest() for key in key_bytes(columns, tags, rows)]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(rows, 20)


def row_bytes(rows: pa.StructArray) -> list[bytes]:
    """Of each row, the values that are not null, each behind its label."""
    ids = [(field.metadata or {}).get(b"PARQUET:field_id") for field in rows.type]
    names = [struct.pack(">I", len(field.name.encode())) + field.name.encode() for field in rows.type]
    labels = names if None in ids else [struct.pack(">I", int(id_)) for id_ in ids if id_]
    columns = [_nested_values(rows.field(place)) for place in range(rows.type.num_fields)]
    ordered = sorted(zip(labels, columns, strict=True), key=lambda pair: pair[0])
    return [
        b"".join(label + values[row] for label, values in ordered if values[row] != b"\0") for row in range(len(rows))
    ]


def _tag(type_: pa.DataType) -> int:
    t = pa.types
    tests = {
        1: (t.is_integer,),
        2: (t.is_floating,),
        3: (t.is_decimal,),
        4: (lambda kind: t.is_timestamp(kind) and kind.tz is None,),
        5: (t.is_timestamp,),
        6: (t.is_date,),
        7: (t.is_time,),
        8: (t.is_duration,),
        9: (t.is_string, t.is_large_string, t.is_string_view),
        10: (t.is_binary, t.is_large_binary, t.is_binary_view, t.is_fixed_size_binary),
        11: (t.is_boolean, t.is_null),
    }
    return next(tag for tag, of_type in tests.items() if any(test(type_) for test in of_type))


def _nested_values(array: pa.Array) -> list[bytes]:
    """Presence, tag and value of each; 00 of a null."""
    t, type_ = pa.types, array.type
    if t.is_struct(type_):
        children = pa.StructArray.from_arrays(array.flatten(), fields=list(type_))
        inside = [b"\x01\x0e" + row + b"\xff" * 4 for row in row_bytes(children)]
    elif t.is_map(type_) or t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        tag = b"\x01\x0d" if t.is_map(type_) else b"\x01\x0c"
        inside = [tag + _items(array, place) for place in range(len(array))]
    else:
        return [_key_value(value, type_, _tag(type_)) for value in raw_values(array)]
    return [value if valid else b"\0" for value, valid in zip(inside, array.is_valid().to_pylist(), strict=True)]


def _items(array: pa.Array, place: int) -> bytes:
    if not array[place].is_valid:
        return b""
    if pa.types.is_map(array.type):
        alone = array.slice(place, 1)
        from_, to = alone.offsets[0].as_py(), alone.offsets[1].as_py()
        sides = [_nested_values(side.slice(from_, to - from_)) for side in (alone.keys, alone.items)]
        pairs = [key + value for key, value in zip(*sides, strict=True)]
        return struct.pack(">I", len(pairs)) + b"".join(pairs)
    values = _nested_values(array[place].values)
    return struct.pack(">I", len(values)) + b"".join(values)


def row_sum(rows: pa.StructArray) -> int:
    return sum(int.from_bytes(hashlib.sha1(row).digest()[:16], "big") for row in row_bytes(rows)) % 2**128


def buckets(digests: Matrix, hash_bucket_count: int) -> list[int]:
    return [int.from_bytes(digest.tobytes(), "big") % hash_bucket_count for digest in digests]


# --- sort keys -------------------------------------------------------------------------------------------------------


def sort_key_order(value: Any) -> tuple[bool, Any]:
    """What sort key bytes must order as (ascending): null first, then values, NaN last."""
    if value is None:
        return (False, 0)
    if isinstance(value, float):
        return (True, (True, 0.0) if math.isnan(value) else (False, value))
    return (True, value)


def value_width(kind: pa.DataType) -> int:
    return 1 if pa.types.is_boolean(kind) else int(kind.bit_width) // 8


def sort_keys(
    columns: Sequence[pa.Array], descending: Sequence[bool], rows: int, widths: Sequence[int | None] | None = None
) -> list[bytes]:
    parts = [
        [_sort_value(value, column.type, down, width) for value in raw_values(column)]
        for column, down, width in zip(columns, descending, widths or [None] * len(columns), strict=True)
    ]
    return [b"".join(column[row] for column in parts) for row in range(rows)]


def _sort_value(value: Any, kind: pa.DataType, descending: bool, padded: int | None) -> bytes:
    width = value_width(kind) if padded is None else padded + 1
    if value is None:
        return bytes(1 + width)
    if padded is not None:
        raw = value.encode() if isinstance(value, str) else value
        data = raw + bytes(padded - len(raw)) + bytes([len(raw)])
    elif pa.types.is_fixed_size_binary(kind):
        data = value
    elif pa.types.is_floating(kind):
        data = _float_order(float(value), width).to_bytes(width, "big")
    elif pa.types.is_unsigned_integer(kind) or pa.types.is_boolean(kind):
        data = int(value).to_bytes(width, "big")
    else:
        data = (value + 2 ** (8 * width - 1)).to_bytes(width, "big")
    return b"\x01" + (bytes(255 - byte for byte in data) if descending else data)


def _float_order(value: float, width: int) -> int:
    code = {2: "e", 4: "f", 8: "d"}[width]
    bits = int.from_bytes(struct.pack(f">{code}", math.nan if math.isnan(value) else value + 0.0), "big")
    top = 1 << (8 * width - 1)
    return 2 * top - 1 - bits if bits & top else bits + top


# --- entries ---------------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    digest: bytes
    sort_key: bytes
    ordinal: int
    row: int

    def packed(self) -> bytes:
        return self.digest + self.sort_key + struct.pack("<IQ", self.ordinal, self.row)


def to_matrix(entries: Iterable[Entry], sort_key_bytes: int) -> Matrix:
    packed = b"".join(entry.packed() for entry in entries)
    return np.frombuffer(packed, np.uint8).reshape(-1, 32 + sort_key_bytes)


def to_entries(matrix: Matrix) -> list[Entry]:
    return [
        Entry(row[:20], row[20:-12], *struct.unpack("<IQ", row[-12:])) for row in (line.tobytes() for line in matrix)
    ]


def group_entries(parts: Sequence[Matrix], hash_bucket_count: int) -> tuple[list[bytes], list[int]]:
    groups: list[list[bytes]] = [[] for _ in range(hash_bucket_count)]
    for part in parts:
        for line in part:
            groups[int.from_bytes(line[:20].tobytes(), "big") % hash_bucket_count].append(line.tobytes())
    offsets = [0]
    for group in groups:
        offsets.append(offsets[-1] + len(group))
    return [entry for group in groups for entry in group], offsets


# --- the fold --------------------------------------------------------------------------------------------------------


@dataclass
class Folded:
    entries: list[Entry]
    counts: dict[str, int]
    dead: list[tuple[int, int]] = field(default_factory=list)


def fold(
    base: Sequence[Entry], new: Sequence[Entry], positions: Sequence[int], tombstone_retention: int | None
) -> Folded:
    state = {entry.digest: entry for entry in base}
    counts = dict.fromkeys(("upserts", "deletes", "superseded", "deleted", "live", "tombstones"), 0)
    dead: list[tuple[int, int]] = []
    in_base = {(entry.ordinal, entry.row) for entry in base if entry.ordinal != TOMBSTONE}

    def dies(entry: Entry | None, of: str) -> None:
        if entry is not None and entry.ordinal != TOMBSTONE:
            counts[of] += 1
            if (entry.ordinal, entry.row) in in_base:
                dead.append((entry.ordinal, entry.row))

    for event in sorted(new, key=lambda event: (event.ordinal, event.row % KEYLESS)):
        position = positions[event.ordinal]
        now = state.get(event.digest)
        if now is not None and now.ordinal == TOMBSTONE and tombstone_retention is not None:
            since = now.row - 2**64 if now.row >= 2**63 else now.row
            if position - since > tombstone_retention:
                now = state.pop(event.digest, None) and None
        wins = now is None or event.sort_key >= now.sort_key
        counts["deletes" if event.row & DELETE else "upserts"] += 1
        if event.row & KEYLESS or (event.row & DELETE and not event.sort_key):
            dies(state.pop(event.digest, None), "deleted")
        elif event.row & DELETE:
            if wins:
                dies(now, "deleted")
                state[event.digest] = Entry(event.digest, event.sort_key, TOMBSTONE, position % 2**64)
        elif wins:
            dies(now, "superseded")
            state[event.digest] = event
        else:
            assert now is not None
            counts["deleted" if now.ordinal == TOMBSTONE else "superseded"] += 1

    for entry in state.values():
        counts["tombstones" if entry.ordinal == TOMBSTONE else "live"] += 1
    return Folded([state[digest] for digest in sorted(state)], counts, sorted(dead))


# --- ranks -----------------------------------------------------------------------------------------------------------


def ranks(marked: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    return {pointer: rank for rank, pointer in enumerate(sorted(marked))}


def mask(marked: set[tuple[int, int]], ordinal: int, rows: int) -> Matrix:
    bits = pc.fill_null(pa.array([(ordinal, row) in marked for row in range(rows)], pa.bool_()), False)
    return np.frombuffer(bits.buffers()[1], np.uint8, (rows + 7) // 8) if rows else np.zeros(0, np.uint8)

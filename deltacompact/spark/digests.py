"""Primary key digests computed a second time without the kernels: in Spark SQL or in plain Python.

    id 5, name "a"     01 01 01 0000000000000005 | 01 09 00000001 61       sha1 of these bytes
    id null, name ""   00                        | 01 09 00000000

Per key column, in the order of the names' UTF-8 bytes: presence, class tag, value. Spark SQL serves integers, strings,
binaries, booleans, dates and timestamps of milli- and microseconds; other types go row by row through hashlib.
"""

from __future__ import annotations

import decimal
import hashlib
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

_MASK64 = (1 << 64) - 1
_DAY_MS = 86_400_000
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MICROS = 1_000_000


def in_sql(type_: pa.DataType) -> bool:
    """Whether Spark SQL can write down the bytes of a key column of this type."""
    t = pa.types
    if t.is_timestamp(type_):
        return type_.unit in ("ms", "us") and type_.tz is not None  # a naive one would pass through the session's zone
    tests = (t.is_boolean, t.is_signed_integer, t.is_date, t.is_string, t.is_large_string, t.is_binary)
    return any(test(type_) for test in tests) or t.is_null(type_)


def sql_digest(columns: Sequence[tuple[Column, pa.DataType]]) -> Column:
    """The digest as binary(20)."""
    texts = [F.coalesce(_sql_hex(column, type_), F.lit("00")) for column, type_ in columns]
    return F.unhex(F.sha1(F.unhex(F.concat(F.lit(""), *texts))))


def _sql_hex(column: Column, type_: pa.DataType) -> Column:
    """Presence, tag and value in hexadecimal; null where the value is null."""
    t = pa.types
    if t.is_null(type_):
        return F.lit(None).cast("string")
    if t.is_boolean(type_):
        return F.concat(F.lit("010b"), F.when(column, "01").otherwise(F.when(~column, "00")))
    if t.is_signed_integer(type_):
        sign = F.when(column >= 0, "01").otherwise("00")
        return F.concat(F.lit("0101"), sign, _hex(column.cast("long"), 16))
    if t.is_timestamp(type_):
        rest = F.pmod(F.unix_micros(column), F.lit(_MICROS).cast("long"))
        return F.concat(F.lit("0105"), _hex(F.unix_seconds(column), 16), _hex(rest * 1000, 8))
    if t.is_date(type_):
        return F.concat(F.lit("0106"), _hex(F.unix_date(column).cast("long"), 16))
    tag = "0109" if t.is_string(type_) or t.is_large_string(type_) else "010a"
    return F.concat(F.lit(tag), _hex(F.octet_length(column).cast("long"), 8), F.hex(column))


def _hex(number: Column, digits: int) -> Column:
    """A bigint in two's complement."""
    return F.lpad(F.hex(number), digits, "0")


def python_digests(columns: Sequence[pa.ChunkedArray], rows: int) -> list[bytes]:
    """The digests of a table's rows; `columns` are its key columns in the type of the table, decoded."""
    encoded = [list(_python_bytes(column)) for column in columns]
    return (
        [hashlib.sha1(b"".join(row)).digest() for row in zip(*encoded, strict=True)]
        if columns
        else ([hashlib.sha1(b"").digest()] * rows)
    )


def _python_bytes(column: pa.ChunkedArray) -> Iterator[bytes]:
    tag, encode, values = _python_encoder(column)
    for value in values:
        yield b"\0" if value is None else b"\1" + bytes([tag]) + encode(value)


def _python_encoder(column: pa.ChunkedArray) -> tuple[int, Callable[[Any], bytes], list[Any]]:
    """Class tag, what makes bytes of a value, and the values as Python's own."""
    type_, t = column.type, pa.types
    if t.is_null(type_):
        return 0, bytes, column.to_pylist()
    if t.is_integer(type_):
        return 1, lambda v: bytes([v >= 0]) + (v & _MASK64).to_bytes(8, "big"), column.to_pylist()
    if t.is_floating(type_):
        return 2, _float_bytes, column.cast(pa.float64()).to_pylist()
    if t.is_decimal(type_):
        return 3, _decimal_bytes, column.to_pylist()
    if t.is_timestamp(type_) or t.is_duration(type_):
        tag = 8 if t.is_duration(type_) else 4 if type_.tz is None else 5
        return tag, _instant_bytes(_PER_SECOND[type_.unit]), column.cast(pa.int64()).to_pylist()
    if t.is_date64(type_):
        return 6, lambda v: _signed(v // _DAY_MS), column.cast(pa.int64()).to_pylist()
    if t.is_date32(type_):
        return 6, _signed, column.cast(pa.int32()).to_pylist()
    if t.is_time(type_):
        scale = 10**9 // _PER_SECOND[type_.unit]
        whole = column.cast(pa.int32() if t.is_time32(type_) else pa.int64())
        return 7, lambda v: _signed(v * scale), whole.to_pylist()
    if t.is_boolean(type_):
        return 11, lambda v: bytes([v]), column.to_pylist()
    if t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_):
        return 9, lambda v: _counted(v.encode()), column.to_pylist()
    return 10, _counted, column.to_pylist()


def _signed(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def _counted(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def _float_bytes(value: float) -> bytes:
    if math.isnan(value):
        return bytes.fromhex("7ff8000000000000")
    return struct.pack(">d", value + 0.0)  # -0.0 + 0.0 is 0.0


def _decimal_bytes(value: decimal.Decimal) -> bytes:
    sign, digits, _ = value.as_tuple()
    unscaled = int("".join(map(str, digits)))
    return (-unscaled if sign else unscaled).to_bytes(32, "big", signed=True)


def _instant_bytes(per_second: int) -> Callable[[int], bytes]:
    def encode(value: int) -> bytes:
        seconds, rest = divmod(value, per_second)
        return _signed(seconds) + (rest * (10**9 // per_second)).to_bytes(4, "big")

    return encode

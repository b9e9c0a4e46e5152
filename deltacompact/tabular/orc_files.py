"""Reads ORC files, damaged ones too: pyarrow ends the process that asks for a decimal of more than 38 digits.

    tail    2 footer {4 type {1 kind 12: struct}, 4 type {1 kind 14: decimal, 5 precision 12}}    can be asked
                                                  4 type {1 kind 14: decimal, 5 precision 76}     ArrowInvalid

pyarrow writes the tail anew, without its compression, so it is a sound message of protocol buffers. Errors of the ORC
library are OSErrors: those of the store begin with "Arrow error: ", and all others mean broken bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa
from pyarrow.orc import ORCFile

_FOOTER, _STRIPE, _TYPE, _KIND, _PRECISION, _DECIMAL = 2, 3, 4, 1, 5, 14
_STRIPE_ROWS = 5
_DIGITS_MAX = 38
_FIXED_BYTES = {1: 8, 5: 4}


def open_orc(source: pa.NativeFile) -> ORCFile:
    """Raises ArrowInvalid if the file is damaged, OSError if the store failed."""
    with _damage_named():
        orc = ORCFile(source)
    for footer in _messages(orc.reader.serialized_file_tail(), _FOOTER):
        for type_ in _messages(footer, _TYPE):
            said = {number: value for number, value in _fields(type_) if isinstance(value, int)}
            if said.get(_KIND) == _DECIMAL and (digits := said.get(_PRECISION, 0)) > _DIGITS_MAX:
                raise pa.ArrowInvalid(f"its footer is damaged: a decimal of {digits:,} digits")
    return orc


def stripe_rows(orc: ORCFile) -> list[int]:
    """The rows of each stripe, by the tail."""
    footers = _messages(orc.reader.serialized_file_tail(), _FOOTER)
    stripes = [dict(_fields(stripe)) for footer in footers for stripe in _messages(footer, _STRIPE)]
    return [int(stripe.get(_STRIPE_ROWS, 0)) for stripe in stripes]


def stripe(orc: ORCFile, number: int, columns: list[str]) -> pa.Table:
    """The rows of a stripe. Raises as `open_orc`."""
    with _damage_named():
        return pa.Table.from_batches([orc.read_stripe(number, columns=columns)])


@contextlib.contextmanager
def _damage_named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if str(error).startswith("Arrow error: "):
            raise
        raise pa.ArrowInvalid(str(error)) from error


def _messages(message: bytes, wanted: int) -> Iterator[bytes]:
    return (value for number, value in _fields(message) if number == wanted and isinstance(value, bytes))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The number and value of each field."""
    at = 0
    while at < len(message):
        head, at = _varint(message, at)
        number, kind = head >> 3, head & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        length, at = (_FIXED_BYTES[kind], at) if kind in _FIXED_BYTES else _varint(message, at)
        yield number, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at

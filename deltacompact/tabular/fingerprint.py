"""The fingerprint of rows: how many, and the sum of the hashes of their values. Rows that moved keep it.

    {1: 5, 2: "a"}    00000001 01 01 01 0000000000000005 | 00000002 01 09 00000001 61    SHA-1, the first 16 bytes: h1
    {1: 6, 2: null}   00000001 01 01 01 0000000000000006                                 h2
    both rows         2 rows, h1 + h2 modulo 2^128

    file a + file b = the table         the table now - the table then = what the feed says came - what it says went

Values count by field id, or by name where columns have none, and as primary keys do (`index/keys.py`): no width, unit
or encoding matters, nor a column that is all null. Whoever writes other rows on purpose can make the sum agree: it
finds faults, not forgeries. docs/formats.md specifies it, and `fingerprint_sql.py` says it in SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base.errors import SchemaError
from deltacompact.tabular import schemas

_MODULUS = 1 << 128
_TEXT = re.compile(r"(\d+):([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A multiset of rows. Parts add up, in any order."""

    rows: int = 0
    total: int = 0
    """Below 2^128."""

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows + other.rows, (self.total + other.total) % _MODULUS)

    def __sub__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows - other.rows, (self.total - other.total) % _MODULUS)

    def __str__(self) -> str:
        """As logs and summaries have it: "2:00f3…", the sum in 32 hexadecimal digits."""
        return f"{self.rows}:{self.total:032x}"

    @classmethod
    def of_text(cls, text: str) -> Fingerprint | None:
        """None: another release wrote something else."""
        found = _TEXT.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2], 16))


def fingerprint_of(tables: Iterable[pa.Table], path: str) -> Fingerprint:
    """The fingerprint of rows. Raises SchemaError naming file and column of a type that has no values."""
    found = Fingerprint()
    for table in tables:
        for rows in _struct_arrays(table):
            try:
                found += Fingerprint(len(rows), _kernels.row_sum(rows))
            except ValueError as error:
                raise SchemaError(f"{path}: {error}") from error
    return found


def _struct_arrays(table: pa.Table) -> Iterable[pa.StructArray]:
    """The rows as the kernel takes them: without dictionaries, and with field ids."""
    columns = [schemas.plain(column) for column in table.columns]
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    plain = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    return (batch.to_struct_array() for batch in plain.to_batches()) if columns else ()

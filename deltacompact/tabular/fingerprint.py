"""The fingerprint of rows: their number, and the sum of the hashes of their values. Moving rows does not change it.

    {1: 5, 2: "a"}    00000001 01 01 01 0000000000000005 | 00000002 01 09 00000001 61    SHA-1, the first 16 bytes: h1
    {1: 6, 2: null}   00000001 01 01 01 0000000000000006                                 h2
    both rows         2 rows, h1 + h2 modulo 2^128

    file a + file b = the table         the table now - the table then = rows that a feed adds - rows that it removes

A column counts by its field id, or by its name if it has none. Values count as in primary keys (`index/keys.py`):
width, unit and encoding do not matter, nor does a column that is all null. The fingerprint finds faults, but no
forgeries: other rows can be made to have the same sum. docs/formats.md specifies it, `fingerprint_sql.py` is its SQL.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base.errors import SchemaError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.tabular import column_types, schemas


def fingerprint_of(tables: Iterable[pa.Table], schema: pa.Schema, path: str) -> Fingerprint:
    """The fingerprint of the rows. The columns of `schema`, with their field ids at any depth, count.

    Raises SchemaError naming `path` and the column for a type that the kernel cannot hash.
    """
    found = Fingerprint()
    type_ = pa.struct([field.with_type(column_types.values_type(field.type)) for field in schema])
    for table in tables:
        columns = [schemas.plain(column) for column in table.select(schema.names).columns]
        for batch in pa.Table.from_arrays(columns, names=schema.names).to_batches() if columns else ():
            try:
                found += Fingerprint(batch.num_rows, _kernels.row_sum(batch.to_struct_array(), type_))
            except ValueError as error:
                raise SchemaError(f"{path}: {error}") from error
    return found

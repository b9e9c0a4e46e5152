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

from collections.abc import Iterable

import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base.errors import SchemaError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.tabular import schemas


def fingerprint_of(tables: Iterable[pa.Table], schema: pa.Schema, path: str) -> Fingerprint:
    """The fingerprint of rows with the columns of `schema`, whose field ids count, at any depth.

    Raises SchemaError naming file and column of a type that has no values.
    """
    found = Fingerprint()
    type_ = pa.struct([field.with_type(schemas.values_type(field.type)) for field in schema])
    for table in tables:
        columns = [schemas.plain(column) for column in table.select(schema.names).columns]
        for batch in pa.Table.from_arrays(columns, names=schema.names).to_batches() if columns else ():
            try:
                found += Fingerprint(batch.num_rows, _kernels.row_sum(batch.to_struct_array(), type_))
            except ValueError as error:
                raise SchemaError(f"{path}: {error}") from error
    return found

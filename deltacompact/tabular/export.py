"""Rows into one file that a user named.

exported(store, "now.parquet", schema, tables)     a file of this machine, whatever store the table is in
exported(store, "s3://b/now.csv", schema, tables)
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from deltacompact.base import expect
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import as_uri
from deltacompact.tabular import formats, writing
from deltacompact.tabular.row_groups import WriteOptions


def exported(store: ObjectStore, target: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """Write them batch by batch. Returns the number of rows. Raises InputError for a format that we do not write."""
    target = expect.path("the file to export to", target)
    options = WriteOptions(formats.written_type_of(target))
    with writing.writer(store, as_uri(target), schema, options) as out:
        for rows in tables:
            out.write(rows)
        return out.rows

"""Rows into one file, or into files of a folder, that a user named.

exported(store, "now.parquet", schema, tables)     a file on this machine, whatever store the table is in
exported(store, "s3://b/now.csv", schema, tables)
exported(store, "changes/", schema, tables)        changes/5c5c…-00000.parquet, …-00001.parquet: 512 MiB of rows each
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable

import pyarrow as pa

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import as_uri, open_object
from deltacompact.tabular import formats, writing
from deltacompact.tabular.row_groups import WriteOptions

_FILE_BYTES = 512 << 20
"""About the bytes in memory of the rows of one file in a folder."""


def exported(store: ObjectStore, target: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """Write the tables one by one. Returns the number of rows. Raises InputError for a format that we do not write."""
    target = expect.path("the file to export to", target)
    if target.endswith("/") or os.path.isdir(target):
        return _into_folder(store, target.rstrip("/"), schema, tables)
    return _into_file(store, target, schema, tables)


def _into_folder(store: ObjectStore, folder: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """Write Parquet files with new names: none replaces a file, and all appear or none. Without rows, one file."""
    name, written, waiting, rows = uuid.uuid4().hex, list[str](), iter(tables), 0
    upcoming = next(waiting, None)
    try:
        while upcoming is not None or not written:
            written.append(f"{folder}/{name}-{len(written):05}.parquet")
            room = _FILE_BYTES
            with writing.writer(store, as_uri(written[-1]), schema, WriteOptions()) as out:
                while upcoming is not None and room > 0:
                    out.write(upcoming)
                    room -= upcoming.nbytes
                    upcoming = next(waiting, None)
            rows += out.rows
    except BaseException:
        for file in written:
            found, path = open_object(store, as_uri(file))
            found.delete([path])
        raise
    return rows


def _into_file(store: ObjectStore, target: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    options = WriteOptions(formats.written_type_of(target))
    try:
        with writing.writer(store, as_uri(target), schema, options) as out:
            for rows in tables:
                out.write(rows)
            return out.rows
    except InputError:
        writing.check_writable(schema, options.content_type)  # it names the column
        raise

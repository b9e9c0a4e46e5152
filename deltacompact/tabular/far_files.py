"""Measures the far values of files if the log has none: files of release 0.1, or remote ORC.

a.parquet                                     from the footer's statistics
b.orc, and Parquet without statistics         from the rows of the columns that may have far values
"""

from __future__ import annotations

from dataclasses import replace

from deltacompact.base.data_file import DataFile, FarValues
from deltacompact.base.model import ContentType
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import far_values, files, parquet_read


def with_far_values(store: ObjectStore, file: DataFile) -> DataFile:
    """The file with its far values. Raises InputError for a file that cannot be read."""
    if file.far is not None:
        return file
    names = far_values.ranged_columns(file.schema) if file.rows else []
    far = _of_footer(store, file) if names else ()
    if far is None:
        far = far_values.merged(far_values.of_table(table) for _, table in files.read(store, file, names))
    return replace(file, far=far)


def _of_footer(store: ObjectStore, file: DataFile) -> FarValues | None:
    if file.content_type is not ContentType.PARQUET:
        return None
    with files.opened(store, file) as source:
        parquet = files.described_parquet(source, file)
        return far_values.of_footer(parquet.metadata, parquet_read.stored_schema(source, parquet))

"""Refuses, before any work, files that we would read wrongly, or that others could not read afterwards."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.name_mapping import name_mapping
from deltacompact.tabular.field_ids import fields_by_id


def check_readable(metadata: TableMetadata, entries: Iterable[ManifestEntry]) -> None:
    """Raises InputError for a bad name mapping, and for a file that is encrypted, is not Parquet, or deletes by columns
    that we cannot read. The error names the file."""
    name_mapping(metadata.properties, metadata.table_id)
    for entry in entries:
        file = entry.file
        if file.key_metadata is not None:
            raise InputError(f"{file.path} is encrypted: encrypted Iceberg tables cannot be compacted")
        if file.file_format != "PARQUET" and not file.is_deletion_vector:
            raise InputError(f"{file.path} is {file.file_format}: only Parquet files can be read")
        if file.is_equality_delete and not file.equality_ids:
            raise InputError(f"{file.path} does not say by which columns it deletes")
        for number in file.equality_ids:
            if number not in metadata.columns:
                raise InputError(
                    f"{file.path} deletes by field id {number}, which no schema of {metadata.table_id!r} has"
                )
            if not metadata.columns[number].is_top_level:
                raise InputError(f"{file.path} deletes by field id {number}, which lies inside of a struct")


def check_defaults(metadata: TableMetadata, columns: pa.Schema) -> None:
    """Raises InputError for a default value inside of one of these columns of the table: files that were written before
    would be read with null there."""
    for number, field in fields_by_id(columns):
        column = metadata.columns.get(number)
        if column is not None and column.has_default and not column.is_top_level:
            raise InputError(
                f"column {field.name!r} of table {metadata.table_id!r} has a default value inside of a struct"
            )


def check_markable(metadata: TableMetadata, data: Iterable[ManifestEntry]) -> None:
    """Raises InputError for data files that are partitioned by a column which no schema has any more.

    Iceberg's Java reads such a partition as null, and then refuses to read a table with deletes by position in it.
    """
    gone = {
        spec_id: part.name
        for spec_id, spec in metadata.specs.items()
        for part in spec.fields
        if part.transform != "void" and part.source_id not in metadata.columns
    }
    name = next((gone[entry.file.spec_id] for entry in data if entry.file.spec_id in gone), None)
    if name is not None:
        raise InputError(
            f"files of table {metadata.table_id!r} are partitioned by {name!r}, whose column no schema has any more: "
            "engines cannot read deletes by position there; rewrite them first, with rewrite-all=true and "
            f"output-spec-id={metadata.default_spec_id}"
        )

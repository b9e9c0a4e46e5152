"""Metadata of version 3: PyIceberg reads it whole and counts its row ids, but refuses to write it as a file.

    REST                 the server writes the metadata file
    SQL, Glue, Hive      the client does

PyIceberg refuses because its own producers would assign no row ids. Ours do, so we write the file. Before that we check
that PyIceberg's model has kept every field of the current file.
"""

from __future__ import annotations

import json
from typing import Any

from pyiceberg import __version__ as pyiceberg_version
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.serializers import Compressor
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata as PyTableMetadata
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.typedef import IcebergBaseModel

from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.pyiceberg_door.errors import answering


class WritableVersion3(TableMetadataV3):
    """Metadata of version 3 that can be written."""

    def model_dump_json(self, *args: Any, **options: Any) -> str:
        return IcebergBaseModel.model_dump_json(self, *args, **options)

    @classmethod
    def of(cls, metadata: PyTableMetadata) -> WritableVersion3:
        return cls.model_construct(**dict(metadata))


def check_version_3(table_id: str, table: Table) -> None:
    """Refuse metadata of which PyIceberg would lose a field, and metadata without a next row id."""
    if getattr(table.metadata, "next_row_id", None) is None:
        raise InputError(f"Iceberg table {table_id!r} has format version 3 but no next-row-id")
    if not isinstance(table.catalog, MetastoreCatalog):
        return
    location = table.metadata_location
    with answering(table.catalog.name), table.io.new_input(location).open() as source:
        stored = json.load(Compressor.get_compressor(location).stream_decompressor(source))
    if stored.get("current-snapshot-id") == -1:  # some engines write -1 if there is no snapshot
        del stored["current-snapshot-id"]
    try:
        lost = what_is_lost(stored, json.loads(WritableVersion3.of(table.metadata).model_dump_json()))
    except ValueError:  # pydantic raises it for a default value of bytes that are no text
        lost = "initial-default"
    if lost is not None:
        raise InputError(
            f"Iceberg table {table_id!r} has {lost!r} in its metadata, which PyIceberg {pyiceberg_version} would lose"
        )


def what_is_lost(stored: Any, written: Any, name: str = "metadata") -> str | None:
    """The name of a field that is missing in `written`, or has another value there. Empty fields of `stored` may go."""
    if isinstance(stored, dict) and isinstance(written, dict):
        known = [(key, value) for key, value in stored.items() if value not in (None, [], {})]
        return next(
            (lost for key, value in known if (lost := what_is_lost(value, written.get(key), key)) is not None), None
        )
    if isinstance(stored, list) and isinstance(written, list) and len(stored) == len(written):
        found = (what_is_lost(field, other, name) for field, other in zip(stored, written, strict=True))
        return next((lost for lost in found if lost is not None), None)
    return None if stored == written else name

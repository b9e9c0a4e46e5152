"""Reads Iceberg tables by the letter of the spec: PyIceberg's manifests, pyarrow's Parquet, one row at a time.

It shares nothing with the code under test, and is as slow as it is simple.

    data file f    sequence 5    row 0 dies if a position delete with sequence >= 5 of f's partition names (f, 0)
                                 row 1 dies if an equality delete with sequence > 5 of f's partition, or of an
                                 unpartitioned spec, has its key (spec, "Scan Planning")
"""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
from iceberg_lake import Lake
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table

FIELD_ID = b"PARQUET:field_id"
_PATH, _POSITION = 2147483546, 2147483545

Row = dict[int, Any]
"""A row: values by field id."""


def stored_rows(path: str) -> list[Row]:
    """The rows of a Parquet file, whatever deletes there are."""
    file = pq.ParquetFile(path.removeprefix("file://"))
    ids = [int(column.metadata[FIELD_ID]) for column in file.schema_arrow]
    columns = [column.to_pylist() for column in file.read().columns]
    return [dict(zip(ids, values, strict=True)) for values in zip(*columns, strict=True)]


class NaiveReader:
    """Reads branches of a table. The lake caches the rows of a file until the file is written again."""

    def __init__(self, lake: Lake, table_id: str) -> None:
        self._lake = lake
        self._table_id = table_id

    def rows(self, branch: str = "main") -> list[Row]:
        """The live rows, in columns of the current schema."""
        table = self._lake.catalog.load_table(self._table_id)
        columns = [column.field_id for column in table.schema().fields]
        return [{number: row.get(number) for number in columns} for _, row in self.live(table, branch)]

    def live(self, table: Table, branch: str = "main") -> list[tuple[tuple[str, int], Row]]:
        """The live rows as their files have them, each with its file and position."""
        snapshot = table.snapshot_by_name(branch)
        if snapshot is None:
            return []
        entries = [
            (entry, manifest.partition_spec_id)
            for manifest in snapshot.manifests(table.io)
            for entry in self._entries(table, manifest)
        ]
        assert all(entry.status != ManifestEntryStatus.DELETED for entry, _ in entries)
        data = [(entry, spec) for entry, spec in entries if entry.data_file.content == DataFileContent.DATA]
        deletes = [(entry, spec) for entry, spec in entries if entry.data_file.content != DataFileContent.DATA]
        assert len({entry.data_file.file_path for entry, _ in data}) == len(data), "a file is live once"
        dead = {entry.data_file.file_path: self._stored(entry.data_file.file_path) for entry, _ in deletes}
        found = []
        for entry, spec in data:
            path = entry.data_file.file_path
            applying = [other for other in deletes if _applies(table, other, entry, spec)]
            found += [
                ((path, position), row)
                for position, row in enumerate(self._stored(path))
                if not any(
                    _kills(other.data_file, dead[other.data_file.file_path], path, position, row)
                    for other, _ in applying
                )
            ]
        return found

    def _stored(self, path: str) -> list[Row]:
        return self._lake.kept.of(path, "rows", read=lambda: stored_rows(path))

    def _entries(self, table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
        """The live entries of a manifest, which is a line of the manifest list."""

        def read() -> list[ManifestEntry]:
            return manifest.fetch_manifest_entry(table.io, discard_deleted=True)

        return self._lake.kept.of(manifest.manifest_path, "live", manifest.sequence_number, read=read)


def _kills(delete: Any, dead: list[Row], path: str, position: int, row: Row) -> bool:
    if delete.content == DataFileContent.POSITION_DELETES:
        return any((row_[_PATH], row_[_POSITION]) == (path, position) for row_ in dead)
    return any(all(row_[number] == row.get(number) for number in delete.equality_ids) for row_ in dead)


def _applies(table: Table, delete: tuple[Any, int], data: Any, data_spec: int) -> bool:
    entry, spec = delete
    here = spec == data_spec and entry.data_file.partition == data.data_file.partition
    if entry.data_file.content == DataFileContent.POSITION_DELETES:
        return here and data.sequence_number <= entry.sequence_number
    everywhere = table.specs()[spec].is_unpartitioned()
    return (here or everywhere) and data.sequence_number < entry.sequence_number

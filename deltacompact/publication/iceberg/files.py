"""Compacted files, and their dead rows, as the manifest of an Iceberg table lists them.

b.parquet, 4 rows, live bitmap 1101     data file b.parquet, with the counts and bounds of its footer
                                        deltacompact-<digest>-<unique>.parquet: b.parquet 1        position deletes
"""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow.parquet as pq

from deltacompact.base.errors import SchemaError
from deltacompact.base.limits import READ_LIMITS
from deltacompact.base.numbers import Ordinal
from deltacompact.base.partitions import all_done, side_by_side
from deltacompact.base.wording import text_of
from deltacompact.iceberg.deletes.dead_rows import FileScan
from deltacompact.iceberg.marks.marking import position_file
from deltacompact.iceberg.marks.tasks import DeleteFile, MarkTask, ScanToMark, write_positions
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.codec import delete_codec_of
from deltacompact.iceberg.table.content_files import Content, ContentFile
from deltacompact.iceberg.table.parquet_files import StoredFile
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.index.live_bitmaps import LiveBits, live_mask
from deltacompact.publication.columns import joined
from deltacompact.publication.iceberg.columns import partition_tuple
from deltacompact.publication.iceberg.difference import deletes_name
from deltacompact.publication.port import ShownFile
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import field_ids, files
from deltacompact.tabular.published_types import ICEBERG_TYPES

FILES_AT_ONCE = 8
"""Footers are read, and delete files are written, side by side: each waits for a store."""


class IcebergFiles:
    """Describes each file once: if an attempt is repeated on another head, it reads and writes nothing again.

    `store`: where the compacted files are. `iceberg_store`: that of the Iceberg table.
    """

    def __init__(self, store: ObjectStore, iceberg_store: ObjectStore, table: IcebergTable) -> None:
        self._store = store
        self._iceberg_store = iceberg_store
        self._table = table
        self._columns = ICEBERG_TYPES.columns(table.metadata.schema, f"Iceberg table {table.metadata.table_id!r}")
        self._live = LiveBits(store)
        self._data: dict[str, ContentFile] = {}
        self._dead: dict[str, ContentFile] = {}

    def data(self, shown: tuple[ShownFile, ...]) -> list[ContentFile]:
        """The data files, with the counts and bounds of their footers. Raises SchemaError for a file that readers of
        the Iceberg table would misread.
        """
        new = [file for file in shown if file.location not in self._data]
        for file, listed in zip(new, side_by_side(new, self._listed, FILES_AT_ONCE), strict=True):
            self._data[file.location] = listed
        return [self._data[file.location] for file in shown]

    def dead(self, shown: tuple[ShownFile, ...]) -> list[ContentFile]:
        """The position delete files of the files' dead rows. Missing delete files are written."""
        dead = {file.dead_rows: file for file in shown if file.dead_rows is not None}
        new = [(dead_rows, file) for dead_rows, file in dead.items() if dead_rows not in self._dead]
        self._live.read((file.file for _, file in new), FILES_AT_ONCE)
        all_done(new, lambda each: self._write(*each), FILES_AT_ONCE)
        return [self._dead[dead_rows] for dead_rows in dead]

    def discard(self, kept: tuple[ShownFile, ...] = ()) -> None:
        """Delete the delete files that this run wrote, without those of `kept`."""
        wanted = {file.dead_rows for file in kept}
        for dead_rows, file in self._dead.items():
            if dead_rows not in wanted:
                locations.discard(self._iceberg_store, file.path)

    def _listed(self, shown: ShownFile) -> ContentFile:
        joined([self._columns, ICEBERG_TYPES.columns(shown.file.schema, shown.file.path)], shown.file.path)
        with files.opened(self._store, shown.file) as source:
            footer = files.described_parquet(source, shown.file).metadata
        _refuse_field_ids(footer, shown.file.path)
        listed = self._content(shown)
        try:
            return self._table.with_metrics(listed, footer)
        except KeyError as error:
            raise SchemaError(f"{shown.file.path}: no column of the Iceberg table is stored as {error}") from None
        except ValueError as error:
            raise SchemaError(f"{shown.file.path}: {text_of(error)}") from None

    def _write(self, dead_rows: str, shown: ShownFile) -> None:
        """Write the delete file of a file's dead rows, and note it at once: `discard` finds it if another one fails."""
        bits = self._live.of(shown.file)
        assert bits is not None, "a file with dead rows has a bitmap"
        positions = np.flatnonzero(~live_mask(bits, shown.file.rows)).astype(np.int64)
        path = f"{self._table.metadata.data_folder}/{deletes_name(dead_rows, uuid.uuid4().hex)}"
        stored = StoredFile(shown.location, shown.file.rows, shown.file.bytes, 0)
        codec = delete_codec_of(self._table.metadata.properties)
        task = MarkTask((DeleteFile((ScanToMark(FileScan(Ordinal(0), stored), positions),), path),), codec, READ_LIMITS)
        (written,) = write_positions(self._iceberg_store, task)
        (rows,) = written.rows_of_each
        self._dead[dead_rows] = position_file(path, written.file_bytes, [(self._content(shown), rows)])

    def _content(self, shown: ShownFile) -> ContentFile:
        spec, file = self._table.metadata.default_spec_id, shown.file
        partition = partition_tuple(shown.partition)
        return ContentFile(Content.DATA, shown.location, "PARQUET", spec, partition, file.rows, file.bytes)


def _refuse_field_ids(footer: pq.FileMetaData, path: str) -> None:
    """Raise SchemaError for field ids. A delta file that was kept as it came may have those of another table, and
    readers would follow them."""
    for field in footer.schema.to_arrow_schema():
        if field_ids.field_id(field) is not None:
            raise SchemaError(
                f"{path}: column {field.name!r} has a field id of another table: restate the partition with its rows"
            )

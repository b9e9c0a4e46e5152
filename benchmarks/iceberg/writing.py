"""A writer of Iceberg tables: data files and deletes of both kinds, committed as a writer of change events does.

<folder>/catalog.db    the catalog, on sqlite: there once the table is whole
         warehouse/    its files
"""

from __future__ import annotations

import io
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from deltacompact.iceberg.commit.committer import Committer
from deltacompact.iceberg.commit.proposal import OVERWRITE, Proposal, addition
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.content_files import Content, ContentFile, ManifestEntry
from deltacompact.iceberg.table.deletion_vectors import blob_of
from deltacompact.iceberg.table.puffin import VectorBlob, puffin_file
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader

CATALOG, TABLE = "bench", "ns.t"
DATABASE = "catalog.db"
_PATH, _POSITION = 2_147_483_546, 2_147_483_545
"""Field ids of position deletes (spec, "Reserved Field IDs")."""


def catalog_at(database: Path, place: Path) -> SqlCatalog:
    return SqlCatalog(CATALOG, uri=f"sqlite:///{database}", warehouse=(place / "warehouse").as_uri())


def made(place: Path, schema: Any, properties: Mapping[str, str], fill: Callable[[SqlCatalog], None]) -> Path:
    """The folder of a table, which is created and filled unless it is there."""
    if not (place / DATABASE).exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            catalog = catalog_at(place / "making.db", place)
            catalog.create_namespace("ns")
            catalog.create_table(TABLE, schema, properties={"format-version": "2", **properties})
            fill(catalog)
            (place / "making.db").rename(place / DATABASE)
        except BaseException:
            shutil.rmtree(place)
            raise
    return place


class Writer:
    """Writes files of the table, and commits them."""

    def __init__(self, catalog: SqlCatalog, compression: str = "zstd", branch: str = "main") -> None:
        self._table = IcebergTable.load(catalog, TABLE)
        self._compression = compression
        self._store = locations.store_of(self._table.metadata.location, {})
        self._committer = Committer(self._store, StateReader(self._store), branch, "benchmarks")
        self._branch = branch
        self._ids = {column.field.name: number for number, column in self._table.metadata.columns.items()}

    def data(self, rows: pa.Table) -> ContentFile:
        return self._written(rows, Content.DATA, self._ids)

    def equality_deletes(self, keys: pa.Table) -> ContentFile:
        """Of the rows that are there before the commit and have one of these keys."""
        file = self._written(keys, Content.EQUALITY_DELETES, self._ids)
        return replace(file, equality_ids=tuple(self._ids[name] for name in keys.column_names))

    def position_deletes(self, file: ContentFile, places: npt.NDArray[np.int64]) -> ContentFile:
        """Of rows of one data file; places ascending."""
        rows = pa.table({"file_path": pa.repeat(file.path, len(places)), "pos": pa.array(places, pa.int64())})
        deletes = self._written(rows, Content.POSITION_DELETES, {"file_path": _PATH, "pos": _POSITION})
        path = file.path.encode()
        return replace(deletes, lower_bounds={_PATH: path}, upper_bounds={_PATH: path})

    def vectors(self, dead: Mapping[str, npt.NDArray[np.int64]]) -> list[ContentFile]:
        """A deletion vector for each data file, by path, in one file. Of tables of version 3."""
        blobs = [VectorBlob(path, blob_of(places.astype(np.uint64)), len(places)) for path, places in dead.items()]
        data, offsets = puffin_file(blobs)
        path = f"{self._table.metadata.data_folder}/{uuid.uuid4()}.puffin"
        locations.put(self._store, path, data)
        plain = ContentFile(Content.POSITION_DELETES, path, "PUFFIN", 0, (), 0, len(data))
        return [
            replace(
                plain,
                rows=blob.cardinality,
                referenced_data_file=blob.data_file,
                content_offset=offset,
                content_size=len(blob.blob),
            )
            for blob, offset in zip(blobs, offsets, strict=True)
        ]

    @property
    def entries(self) -> tuple[ManifestEntry, ...]:
        """The data files of the branch."""
        return StateReader(self._store).read(self._table.metadata, self._branch).data

    def commit(self, files: Iterable[ContentFile], removed: Sequence[ManifestEntry] = ()) -> None:
        """All files in one snapshot; none is no snapshot."""
        if entries := tuple(map(addition, files)):
            proposal = Proposal(OVERWRITE, tuple(removed), entries, None)
            self._table = self._committer.commit(self._table, lambda _: proposal).table

    def _written(self, rows: pa.Table, content: Content, ids: Mapping[str, int]) -> ContentFile:
        fields = [_field(field, ids[field.name]) for field in rows.schema]
        sink = io.BytesIO()
        pq.write_table(rows.cast(pa.schema(fields)), sink, compression=self._compression)
        data = sink.getvalue()
        path = f"{self._table.metadata.data_folder}/{content.name.lower()}-{uuid.uuid4()}.parquet"
        locations.put(self._store, path, data)
        plain = ContentFile(content, path, "PARQUET", 0, (), rows.num_rows, len(data))
        if content is Content.POSITION_DELETES:
            return plain
        return self._table.with_metrics(plain, pq.read_metadata(io.BytesIO(data)))


def _field(field: pa.Field, number: int) -> pa.Field:
    return pa.field(field.name, field.type, nullable=False, metadata={"PARQUET:field_id": str(number)})


def file_bytes(table: Any) -> int:
    """Of all files that a reader of a table reads, by its snapshot."""
    return int(table.current_snapshot().summary["total-files-size"] or 0)

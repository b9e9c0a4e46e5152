"""Iceberg tables to compact, made once: data files and equality deletes, in a catalog on sqlite.

many     500 commits of a small data file and an equality delete of its keys      iceberg-rust #2950: 295 s
few      46 M rows, then 585 equality deletes of 17 keys each                     iceberg #13674: out of memory
fifth    20 M rows, then equality deletes of a fifth of them
clean    20 M rows in small files, no deletes                                     what every peer can do

Keys are shuffled over the files, so that no file can be left out by its bounds.
"""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from deltacompact.iceberg.commit.committer import Committer
from deltacompact.iceberg.commit.proposal import OVERWRITE, Proposal, addition
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.content_files import Content, ContentFile
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader

CATALOG, TABLE = "bench", "ns.t"
DATABASE = "catalog.db"
_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "value", LongType(), required=True),
    NestedField(3, "text", StringType(), required=True),
)
_PRIME = 2_147_483_647
"""Greater than any number of rows: multiplying by it modulo the rows shuffles the keys."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`commits` of `data_files` and then `delete_files` each; files of `rows` rows, deletes of `keys` keys."""

    name: str
    commits: int
    data_files: int
    rows: int
    delete_files: int
    keys: int
    upserts: bool = False
    """Each commit deletes the keys that it writes, so a later one supersedes them."""

    @property
    def total_rows(self) -> int:
        return self.commits * self.data_files * self.rows

    def scaled(self, scale: float) -> Shape:
        """Fewer rows and files, at least one of each that there is."""
        share = math.sqrt(scale)
        by_commits = self.commits > 1
        return replace(
            self,
            commits=max(2, round(self.commits * share)) if by_commits else 1,
            data_files=self.data_files if by_commits else max(2, round(self.data_files * share)),
            rows=max(10, round(self.rows * share)),
            delete_files=self.delete_files
            if by_commits or not self.delete_files
            else max(1, round(self.delete_files * share)),
            keys=self.keys and max(1, round(self.keys * share)),
        )

    @property
    def live_rows(self) -> int:
        """The rows that are left. Deleted keys are all different, but for upserts."""
        if not self.upserts:
            return self.total_rows - self.commits * self.delete_files * self.keys
        return len(np.unique(np.concatenate([self._upserted(number) for number in range(self.commits)])))

    def make(self, folder: Path) -> Path:
        """The folder of the table: `catalog.db` and `warehouse/`. It is made unless it is there."""
        place = (
            folder / f"iceberg-{self.name}-{self.commits}-{self.data_files}x{self.rows}-{self.delete_files}x{self.keys}"
        )
        if not (place / DATABASE).exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            try:
                self._fill(place)
            except BaseException:
                shutil.rmtree(place)
                raise
        return place

    def _fill(self, place: Path) -> None:
        catalog = catalog_at(place / "making.db", place)
        catalog.create_namespace("ns")
        catalog.create_table(TABLE, _SCHEMA, properties={"format-version": "2"})
        table = IcebergTable.load(catalog, TABLE)
        store = locations.store_of(table.metadata.location, {})
        committer = Committer(store, StateReader(store), "main", "benchmarks")
        for commit in range(self.commits):
            data, deletes = list(self._data(table, commit)), list(self._deletes(table, commit))
            for files in [[*data, *deletes]] if self.upserts else [data, deletes]:
                if files:
                    entries = tuple(addition(file) for file in files)
                    table = committer.commit(table, lambda _, added=entries: Proposal(OVERWRITE, (), added, None)).table
        (place / "making.db").rename(place / DATABASE)

    def _upserted(self, commit: int) -> npt.NDArray[np.int64]:
        return np.random.default_rng(commit).choice(self.total_rows // 2, self.rows, replace=False).astype(np.int64)

    def _data(self, table: IcebergTable, commit: int) -> Iterator[ContentFile]:
        for number in range(self.data_files):
            first = (commit * self.data_files + number) * self.rows
            keys = self._upserted(commit) if self.upserts else self._shuffled(first, self.rows)
            columns = {
                "id": pa.array(keys),
                "value": pa.array(np.random.default_rng(first).integers(0, 1 << 40, len(keys))),
                "text": pa.array(np.char.mod("row %d", keys % 100_000)),
            }
            yield _written(table, pa.table(columns), Content.DATA)

    def _deletes(self, table: IcebergTable, commit: int) -> Iterator[ContentFile]:
        for number in range(self.delete_files):
            if self.upserts:
                keys = self._upserted(commit)
            else:
                keys = np.arange(number * self.keys, (number + 1) * self.keys) * (
                    self.total_rows // (self.delete_files * self.keys)
                )
            yield _written(table, pa.table({"id": pa.array(keys)}), Content.EQUALITY_DELETES)

    def _shuffled(self, first: int, rows: int) -> npt.NDArray[np.int64]:
        return np.arange(first, first + rows, dtype=np.int64) * _PRIME % self.total_rows


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("many", 500, 1, 261, 1, 261, upserts=True),
        Shape("few", 1, 92, 500_000, 585, 17),
        Shape("fifth", 1, 40, 500_000, 8, 500_000),
        Shape("clean", 1, 400, 50_000, 0, 0),
    )
}


def catalog_at(database: Path, place: Path) -> SqlCatalog:
    return SqlCatalog(CATALOG, uri=f"sqlite:///{database}", warehouse=(place / "warehouse").as_uri())


def _written(table: IcebergTable, rows: pa.Table, content: Content) -> ContentFile:
    ids = {column.field.name: number for number, column in table.metadata.columns.items()}
    fields = [
        pa.field(field.name, field.type, nullable=False, metadata={"PARQUET:field_id": str(ids[field.name])})
        for field in rows.schema
    ]
    sink = io.BytesIO()
    pq.write_table(rows.cast(pa.schema(fields)), sink, compression="zstd")
    data = sink.getvalue()
    path = f"{table.metadata.data_folder}/{content.name.lower()}-{np.random.default_rng().integers(1 << 62):x}.parquet"
    locations.put(locations.store_of(table.metadata.location, {}), path, data)
    equality = (ids["id"],) if content is Content.EQUALITY_DELETES else ()
    plain = ContentFile(content, path, "PARQUET", 0, (), rows.num_rows, len(data), equality_ids=equality)
    return table.with_metrics(plain, pq.read_metadata(io.BytesIO(data)))

"""Iceberg tables to compact, made once: data files, and deletes by equality and by position.

many     500 commits of a small data file and an equality delete of its keys      iceberg-rust #2950: 295 s
few      46 M rows, then 585 equality deletes of 17 keys each                     iceberg #13674: out of memory
fifth    20 M rows, then equality deletes of a fifth of them
clean    20 M rows in small files, no deletes                                     what every peer can do

RisingWave publishes two scenarios of its compactor, on 16 cores (docs, "Benchmark: Iceberg compaction"):

binpack  4 GB in 360 files, not compressed     17,358 files of 11 MB, 193 GB: 277 s, 44 MB/s a core
mixed    2,000 data files, 2,000 equality deletes of 100 keys, 2,000 position deletes of 100 rows
                                               20,000 of each: 490 to 518 s

Their rows are those of its own generator: a whole number, a long, a text of 20 characters; 10,000 in a file of `mixed`.
Keys are shuffled over the files, so that no file can be left out by its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from benchmarks.iceberg.writing import Writer, made
from deltacompact.iceberg.table.content_files import ContentFile

_NAMES = ("id", "value", "text")
_PRIME = 2_147_483_647
"""Greater than any number of rows: multiplying by it modulo the rows shuffles the keys."""

_TEXT_BYTES = 20


@dataclass(frozen=True, slots=True)
class Shape:
    """`commits` of `data_files` and then `delete_files` each; files of `rows` rows, deletes of `keys` keys.

    `positions`: of each data file, so many rows are deleted by a file of positions. `drawn`: rows as RisingWave's, in
    files that are not compressed.
    """

    name: str
    commits: int
    data_files: int
    rows: int
    delete_files: int
    keys: int
    upserts: bool = False
    """Each commit deletes the keys that it writes, so a later one supersedes them."""
    positions: int = 0
    drawn: bool = False
    rounds: int = 1
    rewrite_options: Any = (("rewrite-all", True),)

    @property
    def total_rows(self) -> int:
        return self.commits * self.data_files * self.rows

    @property
    def equality_deletes(self) -> bool:
        return bool(self.keys)

    def scaled(self, scale: float) -> Shape:
        """Fewer rows and files, at least one of each that there is. Files of RisingWave's keep their size."""
        if self.drawn:
            files, deletes = (max(2, round(number * scale)) for number in (self.data_files, self.delete_files))
            return replace(self, data_files=files, delete_files=self.delete_files and deletes)
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
        """The rows that are left."""
        if self.upserts:
            return len(np.unique(np.concatenate([self._upserted(number) for number in range(self.commits)])))
        firsts = range(0, self.total_rows, self.rows) if self.positions else ()
        dead = [self._keys_of(first + self._places()) for first in firsts]
        return self.total_rows - len(np.unique(np.concatenate([np.zeros(0, np.int64), *dead, *self._deleted()])))

    def make(self, folder: Path) -> Path:
        """The folder of the table: `catalog.db` and `warehouse/`. It is made unless it is there."""
        kinds = f"{self.commits}-{self.data_files}x{self.rows}-{self.delete_files}x{self.keys}-{self.positions}"
        schema = Schema(
            NestedField(1, "id", IntegerType() if self.drawn else LongType(), required=True),
            NestedField(2, "value", LongType(), required=True),
            NestedField(3, "text", StringType(), required=True),
        )
        properties = {"write.parquet.compression-codec": self._compression}
        return made(folder / f"iceberg-{self.name}-{kinds}", schema, properties, self._fill)

    def ingest(self, catalog: SqlCatalog, place: Path, round_: int) -> None:
        """Nothing comes between compactions."""

    @property
    def _compression(self) -> str:
        return "uncompressed" if self.drawn else "zstd"

    def _fill(self, catalog: SqlCatalog) -> None:
        writer = Writer(catalog, "none" if self.drawn else "zstd")
        for commit in range(self.commits):
            data = [writer.data(rows) for rows in self._data(commit)]
            deletes = chain(self._equality(writer, commit), self._positions(writer, data))
            if self.upserts:
                writer.commit([*data, *deletes])
            else:
                writer.commit(data)
                writer.commit(deletes)

    def _upserted(self, commit: int) -> npt.NDArray[np.int64]:
        return np.random.default_rng(commit).choice(self.total_rows // 2, self.rows, replace=False).astype(np.int64)

    def _data(self, commit: int) -> Iterator[pa.Table]:
        for number in range(self.data_files):
            first = (commit * self.data_files + number) * self.rows
            keys = self._upserted(commit) if self.upserts else self._keys_of(np.arange(first, first + self.rows))
            dice = np.random.default_rng(first)
            values = pa.array(dice.integers(0, 1 << 40, len(keys)))
            text = _texts(dice, len(keys)) if self.drawn else pa.array(np.char.mod("row %d", keys % 100_000))
            yield pa.table([self._ids(keys), values, text], _NAMES)

    def _equality(self, writer: Writer, commit: int) -> Iterator[ContentFile]:
        for keys in [self._upserted(commit)] * self.delete_files if self.upserts else self._deleted():
            yield writer.equality_deletes(pa.table({"id": self._ids(keys)}))

    def _positions(self, writer: Writer, data: list[ContentFile]) -> Iterator[ContentFile]:
        for file in data if self.positions else ():
            yield writer.position_deletes(file, self._places())

    def _deleted(self) -> list[npt.NDArray[np.int64]]:
        """The keys of each equality delete, all different."""
        step = self.total_rows // max(1, self.delete_files * self.keys)
        return [np.arange(number * self.keys, (number + 1) * self.keys) * step for number in range(self.delete_files)]

    def _places(self) -> npt.NDArray[np.int64]:
        """Of the rows that are deleted by position, in each file."""
        return np.arange(self.positions, dtype=np.int64) * (self.rows // max(1, self.positions))

    def _keys_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return numbers * _PRIME % self.total_rows

    def _ids(self, keys: npt.NDArray[np.int64]) -> pa.Array:
        return pa.array(keys, pa.int32() if self.drawn else pa.int64())


def _texts(dice: np.random.Generator, rows: int) -> pa.Array:
    """Texts of one length that nothing compresses."""
    letters = (dice.integers(0, 64, rows * _TEXT_BYTES, np.uint8) + 48).tobytes()
    ends = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(_TEXT_BYTES))
    return pa.StringArray.from_buffers(rows, ends, pa.py_buffer(letters))


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("many", 500, 1, 261, 1, 261, upserts=True),
        Shape("few", 1, 92, 500_000, 585, 17),
        Shape("fifth", 1, 40, 500_000, 8, 500_000),
        Shape("clean", 1, 400, 50_000, 0, 0),
        Shape("binpack", 1, 360, 340_000, 0, 0, drawn=True),
        Shape("mixed", 1, 2_000, 10_000, 2_000, 100, positions=100, drawn=True),
    )
}

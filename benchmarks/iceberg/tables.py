"""The tables, made once: data files and equality deletes with field ids, in two commits, in a catalog on sqlite.

    catalog.db · warehouse/bench/t/data/…        row n has the id n * STRIDE modulo the number of rows
    keys of deletes                              the ids of some rows, evenly over the delete files

Files of a run are removed after it, and the branch goes back to where it was: data files are never touched.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.iceberg.shapes import Shape
from deltacompact.catalog.iceberg.commit.committer import Committer
from deltacompact.catalog.iceberg.commit.proposal import Proposal, addition
from deltacompact.catalog.iceberg.table import locations
from deltacompact.catalog.iceberg.table.content_files import Content, ContentFile
from deltacompact.catalog.iceberg.table.metadata import MAIN
from deltacompact.catalog.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.catalog.iceberg.table.table_state import StateReader

TABLE = "bench.t"
COLUMNS = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("kind", pa.string())])
STRIDE = 2_654_435_761
"""A prime above the number of rows, so ids are distinct and scattered."""
_KINDS = pa.array(["order", "refund", "gift", "trial"])
_ID = 1


@dataclass(frozen=True, slots=True)
class MadeTable:
    """A table, its snapshot with all deletes, and what a reader must find: so many rows, with this sum of ids."""

    folder: Path
    snapshot_id: int
    live_rows: int
    live_id_sum: int

    @property
    def name(self) -> str:
        """The catalog's. Spark keeps catalogs by name, so each table has a catalog with a name of its own."""
        return re.sub(r"\W", "_", self.folder.name)

    @property
    def database(self) -> Path:
        return self.folder / "catalog.db"

    @property
    def warehouse(self) -> str:
        return (self.folder / "warehouse").as_uri()

    def catalog(self) -> SqlCatalog:
        return SqlCatalog(self.name, uri=f"sqlite:///{self.database}", warehouse=self.warehouse)

    def files(self) -> set[Path]:
        return {path for path in (self.folder / "warehouse").rglob("*.p*") if "/data/" in str(path)}

    def restore(self, files: set[Path]) -> None:
        """Undo a run: the branch is at the made snapshot again, and of the files only `files` are there."""
        table = self.catalog().load_table(TABLE)
        if table.current_snapshot().snapshot_id != self.snapshot_id:
            table.manage_snapshots().rollback_to_snapshot(self.snapshot_id).commit()
        for path in self.files() - files:
            path.unlink()


def made_table(shape: Shape, folder: Path, seed: int) -> MadeTable:
    """The table of a shape: made now, unless it is there."""
    home = folder / f"iceberg-{shape.name}-{seed}"
    described = home / "made.json"
    if described.exists():
        return MadeTable(home, **json.loads(described.read_text()))
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    made = _make(shape, MadeTable(home, 0, 0, 0), seed)
    facts = {name: value for name, value in asdict(made).items() if name != "folder"}
    described.write_text(json.dumps(facts))
    return made


def _make(shape: Shape, empty: MadeTable, seed: int) -> MadeTable:
    catalog = empty.catalog()
    catalog.create_namespace("bench")
    catalog.create_table(TABLE, COLUMNS, properties={"format-version": "2"})
    table = IcebergTable.load(catalog, TABLE)
    rng = np.random.default_rng(seed)
    bounds = np.linspace(0, shape.rows, shape.data_files + 1).astype(int)
    data = [
        _file(table, Content.DATA, _rows(np.arange(first, stop), shape.rows, rng)) for first, stop in pairwise(bounds)
    ]
    table = _committed(table, "append", data)
    dead = _ids(rng.choice(shape.rows, shape.deleted_keys, replace=False), shape.rows)
    deletes = [
        _file(
            table, Content.EQUALITY_DELETES, pa.table({"id": keys}, schema=pa.schema([table.metadata.schema.field(0)]))
        )
        for keys in np.array_split(dead, shape.delete_files)
    ]
    table = _committed(table, "delete", deletes)
    snapshot = table.metadata.branch(MAIN)
    assert snapshot is not None
    id_sum = shape.rows * (shape.rows - 1) // 2 - int(dead.sum())
    return MadeTable(empty.folder, snapshot.snapshot_id, shape.rows - shape.deleted_keys, id_sum)


def _ids(numbers: np.ndarray, rows: int) -> np.ndarray:
    """Distinct ids below `rows`, as STRIDE and `rows` have no common factor."""
    assert np.gcd(STRIDE, rows) == 1
    return (numbers.astype(np.uint64) * np.uint64(STRIDE) % np.uint64(rows)).astype(np.int64)


def _rows(numbers: np.ndarray, rows: int, rng: np.random.Generator) -> pa.Table:
    kinds = pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, len(_KINDS), len(numbers), np.int8)), _KINDS)
    columns = {"id": _ids(numbers, rows), "amount": rng.random(len(numbers)), "kind": kinds.cast(pa.string())}
    return pa.table(columns, schema=COLUMNS)


def _file(table: IcebergTable, content: Content, rows: pa.Table) -> ContentFile:
    """A Parquet file with field ids and metrics, as Iceberg's own writers leave it."""
    named = {field.name: field for field in table.metadata.schema}
    fields = [named[name].with_nullable(True) for name in rows.column_names]
    path = f"{table.metadata.data_folder}/{uuid.uuid4().hex}.parquet"
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.cast(pa.schema(fields)), local, compression="zstd")
    ids = (_ID,) if content is Content.EQUALITY_DELETES else ()
    size = local.stat().st_size
    plain = ContentFile(content, path, "PARQUET", 0, (), rows.num_rows, size, equality_ids=ids)
    return table.with_metrics(plain, pq.read_metadata(local))


def _committed(table: IcebergTable, operation: str, files: Sequence[ContentFile]) -> IcebergTable:
    store = locations.store_of(table.metadata.location, {})
    committer = Committer(store, StateReader(store), MAIN, "benchmark")
    proposal = Proposal(operation, (), tuple(addition(file) for file in files), None)
    return committer.commit(table, lambda _: proposal).table

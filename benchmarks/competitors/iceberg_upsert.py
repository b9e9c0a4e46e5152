"""deltacompact on an Iceberg table of version 2: PyIceberg appends the deltas, `upsert` marks the rows they replace.

A delta of rows is a file that PyIceberg adds as it is. A row of a delta of deletes has its key and the operation "D".
The base is a table that was upserted before and has an index of its keys. A copy of it has the same paths, because
they go by a link:

    base.link -> base     while it is made        base.link -> table     while it is measured
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import TableProperties

import deltacompact
from benchmarks.competitors import Run, Stateless, linked_copy
from benchmarks.competitors.departed import departed
from benchmarks.data import Inputs
from benchmarks.tpch import batches
from deltacompact import Settings

TABLE, OPERATION = "bench.t", "operation"
DEFAULT_NAME_MAPPING = TableProperties.DEFAULT_NAME_MAPPING
_DATABASE = "catalog.db"
_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "deltacompact.key-index.enabled": "true",
}


class IcebergUpsert(Stateless):
    """In process."""

    def build_base(self, inputs: Inputs, folder: Path) -> None:
        folder.mkdir(parents=True)
        catalog = _catalog(folder, folder)
        catalog.create_namespace("bench")
        schema = next(batches(inputs.prior)).schema.append(pa.field(OPERATION, pa.string()))
        nullable = pa.schema([field.with_nullable(True) for field in schema])
        table = catalog.create_table(TABLE, nullable, properties=_PROPERTIES)
        with table.transaction() as first:  # `add_files` would do it, after the index was made without it
            first.set_properties({DEFAULT_NAME_MAPPING: table.schema().name_mapping.model_dump_json()})
        for file in inputs.prior:
            table.append(pa.concat_tables(batches([file])).cast(nullable.remove(len(nullable) - 1)))
        _upsert(catalog, inputs)

    def prepare(self, inputs: Inputs, folder: Path, base: Path) -> Run:
        linked_copy(base, folder)
        (folder / _DATABASE).unlink()  # sqlite writes into it
        shutil.copy(base / _DATABASE, folder / _DATABASE)
        catalog = _catalog(base, folder)

        def work() -> None:
            for delta in inputs.deltas:
                if delta.deletes:
                    _delete(catalog, pq.read_table(list(delta.files)))
                else:
                    catalog.load_table(TABLE).add_files([file.as_uri() for file in delta.files])
            if inputs.whole:
                known = deltacompact.open_catalog(catalog).table(TABLE).scan(columns=inputs.keys)
                _delete(catalog, departed(known, inputs))
            _upsert(catalog, inputs)

        def scan() -> pa.RecordBatchReader:
            return catalog.load_table(TABLE).scan(selected_fields=inputs.columns).to_arrow_batch_reader()

        return Run(work, lambda: sorted((folder / "warehouse").rglob("data/*.parquet")), scan=scan)


def _catalog(base: Path, folder: Path) -> SqlCatalog:
    """The catalog in a folder, whose paths go by the link beside the base."""
    link = base.with_name(f"{base.name}.link")
    link.unlink(missing_ok=True)
    link.symlink_to(folder)
    return SqlCatalog("bench", uri=f"sqlite:///{folder / _DATABASE}", warehouse=(link / "warehouse").as_uri())


def _delete(catalog: SqlCatalog, keys: pa.Table) -> None:
    optional = pa.schema([field.with_nullable(True) for field in keys.schema])
    rows = keys.cast(optional).append_column(OPERATION, pa.repeat("D", len(keys)))
    catalog.load_table(TABLE).append(rows)


def _upsert(catalog: SqlCatalog, inputs: Inputs) -> None:
    options = {"key-columns": ",".join(inputs.keys), "operation-column": OPERATION}
    deltacompact.compact(
        TABLE,
        delta_catalog_client=deltacompact.open_catalog(catalog),
        mode="upsert",
        options=options,
        settings=Settings(executor="local"),
    )

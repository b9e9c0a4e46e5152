"""delta-rs: MERGE of the deltas into a Delta Lake table that was written before, in insertion order.

One MERGE for all deltas. It takes one row for each key: of several deltas the last row of a key is found first, in the
time that is measured.

    upsert k1 k2   delete k1   upsert k2 k3   ->   k1 gone   k2   k3
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, WriterProperties, write_deltalake

from benchmarks.competitors import Run, Stateless, linked_copy
from benchmarks.data import Inputs

GONE, PLACE = "gone", "place"


class DeltaMerge(Stateless):
    """Delete or update what matches, insert the rest; default file sizes."""

    def __init__(self) -> None:
        self._properties = WriterProperties(compression="ZSTD")

    def build_base(self, inputs: Inputs, folder: Path) -> None:
        rows = ds.dataset([str(file) for file in inputs.prior]).scanner(use_threads=False).to_reader()
        write_deltalake(str(folder), rows, writer_properties=self._properties)

    def prepare(self, inputs: Inputs, folder: Path, base: Path) -> Run:
        linked_copy(base, folder)

        def work() -> None:
            merging = DeltaTable(str(folder)).merge(
                _source(inputs),
                " AND ".join(f"known.{key} = new.{key}" for key in inputs.keys),
                source_alias="new",
                target_alias="known",
                writer_properties=self._properties,
            )
            if inputs.whole:
                merging = merging.when_matched_update_all().when_not_matched_by_source_delete()
            elif inputs.deletes:
                merging = merging.when_matched_delete(f"new.{GONE}").when_matched_update_all(except_cols=[GONE])
                merging = merging.when_not_matched_insert_all(f"NOT new.{GONE}", except_cols=[GONE])
            else:
                merging = merging.when_matched_update_all().when_not_matched_insert_all()
            merging.execute()

        return Run(work, lambda: [Path(uri.removeprefix("file://")) for uri in DeltaTable(str(folder)).file_uris()])


def _source(inputs: Inputs) -> pa.Table:
    """One row for each key; where there are deletes they are marked, and their other columns are null."""
    tables = [ds.dataset([str(file) for file in delta.files]).to_table() for delta in inputs.deltas]
    if len(tables) == 1 and not inputs.deletes:
        return tables[0]
    if inputs.deletes:
        tables = [
            _nullable(table).append_column(GONE, pa.repeat(delta.deletes, len(table)))
            for table, delta in zip(tables, inputs.deltas, strict=True)
        ]
    rows = pa.concat_tables(tables, promote_options="default")
    if inputs.distinct:
        return rows
    placed = rows.select(list(inputs.keys)).append_column(PLACE, pa.array(np.arange(len(rows))))
    return rows.take(placed.group_by(list(inputs.keys)).aggregate([(PLACE, "max")])[f"{PLACE}_max"])


def _nullable(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))

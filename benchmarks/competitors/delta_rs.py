"""delta-rs: MERGE of the delta into a Delta Lake table that was written before, in insertion order."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
from deltalake import DeltaTable, WriterProperties, write_deltalake

from benchmarks.competitors import Run, Stateless, linked_copy
from benchmarks.data import Inputs


class DeltaMerge(Stateless):
    """Update what matches, insert the rest; default file sizes."""

    def __init__(self) -> None:
        self._properties = WriterProperties(compression="ZSTD")

    def build_base(self, inputs: Inputs, folder: Path) -> None:
        rows = ds.dataset([str(file) for file in inputs.prior]).scanner(use_threads=False).to_reader()
        write_deltalake(str(folder), rows, writer_properties=self._properties)

    def prepare(self, inputs: Inputs, folder: Path, base: Path) -> Run:
        linked_copy(base, folder)

        def work() -> None:
            source = ds.dataset([str(file) for file in inputs.delta]).to_table()
            merging = DeltaTable(str(folder)).merge(
                source,
                "known.key = new.key",
                source_alias="new",
                target_alias="known",
                writer_properties=self._properties,
            )
            merging.when_matched_update_all().when_not_matched_insert_all().execute()

        return Run(work, lambda: [Path(uri.removeprefix("file://")) for uri in DeltaTable(str(folder)).file_uris()])

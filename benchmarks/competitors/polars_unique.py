"""Polars: scan in fold order, keep the last row of each key, sink, all streaming."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from benchmarks.competitors import Run, Stateless
from benchmarks.configurations import COMPRESSION
from benchmarks.data import Inputs


class PolarsUnique(Stateless):
    """Default settings; one output file."""

    def prepare(self, inputs: Inputs, folder: Path, base: Path) -> Run:
        folder.mkdir(parents=True)
        out = folder / "out.parquet"

        def work() -> None:
            rows = pl.scan_parquet(list(inputs.files)).unique(subset="key", keep="last")
            rows.sink_parquet(out, compression=COMPRESSION)

        return Run(work, lambda: [out])

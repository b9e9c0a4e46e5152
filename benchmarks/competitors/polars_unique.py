"""Polars: scan in fold order, keep the last row of each key unless that is a delete, sink, all streaming."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from benchmarks.competitors import Run, Stateless
from benchmarks.configurations import COMPRESSION
from benchmarks.data import Inputs

GONE = "gone"


class PolarsUnique(Stateless):
    """Default settings; one output file."""

    def prepare(self, inputs: Inputs, folder: Path, base: Path) -> Run:
        folder.mkdir(parents=True)
        out = folder / "out.parquet"

        def work() -> None:
            rows = _all(inputs).unique(subset=inputs.keys, keep="last")
            if inputs.deletes:
                rows = rows.filter(pl.col(GONE).is_null()).drop(GONE)
            rows.sink_parquet(out, compression=COMPRESSION)

        return Run(work, lambda: [out])


def _all(inputs: Inputs) -> pl.LazyFrame:
    """Every row, in fold order; keys of deletes are marked, and their other columns are null."""
    if not inputs.deletes:
        return pl.scan_parquet(list(inputs.files))
    scans = [pl.scan_parquet(list(inputs.prior))]
    for delta in inputs.deltas:
        rows = pl.scan_parquet(list(delta.files))
        scans.append(rows.with_columns(pl.lit(True).alias(GONE)) if delta.deletes else rows)
    return pl.concat(scans, how="diagonal")

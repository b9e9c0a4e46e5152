"""OLake's measure of compaction: TPC-H's lineitem under change events, compacted again and again.

OLake publishes it for 300 GB (docs, "Compaction Benchmarks"): every 2 minutes some pages of the source have the last
letter of their comments changed, 0.0112 % of the rows, and each commit adds a data file and a file of equality deletes.
After 5 commits, compactions begin: one every 20 minutes for 2 hours. Six took 27:02 minutes with Fusion and 55:47 with
Spark, on 36 to 40 vCPUs ($2.36 an hour).

    commits    5        10        10        10        10        10
    compacted    run 1     run 2     run 3     run 4     run 5     run 6

Here commits and compactions take turns: only the compactions are measured, and no query runs beside them. Options of
`rewrite` are those of its Spark job: a file with a delete is rewritten.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.iceberg.writing import DATABASE, TABLE, Writer, made
from benchmarks.tpch import TABLES, batches, generate, parts_of

LINEITEM = "lineitem"
KEYS = TABLES[LINEITEM]
SHARE = 0.000112
PAGE_ROWS = 64
COMMITS = (5, 10, 10, 10, 10, 10)


@dataclass(frozen=True, slots=True)
class ChangeEvents:
    """lineitem at a scale factor, and the commits before each compaction."""

    name: str
    scale_factor: float
    rounds: int = len(COMMITS)
    equality_deletes: bool = True
    rewrite_options: Any = (("delete-file-threshold", 1),)

    def scaled(self, scale: float) -> ChangeEvents:
        return replace(self, scale_factor=max(0.001, self.scale_factor * scale))

    @property
    def live_rows(self) -> None:
        """As many as the generator makes, which it does not say: contenders are compared with each other."""

    def make(self, folder: Path) -> Path:
        """The folder of the table, and below it `changes/`: the rows of each commit."""
        place = folder / f"iceberg-{self.name}-sf{self.scale_factor:g}"
        if (place / DATABASE).exists():
            return place
        source = folder / f"source-of-{place.name}"
        shutil.rmtree(source, ignore_errors=True)
        generate(source, self.scale_factor, (LINEITEM,))
        parts = parts_of(source, LINEITEM)

        def fill(catalog: SqlCatalog) -> None:
            table = catalog.load_table(TABLE)
            for part in parts:
                table.append(pa.concat_tables(batches([part])))
            _write_changes(place / "changes", parts)

        made(place, next(batches(parts)).schema, {"write.parquet.compression-codec": "zstd"}, fill)
        shutil.rmtree(source)
        return place

    def ingest(self, catalog: SqlCatalog, place: Path, round_: int) -> None:
        """The commits before a compaction."""
        for commit in range(*_bounds()[round_]):
            writer, rows = Writer(catalog), pq.read_table(place / "changes" / f"{commit:03d}.parquet")
            writer.commit([writer.data(rows), writer.equality_deletes(rows.select(KEYS))])


def _bounds() -> list[tuple[int, int]]:
    """The first commit before each compaction, and the one after its last."""
    return list(pairwise(accumulate(COMMITS, initial=0)))


def _write_changes(folder: Path, parts: tuple[Path, ...]) -> None:
    """Draw pages for each commit, and read the table once."""
    folder.mkdir()
    total = sum(pq.read_metadata(part).num_rows for part in parts)
    dice, pages = np.random.default_rng(1), -(-total // PAGE_ROWS)
    chosen = [dice.choice(pages, max(1, round(pages * SHARE)), replace=False) for _ in range(sum(COMMITS))]
    found: list[list[pa.Table]] = [[] for _ in chosen]
    first = 0
    for rows in batches(parts):
        page_of = (first + np.arange(len(rows))) // PAGE_ROWS
        hit = np.isin(page_of, np.concatenate(chosen))
        touched, page_of = rows.filter(hit), page_of[hit]
        for commit, wanted in enumerate(chosen):
            found[commit].append(touched.filter(np.isin(page_of, wanted)))
        first += len(rows)
    for commit, tables in enumerate(found):
        pq.write_table(_commented(pa.concat_tables(tables), dice), folder / f"{commit:03d}.parquet")


def _commented(rows: pa.Table, dice: np.random.Generator) -> pa.Table:
    """The same rows with another last letter in their comments."""
    letters = pa.array(np.array(list(ascii_uppercase))[dice.integers(0, 26, len(rows))])
    kept = pc.utf8_slice_codeunits(rows["l_comment"], 0, -1)
    place, field = rows.schema.get_field_index("l_comment"), rows.schema.field("l_comment")
    return rows.set_column(place, field, pc.binary_join_element_wise(kept, letters, ""))

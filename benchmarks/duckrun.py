"""duckrun's merge suite: six changes to TPC-H's lineitem, as its SQL makes them, by two columns as the key.

    upsert    1 % of the rows: 80 % updated, 20 % with a key of their own
    insert    5 % with keys of their own
    update    5 %, all known
    again     5 % as they are: a merge of rows that were merged before
    cdc       on half of the rows: every hundredth order leaves, 3 % updated, 2 % with keys of their own
    sync      on half of the rows: the source has all that stays, updated; orders with even keys are not in it

The suite stands in djouallah/duckrun, tests/performance/merge_spill. Ours has one batch of rows for each change, in
files; there it is sampled from the table in the measured time. There each change meets the result of the one before,
here all meet the same table; and its half is every other row, ours half of the files.

    <folder>/duckrun-sf10-seed1/source/lineitem/lineitem.1.parquet …    as tpchgen-cli makes them
                                cdc/000-delete.parquet 001-upsert.parquet
                                    data.json                       written last: expected rows and checksum

How each contender does a change is in competitors/: delta-rs by MERGE with the clauses of the suite; DuckDB by an anti
join that writes the table anew; deltacompact by an append and a compaction of a delta stream, with dead rows rewritten
or marked, or by an append to an Iceberg table and `upsert`, with an index of its keys. A stream has no clause for rows
that a source lacks: their keys are looked for in the time that is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.checksum import Fingerprint, row_hashes
from benchmarks.configurations import COMPRESSION, ROW_GROUP_ROWS, Case
from benchmarks.data import Delta, Inputs, hash_sum, made_once
from benchmarks.tpch import PARTS, TABLES, batches, generate, parts_of

GENERATION = 1
LINEITEM = "lineitem"
KEYS = TABLES[LINEITEM]
HALVED = frozenset({Case.CDC, Case.SYNC})
"""Cases that start from half of the files."""

Mask = npt.NDArray[np.bool_]
Change = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class DuckrunTable:
    """lineitem at a scale factor: 10 in the suite, 59,986,052 rows."""

    scale_factor: float

    @property
    def name(self) -> str:
        return f"duckrun-sf{self.scale_factor:g}"

    @property
    def rows(self) -> int:
        """The rows that the specification names; there are a few more or less."""
        return int(6_000_000 * self.scale_factor)

    def tiny(self) -> DuckrunTable:
        """A tiny table of the same kind, for warming up."""
        return replace(self, scale_factor=0.001)


def inputs_of(table: DuckrunTable, case: Case, folder: Path, seed: int) -> Inputs:
    """The files of one case, made now unless they are there."""
    source, home = folder / f"{table.name}-seed{seed}" / "source", folder / f"{table.name}-seed{seed}" / case
    made_once(source, GENERATION, lambda: _generated(source, table.scale_factor))
    prior = parts_of(source, LINEITEM)[: PARTS // 2 if case in HALVED else PARTS]
    described = made_once(home, GENERATION, lambda: _Batch(case, prior, home, seed).make())
    return Inputs(
        case,
        KEYS,
        prior,
        tuple(Delta((file,), file.stem.endswith("delete")) for file in sorted(home.glob("*.parquet"))),
        described["rows"],
        tuple(pq.read_schema(prior[0]).names),
        Fingerprint(described["live"], described["checksum"]),
        distinct=True,
        whole=case is Case.SYNC,
    )


def _generated(source: Path, scale_factor: float) -> dict[str, Any]:
    generate(source, scale_factor, (LINEITEM,))
    return {}


class _Batch:
    """Writes the deltas of one case while it reads the rows that they meet, and adds up what is left."""

    def __init__(self, case: Case, prior: tuple[Path, ...], home: Path, seed: int) -> None:
        self._case, self._prior, self._home = case, prior, home
        self._dice = np.random.default_rng([seed, list(Case).index(case)])
        self._greatest = max(_greatest_key(file) for file in prior)
        self._rows = self._live = self._total = 0
        self._writers: dict[str, pq.ParquetWriter] = {}

    def make(self) -> dict[str, int]:
        self._home.mkdir(parents=True)
        for rows in batches(self._prior):
            kept = self._changed(rows, rows[KEYS[0]].to_numpy())
            self._rows += len(rows)
            self._lives(rows.filter(kept))
        for writer in self._writers.values():
            writer.close()
        return {"rows": self._rows, "live": self._live, "checksum": self._total % 2**64}

    def _changed(self, rows: pa.Table, orders: npt.NDArray[np.int64]) -> Mask:
        """Write what changes of these rows; which of them stay as they were."""
        drawn = self._dice.random(len(rows))
        match self._case:
            case Case.UPSERT:
                self._inserted(rows, drawn < 0.002, _quantity(-1))
                return self._updated(rows, (drawn >= 0.002) & (drawn < 0.01), _quantity(-1))
            case Case.INSERT:
                return self._inserted(rows, drawn < 0.05, _shipped(date(2035, 6, 15)))
            case Case.UPDATE:
                return self._updated(rows, drawn < 0.05, _quantity(-2))
            case Case.AGAIN:
                return self._updated(rows, drawn < 0.05, lambda same: same)
            case Case.CDC:
                leaving = orders % 100 == 7
                self._append("000-delete", rows.filter(leaving).select(KEYS))
                self._inserted(rows, self._dice.random(len(rows)) < 0.02, _shipped(date(2036, 1, 1)))
                return self._updated(rows, (drawn < 0.03) & ~leaving, _quantity(-8)) & ~leaving
        self._updated(rows, orders % 2 == 1, _quantity(-5))
        return np.zeros(len(rows), bool)

    def _updated(self, rows: pa.Table, chosen: Mask, change: Change) -> Mask:
        """Write those that are chosen; which rows stay as they were."""
        written = change(rows.filter(chosen))
        self._append("001-upsert", written)
        self._lives(written)
        return ~chosen

    def _inserted(self, rows: pa.Table, chosen: Mask, change: Change) -> Mask:
        """The same rows with keys of their own, past the greatest: all stay as they were."""
        written = rows.filter(chosen)
        orders = pc.add(written[KEYS[0]], self._greatest)
        place, field = rows.schema.get_field_index(KEYS[0]), rows.schema.field(KEYS[0])
        self._updated(written.set_column(place, field, orders), np.ones(len(written), bool), change)
        return np.ones(len(rows), bool)

    def _append(self, name: str, rows: pa.Table) -> None:
        if name not in self._writers:
            path = self._home / f"{name}.parquet"
            self._writers[name] = pq.ParquetWriter(path, rows.schema, compression=COMPRESSION)
        self._writers[name].write_table(rows, row_group_size=ROW_GROUP_ROWS)
        self._rows += len(rows)

    def _lives(self, rows: pa.Table) -> None:
        self._live += len(rows)
        self._total += hash_sum(row_hashes(rows, rows.column_names))


def _quantity(marker: int) -> Change:
    return lambda rows: _constant(rows, "l_quantity", Decimal(marker))


def _shipped(day: date) -> Change:
    return lambda rows: _constant(rows, "l_shipdate", day)


def _constant(rows: pa.Table, name: str, value: Any) -> pa.Table:
    field = rows.schema.field(name)
    values = pa.repeat(pa.scalar(value, field.type), len(rows))
    return rows.set_column(rows.schema.get_field_index(name), field, values)


def _greatest_key(file: Path) -> int:
    """By the footer."""
    footer = pq.read_metadata(file)
    return max(int(footer.row_group(group).column(0).statistics.max) for group in range(footer.num_row_groups))

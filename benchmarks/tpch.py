"""TPC-H's orders and lineitem with refresh streams: files made once, and what their compaction must come to.

<folder>/tpch-sf1-10-seed1/orders/orders.1.parquet …      as tpchgen-cli makes them, in the order of their keys
                           lineitem/lineitem.1.parquet …
                           refresh/lineitem/000-upsert.parquet 001-delete.parquet 002-upsert.parquet …
                           status/lineitem/000-upsert.parquet 001-upsert.parquet …
                           data.json                      written last: expected rows and checksums

The case `full` has the files of `refresh`. What streams do is in refresh.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.checksum import Fingerprint, row_hashes
from benchmarks.configurations import COMPRESSION, ROW_GROUP_ROWS, Case
from benchmarks.data import Delta, Inputs, hash_sum, made_once
from benchmarks.refresh import Change, Keys, orders_per_stream, refresh_streams, status_streams

GENERATION = 1
"""Raised whenever other files come out, so that those made before are not taken for them."""

CASES = (Case.FULL, Case.REFRESH, Case.STATUS)
TABLES = {"lineitem": ("l_orderkey", "l_linenumber"), "orders": ("o_orderkey",)}
"""Primary keys; the first column is the order's."""

STREAMS_MAX = 400
"""So that orders which leave and orders which new ones are like do not run out."""

_ROWS = {"lineitem": 6_000_000, "orders": 1_500_000}
PARTS = 8


@dataclass(frozen=True, slots=True)
class TpchTable:
    """One of the two tables, at a scale factor, with so many refresh streams."""

    table: str
    scale_factor: float
    streams: int

    @property
    def name(self) -> str:
        return f"{self.table}-sf{self.scale_factor:g}"

    @property
    def rows(self) -> int:
        """The rows that the specification names; lineitem has a few more or less."""
        return int(_ROWS[self.table] * self.scale_factor)

    def tiny(self) -> TpchTable:
        """A tiny table of the same kind, for warming up."""
        return replace(self, scale_factor=0.001, streams=2)


def inputs_of(table: TpchTable, case: Case, folder: Path, seed: int) -> Inputs:
    """The files of one case, made now unless they are there."""
    home = folder / f"tpch-sf{table.scale_factor:g}-{table.streams}-seed{seed}"
    described = made_once(home, GENERATION, _Maker(table.scale_factor, table.streams, home, seed).make)[table.table]
    streams = Case.REFRESH if case is Case.FULL else case
    sums = described["cases"][streams]
    files = sorted((home / streams / table.table).glob("*.parquet"))
    return Inputs(
        case,
        TABLES[table.table],
        parts_of(home, table.table),
        tuple(Delta((file,), file.stem.endswith("delete")) for file in files),
        sums["rows"],
        tuple(described["columns"]),
        Fingerprint(sums["live"], sums["checksum"]),
    )


def generator() -> str | None:
    """The path of tpchgen-cli: beside this interpreter, or on the path of commands."""
    return shutil.which(
        "tpchgen-cli", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    )


def generate(home: Path, scale_factor: float, tables: tuple[str, ...]) -> None:
    """Have tpchgen-cli make the files of tables in a new folder."""
    if (program := generator()) is None:
        raise FileNotFoundError("tpchgen-cli is missing: pip install tpchgen-cli")
    options = {
        "--scale-factor": f"{scale_factor:g}",
        "--tables": ",".join(tables),
        "--parts": str(PARTS),
        "--compression": f"{COMPRESSION.upper()}(1)",
        "--output-dir": str(home),
    }
    home.mkdir(parents=True)
    subprocess.run([program, "parquet", "--quiet", *sum(options.items(), ())], check=True)


def parts_of(home: Path, table: str) -> tuple[Path, ...]:
    """The files of a table that `generate` made, in the order of their keys."""
    return tuple(home / table / f"{table}.{part}.parquet" for part in range(1, PARTS + 1))


@dataclass(frozen=True, slots=True)
class _Maker:
    """Writes the files of both tables, and adds up what is left."""

    scale_factor: float
    streams: int
    home: Path
    seed: int

    def make(self) -> dict[str, Any]:
        generate(self.home, self.scale_factor, tuple(TABLES))
        orders = pa.concat_tables(
            pq.read_table(file, columns=["o_orderkey", "o_orderdate"]) for file in parts_of(self.home, "orders")
        )
        keys, placed = _numbers(orders["o_orderkey"]), _numbers(orders["o_orderdate"].cast(pa.int32()))
        count, dice = orders_per_stream(self.scale_factor), np.random.default_rng([self.seed, 0])
        changes = {
            Case.REFRESH: refresh_streams(keys, self.streams, count, dice),
            Case.STATUS: status_streams(keys, placed, self.streams, count, dice),
        }
        return {table: self._table(table, changes) for table in TABLES}

    def _table(self, table: str, changes: dict[Case, list[Change]]) -> dict[str, Any]:
        """Write the deltas of one table; add up what lives."""
        key = TABLES[table][0]
        needed = np.unique(np.concatenate([change.read for of_case in changes.values() for change in of_case]))
        rows = pa.concat_tables(
            batch.filter(_among(batch, key, needed)) for batch in batches(parts_of(self.home, table))
        )
        cases = {case: self._deltas(table, case, of_case, rows) for case, of_case in changes.items()}
        touched = {case: np.concatenate([change.keys for change in of_case]) for case, of_case in changes.items()}
        for batch in batches(parts_of(self.home, table)):
            hashes = row_hashes(batch, batch.column_names)
            for case, sums in cases.items():
                sums.add(hashes[~_among(batch, key, touched[case])], len(batch))
        return {"columns": rows.column_names, "cases": {case: sums.document() for case, sums in cases.items()}}

    def _deltas(self, table: str, case: Case, changes: Iterable[Change], rows: pa.Table) -> _Sums:
        """Write the deltas backwards, because the last delta on an order counts."""
        folder, sums, later = self.home / case / table, _Sums(), np.zeros(0, np.int64)
        folder.mkdir(parents=True)
        for number, change in reversed(list(enumerate(changes))):
            delta = delta_rows(table, change, rows)
            path = folder / f"{number:03d}-{'delete' if change.deletes else 'upsert'}.parquet"
            pq.write_table(delta, path, compression=COMPRESSION, row_group_size=ROW_GROUP_ROWS)
            lives = ~_among(delta, TABLES[table][0], later) & (not change.deletes)
            sums.add(row_hashes(delta, delta.column_names)[lives], len(delta))
            later = np.union1d(later, change.keys)
        return sums


def delta_rows(table: str, change: Change, rows: pa.Table) -> pa.Table:
    """What a delta's file holds. `rows` has those of all orders that the change reads, in the order of their keys."""
    key = TABLES[table][0]
    mine = rows.filter(_among(rows, key, change.read))
    places = np.searchsorted(change.read, _numbers(mine[key]))
    if change.deletes:
        return mine.select(TABLES[table])
    if change.shipped is None:
        return _with(mine, key, pa.array(change.keys[places]))
    shipped = change.shipped[places]
    if table == "orders":
        return _with(mine, "o_orderstatus", pa.array(np.where(shipped > 1, "F", "P")))
    now = (shipped > 1) | (_numbers(mine["l_linenumber"]) % 2 == 1)
    return _with(mine, "l_linestatus", pa.array(np.where(now, "F", mine["l_linestatus"].to_numpy())))


class _Sums:
    """Rows of all files, rows that live, and the sum of their hashes."""

    def __init__(self) -> None:
        self.rows = self.live = self.total = 0

    def add(self, live: npt.NDArray[np.uint64], rows: int) -> None:
        self.rows, self.live, self.total = self.rows + rows, self.live + len(live), self.total + hash_sum(live)

    def document(self) -> dict[str, int]:
        return {"rows": self.rows, "live": self.live, "checksum": self.total % 2**64}


def batches(files: Iterable[Path]) -> Iterator[pa.Table]:
    """Batches of the generator's files. Make string views strings, because pyarrow cannot take rows of views."""
    for file in files:
        reader = pq.ParquetFile(file)
        schema = pa.schema([_plain(field) for field in reader.schema_arrow])
        for batch in reader.iter_batches(ROW_GROUP_ROWS):
            yield pa.Table.from_batches([batch]).cast(schema)


def _plain(field: pa.Field) -> pa.Field:
    return field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field


def _among(rows: pa.Table, key: str, wanted: Keys) -> npt.NDArray[np.bool_]:
    return np.isin(_numbers(rows[key]), wanted)


def _numbers(column: pa.ChunkedArray) -> Keys:
    return column.to_numpy().astype(np.int64, copy=False)


def _with(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """The table with another column of the same type."""
    place = rows.schema.get_field_index(name)
    field = rows.schema.field(place)
    return rows.set_column(place, field, values.cast(field.type))

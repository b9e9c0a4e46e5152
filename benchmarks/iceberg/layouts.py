"""Seconds to lay out a table, and what readers open.

    the table        the data of benchmarks/layout.py, in the order in which they are drawn, and 40 bytes for each row
    deltacompact     rewrite by a split tree, and in Spark's orders
    Spark            rewrite_data_files in an order: zorder, hilbert, or one column after the other
    DuckDB           COPY … ORDER BY of the same files to a folder, without a table or a commit
    floor            pyarrow reads and writes each file once, as it is

All are asked for files of one 64th of the bytes. One contender works at a time, in a process that has warmed up.
Readers open files by the bounds in manifests; without a table, by the values that are there. They read row groups by
the bounds in footers. CPU seconds are those of all processes.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.types import NestedField

from benchmarks.iceberg.contenders import Contender, Ours, Spark
from benchmarks.iceberg.writing import DATABASE, TABLE, catalog_at, file_bytes, made
from benchmarks.layout import Bounds, Column, opened_by, tables
from benchmarks.meter import Meter
from deltacompact.iceberg.table.locations import readable

FILES, COMMITS = 64, 8


def rows_of(columns: dict[str, Column]) -> pa.Table:
    """The columns, the number of each row, and what else a row has."""
    count = len(next(iter(columns.values())))
    dice = np.random.default_rng(1).integers(0, 1 << 62, (5, count))
    return pa.table({**columns, "row": np.arange(count)} | {f"v{number}": values for number, values in enumerate(dice)})


def filled(place: Path, rows: pa.Table) -> Path:
    def fill(catalog: SqlCatalog) -> None:
        table, step = catalog.load_table(TABLE), -(-rows.num_rows // COMMITS)
        for first in range(0, rows.num_rows, step):
            table.append(rows.slice(first, step))

    return made(place, rows.schema, {}, fill)


def paths_of(catalog: SqlCatalog) -> list[str]:
    """The data files of the table."""
    tasks = catalog.load_table(TABLE).scan().plan_files()
    return [readable(task.file.file_path).removeprefix("file://") for task in tasks]


def check_rows(paths: Sequence[str], rows: int) -> None:
    held = np.concatenate([pq.read_table(path, columns=["row"])["row"].to_numpy() for path in paths])
    assert np.array_equal(np.sort(held), np.arange(rows)), "rows are missing"


def bounds_of_values(paths: Sequence[str], names: Sequence[str]) -> list[Bounds]:
    files = [pq.read_table(path, columns=list(names)) for path in paths]
    found = [[pc.min_max(file[name]).as_py() for file in files] for name in names]
    return [(np.array([bounds["min"] for bounds in of]), np.array([bounds["max"] for bounds in of])) for of in found]


def bounds_in_manifests(catalog: SqlCatalog, names: Sequence[str]) -> list[Bounds]:
    """Where a bound is missing, a file may hold any value."""
    table = catalog.load_table(TABLE)
    files = [task.file for task in table.scan().plan_files()]
    fields = [table.schema().find_field(name) for name in names]
    return [
        (
            np.array([_bound(file.lower_bounds, field, least) for file in files]),
            np.array([_bound(file.upper_bounds, field, most) for file in files]),
        )
        for field in fields
        for least, most in [("", chr(0x10FFFF)) if str(field.field_type) == "string" else (-math.inf, math.inf)]
    ]


def _bound(bounds: Mapping[int, bytes], field: NestedField, unknown: Any) -> Any:
    return from_bytes(field.field_type, bounds[field.field_id]) if field.field_id in bounds else unknown


def bounds_of_groups(paths: Sequence[str], names: Sequence[str]) -> list[Bounds]:
    """The row groups of all files, as footers know them."""
    found: dict[str, list[tuple[Any, Any]]] = {name: [] for name in names}
    for path in paths:
        footer = pq.read_metadata(path)
        places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for name in names:
                known = group.column(places[name]).statistics
                found[name].append((known.min, known.max))
    return [(np.array([low for low, _ in ends]), np.array([high for _, high in ends])) for ends in found.values()]


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds on the clock, and of CPU in this process and its children."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.wall_s:7.2f} s {self.cpu_s:7.2f} CPU s"


def timed(work: Callable[[], object]) -> Took:
    meter = Meter(os.getpid(), Path())
    wall_s, cpu_s = time.perf_counter(), meter.cpu_seconds()
    work()
    return Took(time.perf_counter() - wall_s, meter.cpu_seconds() - cpu_s)


def read_and_write(paths: Sequence[str], folder: Path) -> None:
    for path in paths:
        pq.write_table(pq.read_table(path, use_threads=False), folder / "floor.parquet", compression="zstd")


def by_duckdb(paths: Sequence[str], names: Sequence[str], target: int, folder: Path) -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET preserve_insertion_order = true")
        source = f"SELECT * FROM read_parquet({list(paths)}) ORDER BY {', '.join(names)}"
        how = f"FORMAT parquet, COMPRESSION zstd, FILE_SIZE_BYTES {target}, ROW_GROUP_SIZE 8192"
        connection.execute(f"COPY ({source}) TO '{folder}' ({how})")


def contenders(names: Sequence[str]) -> Iterator[tuple[str, Callable[[], Contender], dict[str, str]]]:
    by = ",".join(names)
    yield "deltacompact, split tree", lambda: Ours("rewrite", "local"), {"cluster-by": by}
    for order in (f"zorder({by})", f"hilbert({by})", by):
        ordered = {"strategy": "sort", "sort-order": order}
        yield f"deltacompact, {order.split('(')[0]}", lambda: Ours("rewrite", "local"), ordered
        yield f"Spark, {order.split('(')[0]}", Spark, ordered


def measured(rows: int, folder: Path, which: Sequence[str] = (), who: str = "") -> Iterator[str]:
    """A line for each contender on each table."""
    for name, columns in tables(1, rows).items():
        if which and name not in which:
            continue
        names, place = list(columns), filled(folder / re.sub(r"\W+", "-", name), rows_of(columns))
        target = file_bytes(catalog_at(place / DATABASE, place).load_table(TABLE)) // FILES
        options = {"rewrite-all": True, "target-file-size-bytes": target}
        paths = paths_of(catalog_at(place / DATABASE, place))
        floor = min((timed(partial(read_and_write, paths, folder)) for _ in range(3)), key=attrgetter("cpu_s"))
        yield f"{name:22}{'floor':36}{floor}"
        for label, make, chosen in contenders(names):
            if not label.startswith(who):
                continue
            database = folder / "attempt.db"
            contender, took = make(), Took()
            for _ in range(2):  # the first warms up
                shutil.copy(place / DATABASE, database)
                catalog = catalog_at(database, place)
                contender.start(catalog)
                took = timed(lambda: contender.compact(TABLE, {**options, **chosen}))  # noqa: B023
                contender.stop()
            check_rows(written := paths_of(catalog), rows)
            bounds = bounds_in_manifests(catalog, names), bounds_of_groups(written, names)
            yield line(name, label, took, floor, columns, *bounds)
        for _ in range(2):
            shutil.rmtree(folder / "sorted", ignore_errors=True)
            took = timed(lambda: by_duckdb(paths, names, target, folder / "sorted"))  # noqa: B023
        found = [str(path) for path in sorted((folder / "sorted").rglob("*.parquet"))]
        check_rows(found, rows)
        bounds = bounds_of_values(found, names), bounds_of_groups(found, names)
        yield line(name, "DuckDB, ORDER BY", took, floor, columns, *bounds)


def line(
    table: str,
    label: str,
    took: Took,
    floor: Took,
    columns: dict[str, Column],
    bounds: Sequence[Bounds],
    groups: Sequence[Bounds],
) -> str:
    shares, conjunction = opened_by(columns, bounds, 1)
    each = "/".join(f"{share:.1f}" for share in shares)
    text = f"{table:22}{label:36}{took} ({took.cpu_s / floor.cpu_s:.2f} x)   {each:18}and {conjunction:6.2f}"
    of_groups, of_all = opened_by(columns, groups, 1)
    text += f"   mean {np.mean(shares):5.1f} of {len(bounds[0][0])} files"
    return f"{text}, {np.mean(of_groups):5.1f} and {of_all:6.2f} of {len(groups[0][0])} row groups"

"""python -m benchmarks changes: what a change feed costs beside a full scan, and beside Spark's changelog view.

    the table      100 files of about 60 bytes a row, version 3; each case is a branch of it
    together       0.1 % of all rows die by vectors, one after the other in each of ten files
    in 10 files    the same number, anywhere in ten files
    in one file    the same number, anywhere in one
    scattered      the same number, anywhere
    copied         ten files are written again, each with another value in one row: ten updates, and no more

Each feed is net, with a key, and is read to its end, as the scan of all rows is; all columns are asked for. Cases are
interleaved. Spark's view of `copied` must have the same rows. A warm process; seconds and CPU seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from rich.console import Console

import deltacompact
from benchmarks import data as synthetic
from benchmarks.console import made as folder_of
from benchmarks.console import teller
from benchmarks.grids import markdown_table, print_grid
from benchmarks.iceberg.writing import CATALOG, DATABASE, TABLE, Writer, catalog_at, made
from deltacompact.iceberg.table.locations import readable

if TYPE_CHECKING:
    from deltacompact.catalog.iceberg_table import IcebergCatalogTable

FILES, TOUCHED, ROWS, DEAD_SHARE = 100, 10, 10_000_000, 0.001
TOGETHER, IN_TEN, IN_ONE, SCATTERED, COPIED = CASES = (
    "together",
    "in 10 files",
    "in one file",
    "scattered",
    "copied",
)
SCAN, VIEW = "full scan", "Spark's changelog view of copied"
Seconds = tuple[float, float]
"""Seconds and CPU seconds of this process."""
Change = tuple[Any, ...]


def rows_of(number: int, count: int) -> pa.Table:
    """The rows of a file."""
    dice, first = np.random.default_rng(number), number * count
    moments = dice.integers(1_700_000_000_000_000, 1_800_000_000_000_000, count)
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "amount": dice.random(count),
            "at": pa.array(moments, pa.timestamp("us")),
            "kind": dice.integers(0, 1_000, count).astype(np.int32),
            "customer": synthetic.customers(dice, count),
        }
    )


def table_of(place: Path, rows: int) -> Path:
    """The table with its branches, as `made` keeps it."""
    count = rows // FILES

    def fill(catalog: SqlCatalog) -> None:
        _edited(catalog, lambda metadata: metadata | {"format-version": 3, "next-row-id": 0})  # PyIceberg makes none
        writer = Writer(catalog)
        writer.commit([writer.data(rows_of(number, count)) for number in range(FILES)])
        _edited(
            catalog,
            lambda metadata: (
                metadata | {"refs": {**metadata["refs"], **dict.fromkeys(map(_ref, CASES), metadata["refs"]["main"])}}
            ),
        )
        for case in (TOGETHER, IN_TEN, IN_ONE, SCATTERED):
            writer = Writer(catalog, branch=_ref(case))
            writer.commit(writer.vectors(_dead(case, [entry.file.path for entry in writer.entries], count)))
        writer = Writer(catalog, branch=_ref(COPIED))
        sources = writer.entries[:TOUCHED]
        writer.commit([writer.data(_changed(entry.file.path)) for entry in sources], sources)

    return made(place, rows_of(0, 1).schema, {}, fill)


def _ref(case: str) -> str:
    return case.replace(" ", "_")


def _edited(catalog: SqlCatalog, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    location = Path(unquote(urlparse(catalog.load_table(TABLE).metadata_location).path))
    location.write_text(json.dumps(change(json.loads(location.read_text()))))


def _dead(case: str, paths: list[str], count: int) -> dict[str, Any]:
    """The dead rows of files: as many in all, whatever the case."""
    dice, each = np.random.default_rng(7), round(count * FILES * DEAD_SHARE) // TOUCHED
    if case == TOGETHER:
        return {path: np.arange(each) + int(dice.integers(count - each)) for path in paths[:TOUCHED]}
    if case == IN_TEN:
        return {path: np.sort(dice.choice(count, each, replace=False)) for path in paths[:TOUCHED]}
    if case == IN_ONE:
        return {paths[0]: np.sort(dice.choice(count, each * TOUCHED, replace=False))}
    places = np.sort(dice.choice(count * FILES, each * TOUCHED, replace=False))
    found = {path: places[places // count == number] % count for number, path in enumerate(paths)}
    return {path: own for path, own in found.items() if len(own)}


def _changed(path: str) -> pa.Table:
    rows = pq.read_table(readable(path).removeprefix("file://"))
    kinds = rows["kind"].to_numpy().copy()
    kinds[len(kinds) // 2] = -1
    return rows.set_column(3, "kind", pa.array(kinds))


def timed(work: Callable[[], Iterable[pa.RecordBatch]]) -> tuple[Seconds, int]:
    """How long it takes to its end, and how many rows there are."""
    began, cpu = time.perf_counter(), time.process_time()
    rows = sum(batch.num_rows for batch in work())
    return (time.perf_counter() - began, time.process_time() - cpu), rows


def feed_of(table: IcebergCatalogTable, case: str) -> pa.RecordBatchReader:
    """What the case changed."""
    return table.changes("main", _ref(case), _ref(case), key=["id"], before=True)


def measured(place: Path, rows: int, repeats: int, tell: Callable[[str], None]) -> dict[str, Seconds]:
    """The median of each case and of the scan. Raises ValueError where a feed has other rows than were changed."""
    table = deltacompact.open_catalog(catalog_at(table_of(place, rows) / DATABASE, place)).table(TABLE)
    dead = round(rows * DEAD_SHARE) // TOUCHED * TOUCHED
    expected = {SCAN: rows // FILES * FILES, COPIED: 2 * TOUCHED}
    works: dict[str, Callable[[], Iterable[pa.RecordBatch]]] = {SCAN: table.scan}
    works |= {case: lambda case=case: feed_of(table, case) for case in CASES}  # type: ignore[misc]
    found: dict[str, list[Seconds]] = {name: [] for name in works}
    for number in range(repeats + 1):
        for name, work in works.items():
            seconds, count = timed(work)
            if count != expected.get(name, dead):
                raise ValueError(f"{name}: {count:,} rows, and not {expected.get(name, dead):,}")
            tell(f"{name}: {seconds[0]:.2f} s, {seconds[1]:.2f} CPU s" + ("" if number else ", to warm up"))
            if number:
                found[name].append(seconds)
    kinds = Counter(feed_of(table, COPIED).read_all()["_change_type"].to_pylist())
    if kinds != {"update_before": TOUCHED, "update_after": TOUCHED}:
        raise ValueError(f"{COPIED}: {dict(kinds)}")
    return {name: (median(pair[0] for pair in each), median(pair[1] for pair in each)) for name, each in found.items()}


def spark_view(place: Path) -> tuple[float, bool]:
    """Seconds of Spark's changelog view of `copied` in a warm session, and whether its rows are ours."""
    from benchmarks.iceberg.contenders import Spark

    catalog = catalog_at(place / DATABASE, place)
    table = deltacompact.open_catalog(catalog).table(TABLE)
    metadata = catalog.load_table(TABLE).metadata
    begin, end = (metadata.refs[name].snapshot_id for name in ("main", _ref(COPIED)))
    spark = Spark()
    spark.start(catalog)

    def view() -> Iterator[Change]:
        options = f"map('start-snapshot-id', '{begin}', 'end-snapshot-id', '{end}')"
        named = f"table => '{TABLE}', changelog_view => 'theirs', options => {options}"
        spark.sql(f"call {CATALOG}.system.create_changelog_view({named}, identifier_columns => array('id'))")
        for row in spark.sql("select id, amount, kind, customer, lower(_change_type) from theirs"):
            yield tuple(row)

    try:
        list(view())
        began = time.perf_counter()
        theirs = Counter(view())
        seconds = time.perf_counter() - began
    finally:
        spark.stop()
    names = ("id", "amount", "kind", "customer", "_change_type")
    ours = Counter(tuple(row[name] for name in names) for row in feed_of(table, COPIED).read_all().to_pylist())
    return seconds, theirs == ours


@click.command()
@click.option("--scale", type=click.FloatRange(min=0.0001), default=1.0, show_default=True, help="Of the rows.")
@click.option("--repeat", "repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--spark/--no-spark", default=True, show_default=True, help="Ask Spark's changelog view, too.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Where the table is made once and kept.")
def changes(scale: float, repeats: int, spark: bool, data: Path | None) -> None:
    """Change feeds beside a full scan and Spark's changelog view. Exit status 1 where Spark's rows are others."""
    rows = round(ROWS * scale)
    place = folder_of(data, "data") / f"changes-{rows}"
    found = measured(place, rows, repeats, teller())
    scan = found[SCAN]
    lines = [
        [name, f"{s:.2f}", f"{cpu:.2f}", f"{s / scan[0]:.3f}", f"{cpu / scan[1]:.3f}"]
        for name, (s, cpu) in found.items()
    ]
    same = True
    if spark:
        seconds, same = spark_view(place)
        lines.append([VIEW, f"{seconds:.2f}", "", f"{seconds / scan[0]:.3f}", ""])
    grid = ["", "s", "CPU s", "x scan", "CPU x scan"], lines
    print_grid(
        Console(width=None if sys.stdout.isatty() else 120), f"Changes, {rows:,} rows, {os.cpu_count()} cores", grid
    )
    print(markdown_table(*grid))
    if not same:
        raise SystemExit("Spark's view has other rows")

"""Others delete rows while a group is being rewritten: what that costs its commit.

translate    1 M deletes of 10,000 files     their places in the outputs: pure, rows in order, and sorted
many         the same of a table             marked and committed, with all files of the group
commits      50 of others before ours        one attempt, and no data file written twice
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from benchmarks.iceberg.writing import TABLE, Writer, catalog_at
from deltacompact.base.events import Event, GroupsCommitted
from deltacompact.base.settings import Settings
from deltacompact.executors.local import LocalExecutor
from deltacompact.iceberg.commit.committer import Committer
from deltacompact.iceberg.commit.proposal import DELETE, Proposal, addition
from deltacompact.iceberg.deletes.matching import DeleteIndex
from deltacompact.iceberg.marks.marking import FileToMark, Marker
from deltacompact.iceberg.marks.standing import MarkedHead
from deltacompact.iceberg.row_map import ReadNumbers, RowMap, RowShare
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.driver import ModeRun
from deltacompact.iceberg_modes.modes import REWRITE
from deltacompact.iceberg_modes.rewrite.options import rewrite_options

SETTINGS = Settings(executor="local")
PLAIN: Mapping[str, Any] = {"rewrite-all": True, "delete-ratio-threshold": 1}
SORTED = {**PLAIN, "strategy": "sort", "sort-order": "id DESC"}
OUTPUTS = 8
"""Of a map that is translated alone."""


@dataclass(frozen=True, slots=True)
class Files:
    """Data files of as many rows each. `deletes` are spread over all of them."""

    count: int
    rows: int
    deletes: int

    def dead(self) -> npt.NDArray[np.int64]:
        """The positions that die in each file."""
        return np.linspace(0, self.rows - 1, max(1, self.deletes // self.count)).astype(np.int64)


@dataclass(slots=True)
class Clock:
    """Seconds since it began, by the clock and of this process's CPU: what counts on a busy machine."""

    began: tuple[float, float] = (0.0, 0.0)
    took: str = ""

    def begin(self) -> None:
        self.began = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        seconds, cpu_s = time.perf_counter() - self.began[0], time.process_time() - self.began[1]
        self.took = f"{seconds:.2f} s, {cpu_s:.2f} s of CPU"


def translated(files: Files, is_sorted: bool) -> tuple[int, str]:
    """How many places were found in the outputs of a map, and how long it took. A sorted one reads numbers."""
    rows = files.count * files.rows
    live = [np.packbits(np.ones(files.rows, bool), bitorder="little")] * files.count
    sizes = [len(part) for part in np.array_split(np.arange(rows), OUTPUTS)]
    numbers: list[ReadNumbers] = []
    if is_sorted:
        order = np.random.default_rng(1).permutation(rows).astype(np.uint32)
        numbers = [lambda part=part: [part] for part in np.array_split(order, OUTPUTS)]  # type: ignore[misc]
    moved = RowMap(live, [RowShare(sizes, numbers)])
    clock = Clock()
    clock.begin()
    found = sum(len(places) for _, places in moved.translate([files.dead()] * files.count))
    clock.stop()
    return found, clock.took


def table_of(folder: Path, files: Files, version: int) -> SqlCatalog:
    """A new table."""
    catalog = catalog_at(folder / "catalog.db", folder)
    catalog.create_namespace("ns")
    properties = {"format-version": "2", "write.delete.granularity": "partition"}
    table = catalog.create_table(TABLE, Schema(NestedField(1, "id", LongType(), required=True)), properties=properties)
    if version == 3:  # PyIceberg cannot
        path = Path(table.metadata_location.removeprefix("file://"))
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 0}))
    writer = Writer(catalog)
    starts = range(0, files.count * files.rows, files.rows)
    writer.commit(writer.data(pa.table({"id": np.arange(start, start + files.rows)})) for start in starts)
    return catalog


def delete(catalog: SqlCatalog, dead: Sequence[npt.NDArray[np.int64]]) -> None:
    """Another writer deletes rows of the first data files, in one commit, as the table's version wants it."""
    table = IcebergTable.load(catalog, TABLE)
    reader = StateReader(table.store)

    def propose(state: TableState) -> Proposal[None]:
        index = DeleteIndex(state)
        named = zip(sorted(state.data, key=lambda entry: entry.file.path), dead, strict=False)
        executor = LocalExecutor(SETTINGS)
        try:
            marker = Marker(Tasks(table.store, executor), state.metadata, SETTINGS, "others-")
            marks = marker.marks([FileToMark(index.task(entry), rows) for entry, rows in named])
        finally:
            executor.stop()
        gone = tuple(MarkedHead(state).superseded(marks))
        return Proposal(DELETE, gone, tuple(addition(mark.file) for mark in marks), None)

    Committer(table.store, reader, "main", "others").commit(table, propose)


def followed(catalog: SqlCatalog, options: Mapping[str, Any], others: Iterator[Sequence[npt.NDArray[np.int64]]]) -> str:
    """How long a rewrite takes to commit after others deleted. Raises RuntimeError where it wrote something twice."""
    clock, attempts = Clock(), list[int]()

    def emit(event: Event) -> None:
        if isinstance(event, GroupsCommitted):
            attempts.append(event.attempts)
            clock.stop()

    def meanwhile() -> None:
        for dead in others:
            delete(catalog, dead)
        clock.begin()

    table = IcebergTable.load(catalog, TABLE)
    chosen = rewrite_options(dict(options), table.metadata.properties)
    result = ModeRun(table, "main", chosen, SETTINGS, before_commit=meanwhile, emit=emit, mode=REWRITE).run()
    after = IcebergTable.load(catalog, TABLE)
    live = {Path(entry.file.path).name for entry in StateReader(after.store).read(after.metadata, "main").data}
    folder = Path(after.metadata.data_folder.removeprefix("file://"))
    written = {path.name for path in folder.glob("*-deltacompact.parquet")}
    if attempts != [1] or result.redone or written != live:
        raise RuntimeError(f"attempts {attempts}, done again {result.redone}, files {len(written)}: {len(live)}")
    return clock.took


def lines_of(many: Files, few: Files, commits: int) -> Iterator[str]:
    """What was measured, a line for each case."""
    for order, is_sorted in (("in order", False), ("sorted", True)):
        found, took = translated(many, is_sorted)
        yield f"translate {found:,} deletes of {many.count:,} files, {order}: {took}"
    for version, name, options in ((2, "plain", PLAIN), (2, "sort", SORTED), (3, "plain", PLAIN), (3, "sort", SORTED)):
        shapes = {
            f"{many.deletes:,} deletes of {many.count:,} files": (many, [[many.dead()] * many.count]),
            f"{commits} commits": (few, [[np.array([number])] * few.count for number in range(commits)]),
        }
        for words, (files, others) in shapes.items():
            with tempfile.TemporaryDirectory(prefix="following-") as folder:
                took = followed(table_of(Path(folder), files, version), options, iter(others))
            yield f"{words}, version {version}, {name}: {took}, one attempt, no data file twice"

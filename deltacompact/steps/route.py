"""Task: live rows of source files, sent to the cells of a split tree, into runs.

    file 7    day 1 · day 9 · day 2      run 0    part 0: 7 0, 7 2, 8 0    part 1: 7 1      cells of the rows: 0 3 1 2
    file 8    day 3 · day 8              run 1    part 0: -                part 1: 8 1                         4

Rows are written twice: sorted by cell into runs as large as memory allows, then by those who write a file. The cells in
the order of the rows say later where each row went (move.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.fingerprint import Fingerprint
from deltacompact.layout.split_tree import SplitTree
from deltacompact.steps.live_ranges import LiveRanges, loads
from deltacompact.steps.routed_runs import CellRun, write_run
from deltacompact.steps.shuffle import StoredGroups, stored
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.fingerprint import fingerprint_of

CELLS = ("uint32",)


@dataclass(frozen=True, slots=True)
class RouteTerms:
    """What all route tasks have in common. `starts`: the first cell of each part, and the end of the last."""

    tree: SplitTree
    starts: tuple[int, ...]
    run_bytes: int
    certify: bool


@dataclass(frozen=True, slots=True)
class RoutedRows:
    """Runs of rows whose ranks follow each other; of each, how many rows each cell has; and the file of all cells."""

    runs: tuple[CellRun, ...]
    counts: tuple[npt.NDArray[np.int64], ...]
    cells: StoredGroups
    fingerprint: Fingerprint | None


def route(store: ObjectStore, task: RouteTerms, live: LiveRanges, path_of: Callable[[], str]) -> RoutedRows:
    """Write the runs, in the order of the rows that they have."""
    runs, counts, of_rows = list[CellRun](), list[npt.NDArray[np.int64]](), list[npt.NDArray[np.uint32]]()
    certified = Fingerprint()
    for rows in loads(store, live, task.run_bytes):
        cells = task.tree.cells_of(rows)
        counts.append(np.bincount(cells, minlength=task.tree.cells))
        runs.append(write_run(store, path_of(), rows, cells, counts[-1], task.starts, "zstd"))
        of_rows.append(cells.astype(np.uint32))
        certified += _fingerprint(rows, task, live)
    of_runs = stored(store, path_of(), ((cells,) for cells in of_rows), CELLS)
    return RoutedRows(tuple(runs), tuple(counts), of_runs, certified if task.certify else None)


def _fingerprint(rows: pa.Table, task: RouteTerms, live: LiveRanges) -> Fingerprint:
    return fingerprint_of([rows], live.columns, live.ranges[0].file.path) if task.certify else Fingerprint()

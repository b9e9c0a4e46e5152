"""Task: sends live rows of source files to the cells of a split tree.

    file 7    day 1 · day 9 · day 2      run 0    part 0: 7 0, 7 2, 8 0    part 1: 7 1      cells of the rows: 0 3 1 2
    file 8    day 3 · day 8              run 1    part 0: -                part 1: 8 1                         4

If memory allows, blocks stay there until the tasks that write files ask for them. Otherwise rows are written twice:
into runs, sorted by cell and as large as memory allows, and then into files. Either way, the rows of a cell keep their
order. The stored cell of each row says later where the row went (move.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.fingerprint import Fingerprint
from deltacompact.layout.order import Numbers
from deltacompact.layout.split_tree import SplitTree
from deltacompact.steps.cell_blocks import HeldParts, HeldRows
from deltacompact.steps.live_ranges import LiveRanges, loads
from deltacompact.steps.routed_runs import CellRun, write_run
from deltacompact.steps.shuffle import StoredGroups, stored
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.fingerprint import fingerprint_of

CELLS = ("uint32",)
Cells = npt.NDArray[np.integer]
"""The cell number of each row."""


@dataclass(frozen=True, slots=True)
class RouteTerms:
    """The terms that all route tasks share.

    starts        the first cell of each part, and the end of the last
    load_bytes    bytes of rows that are sorted at a time
    leaves        the number of parts of each leaf
    """

    tree: SplitTree
    starts: tuple[int, ...]
    load_bytes: int
    certify: bool
    leaves: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RoutedRows:
    """The routed rows of one task, whose ranks are consecutive.

    `counts` has each load's number of rows in each cell; `cells` names the file with each row's cell. `runs` is empty
    if the blocks stay in memory.
    """

    runs: tuple[CellRun, ...]
    counts: tuple[npt.NDArray[np.int64], ...]
    cells: StoredGroups
    fingerprint: Fingerprint | None


def route(store: ObjectStore, task: RouteTerms, live: LiveRanges, path_of: Callable[[], str]) -> RoutedRows:
    """Route the rows into runs, one for each load."""
    runs = list[CellRun]()

    def written(rows: pa.Table, cells: Cells, counts: Numbers) -> None:
        runs.append(write_run(store, path_of(), rows, cells, counts, task.starts, "lz4"))

    routed = _routed(store, task, live, path_of, written)
    return replace(routed, runs=tuple(runs))


def route_held(
    store: ObjectStore, task: RouteTerms, live: LiveRanges, path_of: Callable[[], str]
) -> Iterator[HeldParts | RoutedRows]:
    """Route the rows into blocks in memory: yields the parts of each leaf, then the RoutedRows."""
    held = HeldRows(task.starts)
    routed = _routed(store, task, live, path_of, held.add)
    yield from held.of_leaves(task.leaves)
    yield routed


def _routed(
    store: ObjectStore,
    task: RouteTerms,
    live: LiveRanges,
    path_of: Callable[[], str],
    take: Callable[[pa.Table, Cells, Numbers], None],
) -> RoutedRows:
    """Find the cells of the rows, load by load. `take` gets a load, the cells of its rows, and the cells' counts."""
    counts, of_rows, certified = list[Numbers](), list[npt.NDArray[np.uint32]](), Fingerprint()
    for rows in loads(store, live, task.load_bytes):
        cells = task.tree.cells_of(rows)
        counts.append(np.bincount(cells, minlength=task.tree.cells))
        take(rows, cells, counts[-1])
        of_rows.append(cells.astype(np.uint32))
        certified += _fingerprint(rows, task, live)
    of_loads = stored(store, path_of(), ((cells,) for cells in of_rows), CELLS)
    return RoutedRows((), tuple(counts), of_loads, certified if task.certify else None)


def _fingerprint(rows: pa.Table, task: RouteTerms, live: LiveRanges) -> Fingerprint:
    return fingerprint_of([rows], live.columns, live.ranges[0].file.path) if task.certify else Fingerprint()

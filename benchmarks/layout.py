"""The share of files that readers open, by least and greatest values alone: split trees beside ranked curves.

    data         200,000 rows of two or three columns      uniform, skewed, correlated
    layouts      a split tree of a sample of 20,000 rows; Hilbert's curve and Z-order on ranks, cut evenly
    asked        the values of 2,000 rows: one column, or all of them

All layouts have the same number of files. `row_groups` writes such rows as one file, and reads its footer. `routing` is
the CPU time to send ten million rows down a tree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.curves import hilbert, zorder
from deltacompact.layout.growing import grow
from deltacompact.layout.split_tree import SplitTree
from deltacompact.steps.cell_blocks import by_cell, write_cells
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import writing
from deltacompact.tabular.row_groups import WriteOptions, cells_of

ROWS, SAMPLE, FILES, BITS, ASKED = 200_000, 20_000, 117, 10, 2_000
GROUP_ROWS = 8_192
LINK, USER = "https://www.example.com/shop/", "user-"
Column = npt.NDArray[np.float64] | npt.NDArray[np.str_]
Bounds = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Of a column, the least and the greatest value of each file."""


def tables(seed: int, rows: int = ROWS) -> dict[str, dict[str, Column]]:
    """The data, by name."""
    draw = np.random.default_rng(seed)
    date = draw.integers(0, 2_526, rows).astype(float)
    ship = date + draw.integers(1, 122, rows)
    return {
        "uniform x 3": {name: draw.random(rows) for name in "abc"},
        "uniform x 2": {name: draw.random(rows) for name in "ab"},
        "time, Zipf, amount": {
            "time": np.sort(draw.random(rows)),
            "zipf": draw.zipf(1.3, rows).clip(max=1e6).astype(float),
            "amount": draw.exponential(100, rows).round(2),
        },
        "string prefixes": {
            "link": np.char.add(LINK, np.char.zfill(draw.integers(0, 10**8, rows).astype(str), 8)),
            "user": np.char.add(USER, np.char.zfill(draw.zipf(1.3, rows).clip(max=10**6).astype(str), 7)),
            "amount": draw.exponential(100, rows).round(2),
        },
        "lineitem's dates": {
            "ship": ship,
            "commit": date + draw.integers(30, 91, rows),
            "receipt": ship + draw.integers(1, 31, rows),
        },
        "date, part, quantity": {
            "ship": ship,
            "part": draw.integers(1, 200_000, rows).astype(float),
            "quantity": draw.integers(1, 51, rows).astype(float),
        },
    }


def tree_of(
    columns: Mapping[str, Column], weights: Mapping[str, float], seed: int, files: int = FILES, cells: int = 1
) -> SplitTree:
    rows = pa.table(dict(columns))
    sample = rows.take(np.random.default_rng(seed).choice(rows.num_rows, SAMPLE, replace=False))
    by = [ClusterColumn(name, weights.get(name, 1.0)) for name in columns]
    return grow(sample, by, np.ones(SAMPLE), files, cells)


def along(curve: Callable[..., npt.NDArray[np.uint64]], columns: Mapping[str, Column]) -> npt.NDArray[np.int64]:
    """Of each row, its file, if a curve through ranks is cut evenly."""
    ranks = [np.searchsorted(np.sort(values), values) * (1 << BITS) // len(values) for values in columns.values()]
    keys = curve(np.array(ranks, np.uint64), BITS)
    files = np.empty(len(keys), np.int64)
    files[np.argsort(keys, kind="stable")] = np.arange(len(keys)) * FILES // len(keys)
    return files


def row_groups(columns: Mapping[str, Column], seed: int, with_cells: bool) -> npt.NDArray[np.int64]:
    """Of each row, its row group in a file of the tree's cells: it ends with cells, or is full."""
    rows = pa.table({**columns, "row": np.arange(len(next(iter(columns.values()))))})
    cells = cells_of(rows.num_rows, rows.nbytes / rows.num_rows, GROUP_ROWS)
    of_rows = tree_of(columns, {}, seed, 1, cells).cells_of(rows)
    counts = np.bincount(of_rows, minlength=cells)
    pieces = by_cell(rows, np.argsort(of_rows, kind="stable"), counts, GROUP_ROWS)
    store = MemoryStore()
    with writing.writer(store, "a.parquet", rows.schema, WriteOptions(row_group_rows=GROUP_ROWS)) as out:
        write_cells(out, (piece for piece in pieces if with_cells or piece is not None), lambda piece: piece)
    file = pq.ParquetFile(pa.BufferReader(store.get("a.parquet")))
    groups = np.empty(rows.num_rows, np.int64)
    for number in range(file.num_row_groups):
        groups[file.read_row_group(number, ["row"])["row"].to_numpy()] = number
    return groups


def opened(columns: Mapping[str, Column], files: npt.NDArray[np.integer], seed: int) -> tuple[list[float], float]:
    """The share of files that hold a row's value, by column, and all of its values, in percent."""
    order = np.argsort(files, kind="stable")
    starts = np.unique(files[order], return_index=True)[1]
    ranks = {name: np.unique(values, return_inverse=True)[1] for name, values in columns.items()}
    ends = np.minimum, np.maximum
    return opened_by(ranks, [tuple(end.reduceat(of[order], starts) for end in ends) for of in ranks.values()], seed)


def opened_by(columns: Mapping[str, Column], bounds: Sequence[Bounds], seed: int) -> tuple[list[float], float]:
    """The same by bounds of each column."""
    asked = np.random.default_rng(seed).integers(0, len(next(iter(columns.values()))), ASKED)
    holds = [
        (low[None, :] <= values[asked, None]) & (values[asked, None] <= high[None, :])
        for values, (low, high) in zip(columns.values(), bounds, strict=True)
    ]
    return [100 * float(is_opened.mean()) for is_opened in holds], 100 * float(np.logical_and.reduce(holds).mean())


def measured(seed: int = 1) -> Iterator[str]:
    """A line for each layout of each table."""
    for name, columns in tables(seed).items():
        trees = {"split tree": {}, "split tree, first x 3": {next(iter(columns)): 3.0}}
        layouts = {"Hilbert on ranks": along(hilbert, columns), "Z-order on ranks": along(zorder, columns)}
        layouts |= {
            text: tree_of(columns, weights, seed).cells_of(pa.table(columns)) for text, weights in trees.items()
        }
        for text, files in layouts.items():
            shares, conjunction = opened(columns, files, seed)
            sizes = np.bincount(files) * FILES / len(files)
            each = "/".join(f"{share:.1f}" for share in shares)
            line = f"{name:22}{text:24}{each:18}and {conjunction:5.2f}   mean {np.mean(shares):5.1f}"
            yield f"{line}   {len(sizes)} files of {sizes.min():.2f} to {sizes.max():.2f}"
        for text, with_cells in (("row groups, full", False), ("row groups, by cells", True)):
            groups = row_groups(columns, seed, with_cells)
            shares, conjunction = opened(columns, groups, seed)
            each = "/".join(f"{share:.1f}" for share in shares)
            line = f"{name:22}{text:24}{each:18}and {conjunction:5.2f}   mean {np.mean(shares):5.1f}"
            yield f"{line}   {groups.max() + 1} row groups"
    yield f"routing of 10 M rows: {routing(seed):.2f} CPU seconds"


def routing(seed: int) -> float:
    """CPU seconds to send ten million rows of three numbers down a tree."""
    columns = tables(seed)["uniform x 3"]
    tree, rows = tree_of(columns, {}, seed), pa.table(columns)
    before = time.process_time()
    for _ in range(50):
        tree.cells_of(rows)
    return time.process_time() - before

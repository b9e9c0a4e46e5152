"""100 appends of 1 % to a clustered table: what is written for them, and how near the layout stays to a new one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from deltacompact.layout.boxes import ColumnBounds, boxes_of
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.depth import depth_of
from deltacompact.layout.extents import STAYS, extents_of, weighed
from deltacompact.layout.growing import grow
from deltacompact.layout.overlap import to_lay_out

NAMES = ("a", "b", "c")
ROWS, FILES = 200, 100


def divided(rows, extents=None):
    """Files of rows, by a tree over them."""
    table = pa.table({name: rows[:, place] for place, name in enumerate(NAMES)})
    by = weighed([ClusterColumn(name) for name in NAMES], extents or {})
    tree = grow(table, by, np.ones(len(rows)), max(1, round(len(rows) / ROWS)))
    ends = np.cumsum([leaf.cells for leaf in tree.leaves])
    of_leaf = np.searchsorted(ends, tree.cells_of(table), side="right")
    parts = [np.array_split(rows[of_leaf == number], leaf.files) for number, leaf in enumerate(tree.leaves)]
    return [part for of_one in parts for part in of_one if len(part)]


def boxes(files):
    none = np.zeros(len(files), bool)
    bounds = [
        ColumnBounds(
            pa.array([file[:, n].min() for file in files]), pa.array([file[:, n].max() for file in files]), none, none
        )
        for n in range(len(NAMES))
    ]
    return boxes_of(NAMES, bounds, np.zeros(len(files), np.int64), [len(file) for file in files])


def shares(files, asked):
    """The mean share of files that are opened for a range of one column, whose beginning is one of these rows."""
    together = boxes([*files, *(row[None, :] for row in asked)])
    of_files, of_rows = together.take(np.arange(len(files))), together.take(np.arange(len(files), together.files))
    return np.mean([depth_of(of_files.of(n), rows=of_rows.of(n)).range_share for n in range(len(NAMES))])


@pytest.mark.slow
@pytest.mark.parametrize(("in_order", "mean", "worst"), [(False, 1.4, 1.6), (True, 1.05, 1.1)])
def test_little_is_written_and_the_layout_stays_near_the_best(in_order, mean, worst):
    rng = np.random.default_rng(3)

    def came(at):
        rows = rng.random((ROWS, len(NAMES)))
        rows[:, 0] = at + rows[:, 0] / FILES if in_order else rows[:, 0]
        return rows

    base = divided(np.concatenate([came(number / FILES) for number in range(FILES)]))
    files = [(file, 0, True) for file in base]
    appended = written = 0
    ratios = []
    for step in range(1, FILES + 1):
        files.append((came(1 + step / FILES), 2 * step, False))
        appended += ROWS
        sizes, ages, laid_out = (
            np.array(column) for column in zip(*((len(f), age, laid) for f, age, laid in files), strict=True)
        )
        there = boxes([file for file, _, _ in files])
        chosen = to_lay_out(there, sizes, ages, laid_out).chosen
        if chosen.any():
            (extents,) = extents_of(there, np.where(chosen, 0, STAYS), 1)
            rows = np.concatenate([file for (file, _, _), is_chosen in zip(files, chosen, strict=True) if is_chosen])
            again = divided(rows, extents)
            written += sum(map(len, again))
            files = [file for file, is_chosen in zip(files, chosen, strict=True) if not is_chosen]
            files += [(file, 2 * step + 1, True) for file in again]
        if step % 10 == 0:
            rows = np.concatenate([file for file, _, _ in files])
            asked = rows[rng.choice(len(rows), 300)]
            ratios.append(shares([file for file, _, _ in files], asked) / shares(divided(rows), asked))
        if in_order:
            assert sum(age == 0 for _, age, _ in files) == len(base)  # what was there is never touched
    assert written / appended <= 3.5
    assert np.mean(ratios) <= mean
    assert max(ratios) <= worst

"""Split trees open fewer files than curves through ranks: the bars of their benchmark, on a tenth of its rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import appends, layout
from benchmarks.iceberg import layouts
from deltacompact.layout.curves import hilbert


@pytest.mark.parametrize(
    ("table", "columns_max", "conjunction_max"),
    [("uniform x 3", 0.88, 0.7), ("time, Zipf, amount", 0.9, 0.75), ("lineitem's dates", 0.8, 0.7)],
)
def test_split_trees_open_fewer_files_than_curves(table, columns_max, conjunction_max):
    columns = layout.tables(1, 40_000)[table]
    of_curve, both_of_curve = layout.opened(columns, layout.along(hilbert, columns), 1)
    tree = layout.tree_of(columns, {}, 1)
    of_tree, both_of_tree = layout.opened(columns, tree.cells_of(pa.table(columns)), 1)
    assert tree.cells == layout.FILES
    assert np.mean(of_tree) <= columns_max * np.mean(of_curve)
    assert both_of_tree <= conjunction_max * both_of_curve


def test_row_groups_that_end_with_cells_are_opened_less():
    columns = layout.tables(1, 40_000)["uniform x 3"]
    full, by_cells = (layout.opened(columns, layout.row_groups(columns, 1, ends), 1) for ends in (False, True))
    assert np.mean(by_cells[0]) <= 0.8 * np.mean(full[0]) and by_cells[1] <= 0.5 * full[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", appends.LAKES)
def test_appends_are_measured_beside_the_same_rows_compacted_at_once(tmp_path, kind):
    written, (ratio,) = appends.measured(appends.LAKES[kind], appends.in_order, 2_000, tmp_path, appends.EVERY)
    assert 1.0 < written < 4.0 and 0.9 < ratio < 1.3


@pytest.mark.slow
def test_tables_are_laid_out_by_us_and_by_duckdb(tmp_path):
    """Spark takes part in the same way, and starts for longer than a test may take."""
    floor, ours, others = layouts.measured(20_000, tmp_path, ["uniform x 2"], "deltacompact, split tree")
    assert floor.split()[3] == "floor" and floor.endswith(" CPU s")
    assert "deltacompact, split tree" in ours and " of 64 files" in ours
    assert "DuckDB, ORDER BY" in others and " files" in others

"""The benchmark of rewrites that follow others' deletes runs, and raises where a group was written again."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.iceberg import following
from benchmarks.iceberg.following import Files, followed, lines_of, table_of


@pytest.mark.slow
def test_each_case_lands_at_its_first_attempt():
    lines = list(lines_of(Files(3, 10, 6), Files(2, 10, 0), 2))
    assert [line.partition(":")[0] for line in lines[:2]] == [
        "translate 6 deletes of 3 files, in order",
        "translate 6 deletes of 3 files, sorted",
    ]
    assert len(lines) == 10 and all(line.endswith("one attempt, no data file twice") for line in lines[2:])


def test_a_group_that_is_written_again_is_no_figure(tmp_path, monkeypatch):
    monkeypatch.setattr("deltacompact.iceberg_modes.rewrite.following.POSITIONS_MAX", 0)
    catalog = table_of(tmp_path, Files(1, 10, 0), 2)
    with pytest.raises(RuntimeError, match="done again 1"):
        followed(catalog, following.PLAIN, iter([[np.array([3])]]))

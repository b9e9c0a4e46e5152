"""A plan's memory is never less than what a process takes, and not far more where there are many rows.

Each session runs in a fresh process: what others have left behind would count.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import deltacompact

pytestmark = pytest.mark.processes

CHILD = Path(__file__).with_name("measured_memory.py")
BYTES_MAX = 40 << 20
"""Of a delta: large enough for row groups of every kind."""


@dataclass(frozen=True)
class Shape:
    """A table: rows of each delta, bytes of a text in them, how many texts differ, who wrote the files, by which
    columns the compaction lays rows out, and whether most rows live and have bytes that cannot be compressed."""

    rows: int
    width: int
    texts: int
    deltas: int
    written_as: str
    cluster_by: str = ""
    is_noise: bool = False

    def table(self, seed: int) -> pa.Table:
        rng = np.random.default_rng(seed)
        texts: list[str | bytes] = [rng.bytes(self.width // 2).hex() for _ in range(min(self.texts, self.rows))]
        if self.is_noise:
            ids, texts = rng.integers(0, 16 * self.rows, self.rows), [rng.bytes(self.width) for _ in texts]
            return pa.table({"id": ids, "text": pa.array(texts)})
        chosen = pa.array(rng.integers(0, len(texts), self.rows))
        return pa.table({"id": rng.integers(0, 2 * self.rows, self.rows), "text": pa.array(texts).take(chosen)})


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    width = draw(st.sampled_from([2, 40, 1_000, 100_000, 4_000_000]))
    rows = draw(st.integers(1, min(300_000, BYTES_MAX // width)))
    texts = draw(st.sampled_from([1, 50]))
    written_as = st.sampled_from(["ours", "one group", "in place", "csv"])
    cluster_by = st.sampled_from(["", "text", "text,id"])
    return Shape(rows, width, texts, draw(st.integers(1, 3)), draw(written_as), draw(cluster_by))


def measured(shape: Shape, threads: int = 1) -> tuple[int, int]:
    """Bytes that were planned, and bytes that were taken."""
    with TemporaryDirectory() as folder:
        catalog = deltacompact.open_catalog(f"{folder}/lake")
        catalog.create_table("t", primary_keys=["id"], cluster_by=shape.cluster_by or None)
        for number in range(shape.deltas):
            table, path = shape.table(number), f"{folder}/{number}"
            if shape.written_as == "ours":
                catalog.append("t", table)
            elif shape.written_as == "csv":
                pa.csv.write_csv(table, f"{path}.csv")
                catalog.append_files("t", [f"{path}.csv"])
            else:
                pq.write_table(table, f"{path}.parquet", row_group_size=shape.rows, data_page_size=BYTES_MAX)
                catalog.append_files("t", [f"{path}.parquet"], reference=shape.written_as == "in place")
        child = subprocess.run(
            [sys.executable, str(CHILD), f"{folder}/lake", str(threads)], capture_output=True, text=True, check=True
        )
    planned, taken = json.loads(child.stdout)
    return planned, taken


@settings(max_examples=4)
@given(shapes())
def test_no_process_takes_more_than_was_planned(shape: Shape) -> None:
    planned, taken = measured(shape)
    assert taken <= planned


def test_the_plan_has_what_the_heaps_of_a_users_process_keep() -> None:
    """Rows of 100 KB: Arrow, NumPy and the kernels kept half as much again as the tasks held."""
    planned, taken = measured(Shape(500, 100_000, 500, 8, "ours", is_noise=True), threads=2)
    assert taken <= planned


@pytest.mark.parametrize("cluster_by", ["", "text"])
def test_more_than_a_million_rows_take_a_fair_share_of_what_was_planned(cluster_by: str) -> None:
    planned, taken = measured(Shape(2_500_000, 2, 50, 1, "ours", cluster_by))
    assert 0.5 * planned <= taken <= planned, "0.52 to 0.67 on the machines that were tried"

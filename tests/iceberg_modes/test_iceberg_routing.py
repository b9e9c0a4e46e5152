"""The tasks that cluster, on a store behind a network: what they fetch, and what damage they notice."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from remote_store import RemoteStore

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import Limits, ReadLimits
from deltacompact.base.model import ContentType
from deltacompact.base.numbers import UNNUMBERED, Ordinal
from deltacompact.iceberg_modes.rewrite.arranging import ArrangeTask, LeafPart, Routed, Unrouted, arrange
from deltacompact.iceberg_modes.rewrite.live_slices import LiveSlices, Slice
from deltacompact.iceberg_modes.rewrite.planting import PlantTask, look, plant
from deltacompact.iceberg_modes.rewrite.routing import RouteTask, route
from deltacompact.iceberg_modes.rewrite.row_order import ClusterBy
from deltacompact.index.live_bitmaps import write_masks
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular.row_groups import WriteOptions

ROWS = 40_000
BY = ClusterBy((ClusterColumn("a"), ClusterColumn("b")))
READING = ReadLimits(batch_rows_max=2_000, whole_bytes=1, gap_bytes=1, tail_bytes=1 << 15)
SCHEMA = pa.schema(
    [
        pa.field(name, type_, metadata={"PARQUET:field_id": str(number)})
        for number, (name, type_) in enumerate((("a", pa.int64()), ("b", pa.int64()), ("payload", pa.string())))
    ]
)


@pytest.fixture
def stored():
    """A file of 40 row groups in the order of `a`, every third row of which is dead."""
    store = RemoteStore(MemoryStore())
    draw = np.random.default_rng(1)
    numbers = draw.permutation(ROWS)
    rows = pa.table([np.arange(ROWS), numbers, [draw.bytes(50).hex() for _ in numbers]], schema=SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=1_000)
    store.put("a.parquet", sink.getvalue().to_pybytes())
    file = DataFile(UNNUMBERED, "a.parquet", ContentType.PARQUET, ROWS, sink.getvalue().size, rows.schema)
    lives = np.arange(ROWS) % 3 > 0
    write_masks(store, "live.arrow", {Ordinal(0): np.packbits(lives, bitorder="little")})
    return (
        store,
        rows.filter(lives),
        LiveSlices((Slice(file, Ordinal(0), (0, ROWS)),), ("live.arrow",), rows.schema, READING),
    )


def planted(store, live, files=4, path="tree-0.json", tasks=1):
    columns = pa.schema([live.columns.field("a"), live.columns.field("b")])
    live = dataclasses.replace(live, columns=columns)
    task = PlantTask(live, path, "8e", BY, files, ROWS // files // 5 * 4, 1 << 20)
    return plant(store, task, *(look(store, looking) for looking in task.sampling(tasks)))


@pytest.mark.parametrize("tasks", [1, 3, 1_000])
def test_a_sample_is_read_from_its_columns_and_row_groups_alone(stored, tasks):
    store, rows, live = stored
    store.ranges.clear()
    found = planted(store, live, tasks=tasks)
    fetched = sum(length for path, _, length in store.ranges if path == "a.parquet")
    assert fetched < 0.25 * live.slices[0].file.bytes
    counts = np.bincount(found.layout.cells_of(rows), minlength=found.layout.cells)
    assert len(counts) == 8 and counts.max() < 1.25 * counts.min()
    assert found.row_bytes > 100


def test_a_tree_is_put_if_absent_and_the_first_one_counts(stored):
    store, _, live = stored
    first = planted(store, live).layout
    assert planted(store, live, 7).layout.leaves == first.leaves
    assert planted(store, live, 7, "tree-1.json").layout.leaves != first.leaves


def test_a_block_is_read_by_one_request_for_its_bytes(stored):
    store, rows, live = stored
    layout = planted(store, live).layout
    starts = (0, 2, 4, 5, 6, 8)  # leaf 2 has two parts
    runs = route(store, RouteTask(live, BY, layout, starts, "run", 1 << 20))
    assert len(runs) > 2 and sum(int(run.blocks[:, 2].sum()) for run in runs) == rows.num_rows
    written = []
    for parts in ((0,), (1,), (2, 3), (4,)):
        of_leaf = tuple(
            LeafPart(
                starts[part + 1] - starts[part], True, tuple(run.block(part) for run in runs if run.block(part).rows)
            )
            for part in parts
        )
        count = sum(part.rows for part in of_leaf)
        store.ranges.clear()
        task = ArrangeTask(
            Routed(of_leaf, 0, count, 1 << 20, "parted"),
            None,
            BY,
            (),
            count,
            live.columns,
            WriteOptions(codec="zstd"),
            Limits(reading=READING),
        )
        output, _ = arrange(store, task, lambda: f"{len(written)}.parquet")
        assert sorted(store.ranges) == sorted(
            (block.path, block.first, block.bytes) for part in of_leaf for block in part.blocks
        )
        table = pq.read_table(pa.BufferReader(store.get(output.file.path)))
        assert (np.diff(layout.cells_of(table)) >= 0).all()
        written.append(table)
    assert pa.concat_tables(written).sort_by("a").equals(rows)


def test_row_groups_end_with_cells_that_fill_half_of_them(stored):
    store, rows, live = stored
    task = ArrangeTask(
        Unrouted(live, 1 << 30, "unrouted"), None, BY, (), rows.num_rows, live.columns,
        WriteOptions(row_group_rows=6_000), Limits(reading=READING),
    )  # fmt: skip
    output = arrange(store, task, lambda: "grouped.parquet")[0].file
    file = pq.ParquetFile(pa.BufferReader(store.get(output.path)))
    groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    assert len(groups) == 6 and all(3_000 <= group.num_rows <= 6_000 for group in groups)
    boxes = [[(min(group[name].to_pylist()), max(group[name].to_pylist())) for name in "ab"] for group in groups]
    for box, other in combinations(boxes, 2):
        assert any(high < low or beyond < begin for (begin, high), (low, beyond) in zip(box, other, strict=True))


@pytest.mark.parametrize("damage", ["rows", "bytes"])
@pytest.mark.slow
def test_a_block_that_is_not_what_was_written_is_noticed(stored, damage):
    store, _, live = stored
    layout = planted(store, live).layout
    (run,) = route(store, RouteTask(live, BY, layout, (0, layout.cells), "run", 1 << 30))
    block = run.block(0)
    if damage == "rows":
        block = dataclasses.replace(block, rows=block.rows - 1)
    else:
        store.put(run.path, store.get(run.path)[: block.bytes // 2])
    part = LeafPart(layout.cells, True, (block,))
    task = ArrangeTask(
        Routed((part,), 0, block.rows, 1 << 20, "parted"),
        None,
        BY,
        (),
        block.rows,
        live.columns,
        WriteOptions(),
        Limits(reading=READING),
    )
    with pytest.raises(CorruptionError, match=r"run-0\.arrows"):
        arrange(store, task, lambda: "out.parquet")

"""Where a sample of a file comes from: whole row groups, far from each other, and never heads alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltacompact.base.data_file import DataFile
from deltacompact.base.limits import READ_LIMITS
from deltacompact.base.model import ContentType, Partition
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.layout.spread import SampleSize, looks_at
from deltacompact.steps import sample
from deltacompact.steps.live_ranges import LiveRanges
from deltacompact.steps.materialize import LivePiece, LiveRange
from deltacompact.steps.sample import _looked_at, _ranges, _sample, sample_tasks
from deltacompact.storage.fetched_file import ReadAhead
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import writing
from deltacompact.tabular.files import FileReader, Part
from deltacompact.tabular.row_groups import WriteOptions

SCHEMA = pa.schema([("x", pa.int64())])


def file_of(rows, size=1):
    return DataFile(UNNUMBERED, "x.parquet", ContentType.PARQUET, rows, size, SCHEMA)


@pytest.mark.parametrize(
    ("rows", "wanted", "looked_at"),
    [
        ((0, 4_000), 80, [(800, 1_200), (2_800, 3_200)]),  # two looks at the middles of two halves
        ((900, 1_300), 80, [(900, 1_200), (1_200, 1_300)]),  # no row that is not asked for
        ((0, 4_000), 39, [(2_000, 2_400)]),
        ((380, 420), 40, [(380, 420)]),  # few rows: all of them
    ],
)
def test_looks_lie_in_row_groups_far_from_each_other(rows, wanted, looked_at):
    store, sink = MemoryStore(), pa.BufferOutputStream()
    pq.write_table(pa.table({"x": np.arange(4_000)}, schema=SCHEMA), sink, row_group_size=400)
    data = sink.getvalue().to_pybytes()
    store.put("x.parquet", data)
    file = file_of(4_000, len(data))
    piece = LivePiece(file, np.ones(4_000, bool), rows)
    with FileReader(store, Part(file, SCHEMA.names, rows), ReadAhead(READ_LIMITS)) as reader:
        assert [range_.rows for range_ in _ranges(reader, piece, wanted)] == looked_at


@pytest.mark.parametrize("sizes", [[100, 100], [1, 50_000, 7], [400] * 60, [1_000_000, 3, 200_000]])
def test_at_least_as_many_rows_are_sampled_as_are_wanted_and_large_ranges_give_more(sizes):
    ranges = tuple(LiveRange(file_of(rows), number, 0, rows) for number, rows in enumerate(sizes))
    live = LiveRanges(ranges, (), SCHEMA, {}, READ_LIMITS)
    taken = _looked_at(live, SampleSize(4_000, looks_at(live.rows), 1.0))
    wanted = {number: looked.wanted for number, looked in taken.items()}
    assert sum(wanted.values()) >= min(4_000, sum(sizes))
    assert sizes[max(wanted, key=wanted.__getitem__)] == max(sizes)
    assert sum(looked.stands_for for looked in taken.values()) == pytest.approx(sum(sizes))
    if sum(sizes) > 4_000:
        assert sum(wanted.values()) < 2 * 4_000


@pytest.mark.parametrize("slots", [1, 2, 7, 1_000])
@pytest.mark.parametrize("sizes", [[100, 100], [1, 50_000, 7], [1_000_000, 3, 200_000]])
def test_tasks_share_the_sample_by_their_rows(sizes, slots):
    ranges = tuple(LiveRange(file_of(rows), number, 0, rows) for number, rows in enumerate(sizes))
    live = LiveRanges(ranges, (), SCHEMA, {}, READ_LIMITS)
    tasks = sample_tasks(live, 3, slots, 5_000)
    assert len(tasks) == min(slots, max(1, sum(sizes) // 5_000), max(4, looks_at(sum(sizes)) // 16))
    assert [range_ for task in tasks for range_ in task.live.ranges if range_.stop - range_.start < 100] == [
        range_ for range_ in ranges if range_.stop < 100
    ]
    taken = [looked for task in tasks for looked in _looked_at(task.live, task.size).values()]
    assert min(20_000, sum(sizes)) <= sum(looked.wanted for looked in taken) < 40_000
    assert sum(looked.stands_for for looked in taken) == pytest.approx(sum(sizes))
    assert sum(task.size.bytes for task in tasks) == pytest.approx(READ_LIMITS.run_bytes)


@pytest.mark.parametrize("dead", [0, 900])
def test_row_groups_give_rows_by_how_many_live_there(dead):
    """The last one is often a small rest. If it gave as many rows as the others, files would differ much in size."""
    store, sink = MemoryStore(), pa.BufferOutputStream()
    with pq.ParquetWriter(sink, SCHEMA) as writer:
        for values in (np.arange(2_000), np.arange(2_000, 2_100)):
            writer.write_table(pa.table({"x": values}, schema=SCHEMA))
    data = sink.getvalue().to_pybytes()
    store.put("x.parquet", data)
    file, lives = file_of(2_100, len(data)), np.arange(2_100) >= dead
    piece = LivePiece(file, lives, (0, 2_100))
    with FileReader(store, Part(file, SCHEMA.names), ReadAhead(READ_LIMITS)) as reader:
        first, last = _ranges(reader, piece, 2_000)
    assert (first.rows, last.rows) == ((0, 2_000), (2_000, 2_100))
    assert first.share + last.share == pytest.approx(1.0)
    assert last.share == pytest.approx(100 / lives.sum(), rel=0.4)


def test_a_sample_holds_few_rows_at_a_time(tmp_path, monkeypatch):
    schema, count = pa.schema([("x", pa.string())]), 4_000
    texts = pa.table({"x": [f"{number:05d}" * 1_000 for number in range(count)]}, schema=schema)
    store = LocalStore(tmp_path)
    file = writing.write_table(store, "x.parquet", texts, WriteOptions(row_group_rows=count))
    few = replace(READ_LIMITS, batch_bytes=1 << 19, run_bytes=1 << 19)
    piece = LivePiece(file, np.arange(count) >= 1_000, (1_000, count))
    live = LiveRanges((LiveRange(file, UNNUMBERED, 0, 3_000),), (), schema, Partition(()), few)
    held, rows_of = [], sample._stored

    def noted(*arguments):
        for rows in rows_of(*arguments):
            held.append(pa.total_allocated_bytes() - before)
            yield rows

    monkeypatch.setattr(sample, "_stored", noted)
    before = pa.total_allocated_bytes()
    with FileReader(store, Part(file, schema.names, piece.rows), ReadAhead(few)) as reader:
        found = _sample(reader, piece, live, piece.rows, 6, 1 << 20)
    assert [int(text[:5]) for text in found["x"].to_pylist()] == [1_250, 1_750, 2_250, 2_750, 3_250, 3_750]
    assert len(held) > 4 and max(held) < texts.nbytes / 2

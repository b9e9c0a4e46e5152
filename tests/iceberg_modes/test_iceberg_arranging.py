"""Rows that are put into another order: all of them, once, as a stable sort has them, whatever fits the memory."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hand_made_tables import state
from hypothesis import given
from hypothesis import strategies as st
from row_orders import compared
from value_columns import TYPES, array_of, comparable

from deltacompact.base.data_file import DataFile
from deltacompact.base.limits import READ_LIMITS, Limits, ReadLimits
from deltacompact.base.model import ContentType
from deltacompact.base.numbers import UNNUMBERED, Ordinal
from deltacompact.base.settings import Settings
from deltacompact.executors.local import LocalExecutor
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg_modes.rewrite import arranging, planting
from deltacompact.iceberg_modes.rewrite.arranging import arrange
from deltacompact.iceberg_modes.rewrite.clustering import Clusterer
from deltacompact.iceberg_modes.rewrite.row_order import ClusterBy, RowOrder, SortBy
from deltacompact.iceberg_modes.rewrite.shares import PartitionShare
from deltacompact.index.live_bitmaps import write_masks
from deltacompact.index.number_blocks import read_numbers
from deltacompact.layout.cluster_by import ClusterColumn
from deltacompact.layout.sort_order import OrderedColumn, sort_items
from deltacompact.steps.materialize import LiveRange
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.row_groups import WriteOptions

HELD = 1 << 40
STORED = [type_ for type_ in TYPES if type_ != pa.timestamp("s")]  # which Parquet has in milliseconds


def with_ids(rows: pa.Table) -> pa.Table:
    """Field ids from 1 on, as Iceberg's files have them."""
    fields = [
        field.with_metadata({"PARQUET:field_id": str(number)}) for number, field in enumerate(rows.schema, start=1)
    ]
    return rows.cast(pa.schema(fields))


def arranged(
    rows: pa.Table,
    by: RowOrder,
    lives: np.ndarray | None = None,
    inputs: int = 3,
    files: int = 3,
    run_bytes: int = 1 << 20,
    held_bytes: int = 0,
    group_rows: int = 1 << 10,
    reading: ReadLimits = READ_LIMITS,
    pool: pa.MemoryPool | None = None,
    store: ObjectStore | None = None,
    stored_bytes: int = 1 << 40,
    stored_group_rows: int = 1_000,
) -> tuple[list[pa.Table], list[np.ndarray], ObjectStore]:
    """The outputs of these rows, where some are dead, the numbers of each one's rows, and the store.

    `pool`: from which the tasks take their memory.
    """
    store, rows = store or MemoryStore(), with_ids(rows)
    lives = np.ones(rows.num_rows, bool) if lives is None else lives
    ranges, masks = [], {}
    for number, part in enumerate(np.array_split(np.arange(rows.num_rows), inputs)):
        sink = pa.BufferOutputStream()
        pq.write_table(rows.take(pa.array(part)), sink, row_group_size=stored_group_rows)
        path = f"{number}.parquet"
        store.put(path, sink.getvalue().to_pybytes())
        file = DataFile(UNNUMBERED, path, ContentType.PARQUET, len(part), sink.getvalue().size, rows.schema)
        masks[Ordinal(number)] = np.packbits(lives[part], bitorder="little")
        if lives[part].any():
            ranges.append(LiveRange(file, Ordinal(number), 0, int(lives[part].sum())))
    write_masks(store, "live.arrow", masks)
    if not ranges:
        return [], [], store
    executor = LocalExecutor(Settings(local_threads=1))
    metadata = replace(state().metadata, schema=rows.schema)
    limits = Limits(task_rows_min=max(1, rows.num_rows // 2), reading=reading)
    share = PartitionShare(
        0,
        "0",
        (),
        tuple(ranges),
        (),
        (),
        {path: "live.arrow" for path in masks},
        rows.schema,
        stored_bytes,
        files,
        (),
        {},
    )
    clusterer = Clusterer(
        Tasks(store, executor),
        metadata,
        by,
        WriteOptions(row_group_rows=group_rows),
        limits,
        run_bytes,
        held_bytes,
        "tree-",
        "work/",
    )
    before, numbers, paths = pa.default_memory_pool(), [], []
    pa.set_memory_pool(pool or before)
    try:
        for part in itertools.chain.from_iterable(clusterer.outputs([share])):
            paths.append(f"out-{len(paths)}.parquet")
            arrange(store, part.task, paths[-1].__str__, *map(executor.get, part.held))
            with store.open(part.task.numbers_path) as source:
                numbers.append(np.concatenate(list(read_numbers(source, "", part.task.rows))))
    finally:
        pa.set_memory_pool(before)
    return [pq.read_table(pa.BufferReader(store.get(path))) for path in paths], numbers, store


@st.composite
def cases(draw):
    """Rows of one or two columns with ties and nulls, some dead; by what they are sorted; and how little memory is."""
    count, arrays, items = draw(st.integers(1, 200)), {}, []
    for number in range(draw(st.integers(1, 2))):
        type_ = draw(st.sampled_from(STORED))
        pool = draw(st.lists(st.one_of(st.none(), TYPES[type_]), min_size=1, max_size=30))
        arrays[f"c{number}"] = array_of(type_, draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count)))
        items.append(OrderedColumn(f"c{number}", draw(st.booleans()), draw(st.booleans())))
    arrays["row"] = pa.array(np.arange(count))
    dead = draw(st.sets(st.integers(0, count - 1), max_size=20))
    lives = np.array([row not in dead for row in range(count)])
    sizes = {"inputs": draw(st.integers(1, 4)), "files": draw(st.integers(1, 4))}
    sizes |= {"run_bytes": draw(st.sampled_from([2, 100, 1_000, 1 << 30]))}
    return pa.table(arrays), items, lives, sizes | {"held_bytes": draw(st.sampled_from([0, HELD]))}


@given(cases())
def test_files_together_are_a_stable_sort_of_the_live_rows(case):
    rows, items, lives, sizes = case
    tables, numbers, store = arranged(rows, SortBy(tuple(items)), lives, **sizes)
    values = list(zip(*(comparable(rows[item.name]) for item in items), strict=True))
    live = np.flatnonzero(lives).tolist()
    expected = sorted(live, key=functools.cmp_to_key(lambda one, other: compared(items, values[one], values[other])))
    assert [row for table in tables for row in table["row"].to_pylist()] == expected
    of_row = {row: number for number, row in enumerate(live)}
    assert [number for of_file in numbers for number in of_file.tolist()] == [of_row[row] for row in expected]
    # what was divided again is gone
    assert not [stored.path for stored in store.list("work/") if "parted" in stored.path]


@pytest.mark.slow
@given(cases())
def test_each_live_row_is_in_one_leaf_of_a_split_tree(case):
    rows, items, lives, sizes = case
    tables, _, _ = arranged(rows, ClusterBy(tuple(ClusterColumn(item.name) for item in items)), lives, **sizes)
    found = [row for table in tables for row in table["row"].to_pylist()]
    assert sorted(found) == np.flatnonzero(lives).tolist()
    again, _, _ = arranged(
        rows,
        ClusterBy(tuple(ClusterColumn(item.name) for item in items)),
        lives,
        **sizes | {"held_bytes": HELD - sizes["held_bytes"]},
    )
    assert [
        row for table in again for row in table["row"].to_pylist()
    ] == found  # memory or not, the files are the same


LITTLE = ReadLimits(batch_bytes=1 << 16, batch_rows_max=1_000, run_bytes=1 << 16)
RUN = 1 << 19
SORTED, CLUSTERED = SortBy(sort_items("", "key")), ClusterBy((ClusterColumn("key"),))


def skewed(kind: str, count: int = 20_000) -> pa.Table:
    """Rows of 400 bytes: with distinct keys, with one key for most, or with the wide rows beside each other."""
    draw = np.random.default_rng(3)
    keys = draw.permutation(count)
    widths = np.full(count, 400)
    if kind == "ties":
        keys = np.where(draw.random(count) < 0.7, count // 2, keys)
    if kind == "wide":
        widths = np.where(keys < count // 4, 1_600, 10)
    return pa.table({"key": keys, "row": np.arange(count), "payload": [draw.bytes(width) for width in widths]})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "kind"),
    [(SORTED, "distinct"), (SORTED, "ties"), (SORTED, "wide"), (CLUSTERED, "wide")],
    ids=["", "ties", "wide", "tree"],
)
def test_many_times_the_memory_are_put_in_order_in_little(by, kind, tmp_path):
    rows = skewed(kind)
    assert rows.nbytes > 14 * RUN
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    store = LocalStore(tmp_path)  # a store in memory would take its own from the pool
    tables, _, _ = arranged(rows, by, run_bytes=RUN, files=2, group_rows=250, reading=LITTLE, pool=pool, store=store)
    assert pool.max_memory() < 6 * RUN
    whole = pa.concat_tables(tables)
    if by is SORTED:
        assert whole["row"].to_numpy().tolist() == np.argsort(rows["key"], kind="stable").tolist()
    assert sorted(whole["row"].to_pylist()) == list(range(rows.num_rows))


def test_a_sample_of_one_row_group_holds_few_of_its_rows(tmp_path, monkeypatch):
    count = 60_000
    keys = np.random.default_rng(3).permutation(count)
    rows = pa.table({"key": [f"{key:08d}" * 50 for key in keys], "row": np.arange(count)})
    pool, held, rows_of = pa.proxy_memory_pool(pa.default_memory_pool()), [], planting.aligned

    def noted(*arguments):
        for some in rows_of(*arguments):
            held.append(pool.bytes_allocated())
            yield some

    monkeypatch.setattr(planting, "aligned", noted)
    little = {"run_bytes": RUN, "group_rows": 2_000, "reading": LITTLE, "stored_group_rows": count, "inputs": 1}
    tables, _, _ = arranged(rows, SORTED, pool=pool, store=LocalStore(tmp_path), **little)
    assert len(held) > 20 and max(held) < rows.nbytes / 2
    assert pa.concat_tables(tables)["row"].to_numpy().tolist() == np.argsort(keys, kind="stable").tolist()


@pytest.mark.parametrize("by", [SORTED, CLUSTERED], ids=["sorted", "tree"])
def test_a_small_file_that_becomes_large_in_memory_stays_within_it(by, tmp_path):
    """20 values of 800 bytes, 60 times over: a task read them all at once, beyond what it had."""
    count = 24_000
    keys, notes = np.random.default_rng(3).permutation(count), [bytes([number]) * 800 for number in range(20)]
    rows = pa.table({"key": keys, "row": np.arange(count), "payload": [notes[key % 20] for key in keys]})
    assert rows.nbytes > 14 * RUN
    pool, store = pa.proxy_memory_pool(pa.default_memory_pool()), LocalStore(tmp_path)
    little = {"run_bytes": RUN, "files": 1, "group_rows": 250, "reading": LITTLE, "stored_bytes": RUN // 10}
    (whole,), (numbers,), _ = arranged(rows, by, pool=pool, store=store, **little)
    assert pool.max_memory() < 6 * RUN
    assert sorted(whole["row"].to_pylist()) == list(range(count)) and sorted(numbers.tolist()) == list(range(count))
    if by is SORTED:
        assert whole["row"].to_numpy().tolist() == np.argsort(keys, kind="stable").tolist()
    assert not [stored.path for stored in store.list("work/") if "unrouted" in stored.path]


@pytest.mark.parametrize("by", [SORTED, CLUSTERED], ids=["sorted", "tree"])
def test_a_task_keeps_its_runs_when_another_copy_of_it_ends(by, monkeypatch):
    """Ray starts a task again when it loses its node, and the first copy may still work there."""
    through_runs = arranging._through_runs

    def beside_a_copy(*task):
        rows = through_runs(*task)
        first = next(rows)
        assert list(through_runs(*task))
        yield first
        yield from rows

    monkeypatch.setattr(arranging, "_through_runs", beside_a_copy)
    rows = pa.table({"key": np.random.default_rng(3).permutation(300), "row": np.arange(300)})
    (whole,), _, store = arranged(rows, by, run_bytes=1_000, files=1, group_rows=50, stored_bytes=0)
    assert sorted(whole["row"].to_pylist()) == list(range(300))
    assert not [stored.path for stored in store.list("work/") if "unrouted" in stored.path]

"""How items are divided into tasks and parcels, and that every task finds its rows in the parcel that it is given."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from deltacompact.steps.dedupe import narrowed
from deltacompact.steps.shuffle import Groups, ParcelLayout, received, relay, spread, stored, taken_of_each
from deltacompact.storage.memory import MemoryStore

NODES = st.lists(st.integers(1, 40), min_size=1, max_size=12)


@given(st.integers(1, 500), st.integers(1, 600), NODES)
def test_every_item_is_in_one_task_and_every_task_in_one_parcel(items, tasks, nodes):
    layout = ParcelLayout.of(items, tasks, nodes)
    assert [item for each in layout.tasks for item in each] == list(range(items))
    assert len(layout.tasks) == min(items, tasks)
    sizes = [len(each) for each in layout.tasks]
    assert max(sizes) - min(sizes) <= 1
    assert 1 <= layout.parcel_count <= len(nodes)
    assert layout.parcel_starts[0] == 0 and layout.parcel_starts[-1] == items
    for task, each in enumerate(layout.tasks):
        parcel = layout.parcel_of(task)
        assert layout.parcel_starts[parcel] <= each.start and each.stop <= layout.parcel_starts[parcel + 1]


@given(st.integers(1, 10_000), NODES)
def test_nodes_get_their_share(items, nodes):
    starts = spread(items, nodes)
    assert starts[0] == 0 and starts[-1] == items and list(starts) == sorted(set(starts))
    if items >= 40 * len(nodes) * 40:
        shares = np.diff(starts) / items
        assert np.allclose(shares, np.array(nodes) / sum(nodes), atol=2 / items)


def test_objects_grow_with_the_nodes_and_not_with_the_tasks():
    assert ParcelLayout.of(40_000, 704, [32] * 11).parcel_count == 11
    assert ParcelLayout.of(40_000, 4, [2]).parcel_count == 1


@given(st.data(), st.booleans())
def test_a_task_takes_its_group_out_of_a_parcel_wherever_that_is(data, in_file):
    counts = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=9))
    layout = ParcelLayout.of(len(counts), len(counts), data.draw(NODES))
    offsets = np.cumsum([0, *counts], dtype=np.int64)
    rows = np.arange(offsets[-1], dtype=np.uint64)
    store = MemoryStore()
    groups = Groups(0, (rows, rows.astype(np.uint32)), offsets)
    in_parcels = list(groups.parcels(layout.parcel_starts))
    assert len(in_parcels) == layout.parcel_count
    file = stored(store, "exchange", groups, ("uint64", "uint32"))
    for group in range(len(counts)):
        parcel = file if in_file else in_parcels[layout.parcel_of(group)]
        ((first, second),) = taken_of_each(store, [parcel], group)
        assert first.tolist() == second.tolist() == rows[offsets[group] : offsets[group + 1]].tolist()
        assert (first.dtype, second.dtype) == (np.uint64, np.uint32)


@given(st.data(), st.integers(1, 4))
def test_relays_hand_each_node_what_the_senders_would_have_handed_it(data, parcels):
    tasks = data.draw(st.integers(1, 9))
    layout = ParcelLayout.of(tasks, tasks, data.draw(NODES))
    several = layout.several(parcels)
    assert several.tasks == layout.tasks and several.parcel_count == min(parcels, layout.parcel_count)
    senders = [_groups(data.draw(st.lists(st.integers(0, 3), min_size=tasks, max_size=tasks))) for _ in range(3)]
    sent = [list(groups.parcels(several.parcel_starts)) for groups in senders]
    relayed = [
        parts
        for number, starts in enumerate(layout.inside(several))
        for parts in relay(starts, *(parcels[number] for parcels in sent))
    ]
    assert len(relayed) == layout.parcel_count
    for number, direct in enumerate(zip(*(groups.parcels(layout.parcel_starts) for groups in senders), strict=True)):
        for parcel, expected in zip(received([relayed[number]]), direct, strict=True):
            assert parcel.first == expected.first and parcel.offsets.tolist() == expected.offsets.tolist()
            assert [array.tolist() for array in parcel.arrays] == [array.tolist() for array in expected.arrays]


def _groups(counts):
    offsets = np.cumsum([0, *counts], dtype=np.int64)
    return Groups(0, (np.arange(offsets[-1], dtype=np.uint64),), offsets)


@given(st.lists(st.integers(-(2**62), 2**62), max_size=9))
def test_counts_are_handed_over_in_few_bytes_and_stay_the_same(counts):
    narrow = narrowed(np.array(counts, np.int64))
    assert narrow.tolist() == counts
    assert narrow.dtype == np.int16 or max(map(abs, counts)) >= 2**15 - 1

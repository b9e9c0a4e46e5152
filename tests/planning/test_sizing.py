"""Arithmetic done before anything runs."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from deltacompact.base.limits import LIMITS, Limits
from deltacompact.base.settings import Settings
from deltacompact.executors.local import LocalExecutor
from deltacompact.planning.driver_work import CompactionWork, capacity_of, handed_out
from deltacompact.planning.sizing import driver_time, file_sizes, index_sizes, layout_sizes, task_counts, task_memory

GIB = task_memory.GIB
BILLION = 10**9


@pytest.mark.parametrize(
    ("rows", "buckets"),
    [
        (46.875 * BILLION, 313),
        (93.75 * BILLION, 625),
        (187.5 * BILLION, 1250),
        (375 * BILLION, 2500),
        (750 * BILLION, 5000),
        (1500 * BILLION, 10_000),
        (3000 * BILLION, 20_000),
        (6000 * BILLION, 40_000),
    ],
)
def test_figure_3_1_of_the_paper(rows, buckets):
    assert index_sizes.hash_bucket_count(int(rows), 32, 8 * GIB) == buckets


def test_wider_entries_and_less_memory_take_more_buckets():
    rows = int(46.875 * BILLION)
    assert index_sizes.hash_bucket_count(rows, 64, 8 * GIB) == 625
    assert index_sizes.hash_bucket_count(rows, 32, 4 * GIB) == 625
    assert index_sizes.hash_bucket_count(rows, 32, 16 * GIB) == 157


def test_a_bucket_that_is_compared_whole_fits_a_task():
    assert index_sizes.compared_buckets(1_000_000, 32, 12 * GIB) == 1
    free = 400 << 20
    assert index_sizes.compared_buckets(10 * free // 160, 32, task_memory.TASK_BASE_BYTES + free) == 10


def test_a_small_table_has_few_buckets():
    assert [index_sizes.hash_bucket_count(rows, 32, 8 * GIB) for rows in (0, 1, 10**6, 10**7)] == [1, 1, 1, 8]


def test_rehash_above_90_percent_of_a_tasks_memory_to_half():
    rows, memory = 300_000_000, 8 * GIB  # twice the figure's bucket: all of the memory
    assert not index_sizes.must_rehash(int(rows * 0.89), 1, 32, memory)
    assert index_sizes.must_rehash(int(rows * 0.91), 1, 32, memory)
    count = index_sizes.hash_bucket_count(rows, 32, memory)
    assert rows / count <= index_sizes.rows_per_bucket(32, memory)


@given(st.lists(st.integers(0, 100)), st.integers(1, 150))
def test_rounds_hold_at_least_one_file_and_otherwise_what_fits(rows_by_file, rows_per_round):
    ends = index_sizes.rounds(rows_by_file, rows_per_round)
    assert ends == sorted(set(ends)) and (not rows_by_file or ends[-1] == len(rows_by_file))
    for start, end in zip([0, *ends], ends, strict=False):
        assert end > start
        assert end - start == 1 or sum(rows_by_file[start:end]) <= max(rows_per_round, max(rows_by_file[start:end]))


@given(st.integers(1, 10**9), st.integers(1, 10**13), st.integers(1, 10**8), st.integers(1, 2**40))
def test_output_files_hold_no_more_than_they_may_and_no_less_than_half(rows, data_bytes, rows_max, bytes_max):
    count = file_sizes.output_files(rows, data_bytes, rows_max, bytes_max, LIMITS)
    assert 1 <= count <= rows
    assert -(-rows // count) <= rows_max
    if 1 < count < rows:
        assert rows / count >= rows_max / 2 or data_bytes / count >= bytes_max / 2


@pytest.mark.parametrize(
    ("data_bytes", "files"),
    [
        (3 * LIMITS.output_parallel_bytes_min, 3),  # as four files, each would be too small for a task of its own
        (4 * LIMITS.output_parallel_bytes_min, 4),
    ],
)
def test_a_few_large_files_become_a_power_of_two_so_that_cores_are_evenly_loaded(data_bytes, files):
    assert file_sizes.output_files(10**9, data_bytes, 10**9, -(-data_bytes // 3), LIMITS) == files


@given(st.integers(0, 2**60), st.integers(0, 2**60))
def test_files_grow_with_the_table_between_two_sizes(data_bytes, more):
    target = file_sizes.target_file_bytes(data_bytes)
    assert file_sizes.TARGET_FILE_BYTES_MIN <= target <= file_sizes.target_file_bytes(data_bytes + more)
    assert target <= file_sizes.TARGET_FILE_BYTES_MAX
    if file_sizes.TARGET_FILE_BYTES_MIN < target < file_sizes.TARGET_FILE_BYTES_MAX:
        assert data_bytes // target == file_sizes.TARGET_FILES


@given(st.integers(0, 10**12), st.integers(1, 8_000), st.integers(1, 250), st.integers(1, 40_000))
def test_tasks_are_as_many_as_the_driver_can_afford(rows, slots, nodes, buckets):
    per_task = task_counts.task_rows(rows, slots, nodes, buckets, 32, 5 * GIB, LIMITS)
    tasks = -(-rows // per_task)
    groups = task_counts.bucket_groups(buckets, rows, slots, nodes, tasks, LIMITS)
    sources = task_counts.source_groups(rows, slots, nodes, groups, 5 * GIB, LIMITS)
    assert per_task >= 1 and 1 <= groups <= buckets and sources >= 1
    assert tasks <= 4 * slots or per_task * 32 * task_memory.HASH_BUCKET_COPIES > 4 * GIB
    objects = nodes * (tasks + groups + sources) * driver_time.DRIVER_OBJECT_S
    told = (tasks * groups + 2 * groups * sources) * driver_time.DRIVER_ARGUMENT_S
    work = 3 * rows * driver_time.STAGE_ROW_S / min(slots, tasks or 1, groups, sources)
    forced = -(-rows // 10**7)  # what memory divides further
    assert objects + told <= 1 + 10 * work + forced * (nodes * 0.001 + groups * 0.0001)


def test_a_machine_is_balanced_by_waves_and_a_large_cluster_has_fewer_tasks_than_slots():
    assert task_counts.task_rows(10_000_000, 2, 1, 8, 32, 8 * GIB, LIMITS) == 1_250_000
    assert task_counts.bucket_groups(8, 10_000_000, 2, 1, 8, LIMITS) == 8
    rows = 14 * BILLION  # 20 TiB of wide rows
    assert 352 < rows / task_counts.task_rows(rows, 352, 11, 158, 32, 5 * GIB, LIMITS) < 4 * 352
    assert rows / task_counts.task_rows(rows, 3_520, 110, 158, 32, 5 * GIB, LIMITS) < 3_520 / 4


@pytest.mark.parametrize(("nodes", "parcels", "senders_each"), [(1, 1, 1), (63, 63, 1), (64, 8, 32), (313, 18, 72)])
def test_relays_divide_the_parcels_for_many_nodes(nodes: int, parcels: int, senders_each: int) -> None:
    assert driver_time.parcels_each(nodes, LIMITS) == parcels
    assert driver_time.relayed_senders(4_000 * nodes // 100, nodes * 10, nodes, LIMITS) == senders_each
    assert driver_time.relayed_senders(1, nodes * 10, nodes, LIMITS) == (1 if nodes < 64 else 4 * parcels)


def test_with_relays_the_driver_of_10_000_slots_takes_a_fifth_of_the_time() -> None:
    work, capacity = CompactionWork.full(6 * 10**12, 100, files=1_000_000), capacity_of(313, 32, 256 * GIB)
    with_relays = handed_out(work, capacity)
    parcels = with_relays.rounds * 313 * math.ceil(with_relays.round_rows / with_relays.task_rows)
    assert with_relays.objects < parcels / 5
    assert with_relays.driver_s < parcels * driver_time.DRIVER_OBJECT_S / 4


@given(st.integers(1, 10**7), st.integers(1, 10_000))
def test_outputs_of_a_large_cluster_share_tasks_and_still_come_in_waves(outputs, slots):
    together = file_sizes.outputs_per_task(outputs, slots)
    assert together == 1 or outputs / together >= file_sizes.OUTPUT_WAVES * slots
    assert slots > file_sizes.OUTPUT_SLOTS or together == 1


@given(st.integers(10**9, 10**13), st.integers(1, 10_000), st.integers(1, 40_000))
def test_groups_that_exchange_files_are_as_many_as_slots_and_memory_want(rows, slots, groups):
    sources = task_counts.source_groups(rows, slots, -(-slots // 32), groups, 5 * GIB, LIMITS, in_files=True)
    assert rows / sources < 2**32 and sources <= max(slots, -(-rows // 10**9))


def test_limits_are_handed_in():
    few = Limits(groups=3, task_rows_min=5, small_rows_per_bucket=2, small_buckets_max=4, exchange_share=0.0)
    assert (
        task_counts.bucket_groups(8, 10_000_000, 2, 1, 8, few)
        == 3
        == task_counts.source_groups(10, 2, 1, 8, 5 * GIB, few)
    )
    assert (
        task_counts.bucket_groups(2, 10_000_000, 2, 1, 8, few)
        == 2
        == task_counts.source_groups(2, 2, 1, 8, 5 * GIB, few)
    )
    assert (
        task_counts.task_rows(10, 2, 1, 4, 32, 5 * GIB, few) == 10
        and index_sizes.hash_bucket_count(7, 32, 8 * GIB, few) == 4
    )
    assert task_counts.exchanges_in_files(1, 1, GIB, few) and not task_counts.exchanges_in_files(1, 63, GIB, LIMITS)
    assert task_counts.exchanges_in_files(1, 64, GIB, LIMITS), "the driver could not name so many parcels"
    assert index_sizes.adds_run(100, [], 25, 0, 32, GIB, LIMITS) and not index_sizes.adds_run(
        100, [], 26, 0, 32, GIB, LIMITS
    )
    assert not index_sizes.adds_run(100, [1] * 7, 1, 0, 32, GIB, LIMITS)
    assert index_sizes.adds_run(100, [1] * 7, 1, 0, 32, GIB, Limits(runs_max=9))
    assert not index_sizes.fits_held(10, 1, 32, 12 * 32, LIMITS) and index_sizes.fits_held(10, 1, 32, 20 * 32, LIMITS)


def test_tasks_that_route_wide_rows_get_fewer() -> None:
    """One task got all of a million rows of 1 KB, however many slots there were."""
    assert layout_sizes.routed_rows(2_000_000, 60.0, 2, LIMITS) == LIMITS.task_rows_min
    assert layout_sizes.routed_rows(2_000_000, 1_100.0, 2, LIMITS) == 500_000
    assert layout_sizes.routed_rows(1_000_000, 1_100.0, 64, LIMITS) == layout_sizes.ROUTED_BYTES_MIN // 1_100
    assert (
        layout_sizes.routed_rows(3, 1e10, 64, LIMITS)
        == 1
        == layout_sizes.routed_rows(0, 0.0, 2, LIMITS) // LIMITS.task_rows_min
    )


def test_tasks_that_wait_share_slots_only_as_far_as_a_share_of_the_memory_goes() -> None:
    task, slot = task_memory.TASK_BASE_BYTES + 700 * (1 << 20), 12 * GIB
    assert task_memory.task_places(2, 4, task, slot) == 8
    assert task_memory.task_places(2, 1, task, slot) == 2
    assert task_memory.task_places(2, 4, task_memory.TASK_BASE_BYTES + 2_500 * (1 << 20), slot) == 2
    assert task_memory.task_places(2, 4, 40 * GIB, slot) == 2, "one task for each slot may take what it takes"


def test_tasks_side_by_side_in_a_bounded_memory_hold_their_widest_rows_together() -> None:
    slot = task_memory.TASK_BASE_BYTES + 133 * (1 << 20)
    for undivided_mib, places in ((0, 2), (133, 2), (134, 1), (266, 1), (9_000, 1)):
        assert task_memory.bounded_places(2, undivided_mib << 20, slot) == places


def test_only_tasks_of_this_process_on_a_store_behind_a_network_share_slots() -> None:
    assert LocalExecutor(Settings(), waits=True).capacity.tasks_per_slot > 1
    for settings in (Settings(local_threads=2), Settings(concurrent_tasks=2)):
        assert LocalExecutor(settings, waits=True).capacity.tasks_per_slot == 1, "the user has said how many"
    assert LocalExecutor(Settings()).capacity.tasks_per_slot == 1
    assert LocalExecutor(Settings(), inline=3, waits=True).capacity.tasks_per_slot == 1

"""What plans need, made by hand: the memory of a task and of a process, and what is held between stages.

one delta of 4,000,000 rows    the entries are held twice · three tasks in one process share its libraries
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from calls import calls
from hand_made import CAPACITY, MIB, file, planned, upsert

from deltacompact.base.data_file import DataFile
from deltacompact.base.model import ContentType
from deltacompact.base.settings import Options
from deltacompact.planning.lanes import Claim, Lane
from deltacompact.planning.needs import Needs
from deltacompact.planning.plan import Capacity
from deltacompact.planning.sizing import task_memory
from deltacompact.planning.sizing.task_counts import EXCHANGE_BYTES
from deltacompact.planning.sizing.task_memory import KEPT_BY_HEAPS, TASK_BASE_BYTES

GIB = 1 << 30


def needed(delta_file: DataFile, **arguments: Any) -> Needs:
    """What a first compaction of one file needs."""
    return Needs(planned([], [upsert(delta_file)], **arguments))


def test_wide_rows_take_more_memory_and_a_row_takes_no_more_than_all_rows_of_its_file() -> None:
    narrow = pa.schema([("k", pa.int64())])
    fixed = needed(file(1000, MIB, schema=narrow))
    unknown = needed(file(1000, MIB))
    known = needed(file(1000, MIB, decoded_bytes=2 * MIB))
    assert fixed.read_bytes == known.read_bytes - 6 * MIB == 4 * MIB
    assert unknown.read_bytes == task_memory.ROW_BYTES_MAX * task_memory.ROW_COPIES / 4
    assert fixed.peak_bytes <= known.peak_bytes < unknown.peak_bytes
    blobs = {"decoded_bytes": 1200 * MIB, "group_bytes": 30 * MIB}
    assert needed(file(120, 1200 * MIB, **blobs)).read_bytes == 150 * MIB, "three may be as wide as one"
    measured = needed(file(120, 1200 * MIB, widest_row_bytes=10 * MIB, **blobs))
    assert measured.read_bytes == (64 + 30 / 2 + 50) * MIB, "row groups together, two more at rest, copies of a row"


def test_a_plan_knows_how_much_of_a_file_is_held() -> None:
    narrow, gib = pa.schema([("k", pa.int64())]), 1 << 30

    def held(**known: Any) -> int:
        return needed(file(1_310_720, 30 * MIB, schema=narrow, **known)).read_bytes

    assert held() == 64 * MIB, "a log of an earlier release: small row groups are decoded together"
    assert held(decoded_bytes=2 * gib) == gib // 5, "a row group has as many rows as ours"
    assert held(decoded_bytes=2 * gib, group_bytes=70 * MIB) == (64 + 70 / 4) * MIB, "decoded bit by bit"
    assert held(decoded_bytes=20 * MIB, group_bytes=9 * MIB) == 20 * MIB
    assert held(decoded_bytes=20 * MIB, content_type=ContentType.CSV) == 0.75 * 50 * MIB, "read whole"
    wide = needed(file(1000, MIB, decoded_bytes=2 * gib, group_bytes=gib))
    assert wide.read_bytes == 3 * gib // 2, "texts may be in few rows, which are one batch"
    batch = held(decoded_bytes=2 * gib, group_bytes=gib, content_type=ContentType.FEATHER)
    assert batch == gib, "an Arrow file's batch is decoded whole"


def test_only_files_behind_a_network_are_fetched_ahead() -> None:
    near, far = (needed(file(10, 9 * MIB), capacity=replace(CAPACITY, is_near=is_near)) for is_near in (True, False))
    elsewhere = needed(file(10, 9 * MIB, path="s3://b/a.parquet", managed=False), capacity=near.plan.capacity)
    assert far.peak_bytes - near.peak_bytes == 2 * (9 * MIB + 10 * 32)
    assert elsewhere.peak_bytes == far.peak_bytes
    for path in ("file:///exports/a.parquet", "FILE:///exports/a.parquet"):
        on_disk = needed(file(10, 9 * MIB, path=path, managed=False), capacity=near.plan.capacity)
        assert on_disk.peak_bytes == near.peak_bytes


def test_a_process_holds_what_tasks_hand_over_but_for_the_entries_that_are_inside_of_them() -> None:
    """Four million rows of 32 bytes: each task has its own once, and what a round folds is there once more."""
    needs = Needs(plan := planned(deltas=[upsert(file(4_000_000))]))
    own, entries = needs.peak_bytes - TASK_BASE_BYTES, 4_000_000 * 32
    assert needs.process_bytes(1) == TASK_BASE_BYTES + own
    assert needs.process_bytes(3) == TASK_BASE_BYTES + 3 * own
    assert needs.process_bytes(3, has_one_heap=False) == TASK_BASE_BYTES + 3 * own, "rows are narrow"
    assert needs.held_bytes == 2 * entries + 4_000_000 * EXCHANGE_BYTES
    inside = [entries + tasks * plan.task_rows * 32 for tasks in (1, 3)]
    held = [needs.process_bytes(tasks, holds=True) - needs.process_bytes(tasks) for tasks in (1, 3)]
    assert plan.task_rows < 4_000_000 and held == [max(0, needs.held_bytes - held) for held in inside]
    assert held[0] > held[1] > 0


def test_heaps_of_a_users_process_keep_what_wide_rows_leave() -> None:
    wide = file(500_000, decoded_bytes=500 << 20, group_bytes=32 << 20, widest_row_bytes=2000)
    needs = Needs(planned(deltas=[upsert(wide)]))
    own = needs.peak_bytes - TASK_BASE_BYTES
    assert needs.process_bytes(3) == TASK_BASE_BYTES + 3 * own
    assert needs.process_bytes(3, has_one_heap=False) == TASK_BASE_BYTES + int(3 * own * KEPT_BY_HEAPS)


def test_on_a_cluster_each_task_holds_the_rows_that_it_lays_out() -> None:
    """Here this process holds them all. The plan of a cluster left them out: tasks took 1.5 GB of 1.1 planned."""
    rows = [
        upsert(file(500_000, decoded_bytes=500 << 20, group_bytes=32 << 20, widest_row_bytes=2000)) for _ in range(2)
    ]
    given = {"deltas": rows, "capacity": Capacity(2, 8 * GIB, 4 * GIB)}
    laid_out, usual = (Needs(planned(**given, options=Options(cluster_by=columns))) for columns in ("v", None))
    assert laid_out.routed_bytes == 1000 << 20
    quarter = (1000 << 20) / 4  # two tasks for each slot
    assert TASK_BASE_BYTES + quarter < laid_out.cluster_peak_bytes <= laid_out.peak_bytes + quarter
    assert laid_out.peak_bytes < laid_out.cluster_peak_bytes
    assert Claim.of(Lane.CLUSTER, laid_out).heap_bytes == laid_out.tasks_at_once * laid_out.cluster_peak_bytes
    assert laid_out.process_bytes(1) == laid_out.cluster_peak_bytes
    assert usual.cluster_peak_bytes == usual.peak_bytes


def test_the_memory_of_many_deltas_is_reckoned_once() -> None:
    """A compaction asks for it several times: to share slots between sessions, and to claim memory for each."""
    needs = Needs(planned(deltas=[upsert(file(1000)) for _ in range(300)]))
    first = calls(lambda: needs.peak_bytes)
    assert calls(lambda: needs.peak_bytes) < first / 100

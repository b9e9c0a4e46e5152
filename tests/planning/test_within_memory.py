"""What a process may take in all is divided: it stays in this process, runs fewer tasks, and they read less at once."""

from __future__ import annotations

import pytest
from hand_made import file, planned, upsert
from hypothesis import given
from hypothesis import strategies as st

from deltacompact import Settings
from deltacompact.base.errors import InputError
from deltacompact.base.settings import Options
from deltacompact.executors.choose import share_slots
from deltacompact.executors.local import LocalExecutor
from deltacompact.iceberg.marks.finding import KEY_BYTES, Sizes
from deltacompact.planning.lanes import Lane
from deltacompact.planning.needs import Needs
from deltacompact.planning.sizing.task_memory import TASK_BASE_BYTES
from deltacompact.planning.within_memory import MEMORY_BYTES_MIN, within_memory

GIB = 1 << 30


@given(st.integers(MEMORY_BYTES_MIN, 64 * GIB), st.integers(1, 64))
def test_tasks_and_what_they_hand_over_fit_together(memory_bytes: int, threads: int) -> None:
    settings = within_memory(Settings(memory_bytes=memory_bytes, local_threads=threads))
    assert settings.executor == "local" and 1 <= settings.local_threads <= threads
    task_bytes = settings.memory_per_task_bytes - TASK_BASE_BYTES
    assert TASK_BASE_BYTES + settings.local_threads * task_bytes + settings.object_store_bytes <= memory_bytes
    reading, usual = settings.limits.reading, Settings().limits.reading
    assert 4 * reading.run_bytes + 2 * reading.read_ahead_bytes <= task_bytes
    assert reading.batch_bytes <= usual.batch_bytes and settings.limits.chunk_entries <= 1 << 20
    assert Sizes.of(settings).keys_per_bucket * KEY_BYTES <= task_bytes / 2


def test_without_a_bound_and_with_much_memory_everything_is_as_usual() -> None:
    assert within_memory(Settings()) == Settings()
    much = within_memory(Settings(memory_bytes=64 * GIB, local_threads=4))
    assert (much.local_threads, much.limits) == (4, Settings().limits)
    assert Sizes.of(much) == Sizes.of(Settings()) == Sizes()


def test_two_tasks_share_a_memory_that_one_would_not_need() -> None:
    for memory_mb, tasks in ((300, 1), (500, 1), (600, 2), (2000, 2)):
        assert within_memory(Settings(memory_bytes=memory_mb * 10**6, local_threads=2)).local_threads == tasks


@pytest.mark.parametrize(
    ("foreign", "places"),
    [
        ({"widest_row_bytes": 1_000}, 2),
        ({"widest_row_bytes": 10 << 20}, 1),  # a task holds 20 of them
        ({"group_bytes": 1 << 20}, 2),
        ({"group_bytes": 100 << 20}, 1),  # nobody knows: a row may be as wide
    ],
)
def test_tasks_with_wide_rows_run_one_after_the_other(foreign: dict[str, int], places: int) -> None:
    options = within_memory(Options(memory_bytes=600_000_000, local_threads=2))
    pool = LocalExecutor(options)
    plan = planned(deltas=[upsert(file(1_000_000, **foreign))], options=options, capacity=pool.capacity)
    share_slots({Lane.POOL: pool}, [Needs(plan)])
    assert pool.tasks_per_process == places
    pool.stop()


def test_what_somebody_asks_for_as_well_is_kept_where_it_is_less() -> None:
    asked = Settings(memory_bytes=4 * GIB, memory_per_task_bytes=300 << 20, object_store_bytes=7 << 20)
    settings = within_memory(asked)
    assert (settings.memory_per_task_bytes, settings.object_store_bytes) == (300 << 20, 7 << 20)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(memory_bytes=1 << 20), "memory_bytes is 1,048,576, it must be 268,435,456 or more"),
        (Settings(memory_bytes=GIB, executor="ray"), "bounds this process, not a cluster"),
    ],
)
def test_too_little_and_a_cluster_are_refused(settings: Settings, said: str) -> None:
    with pytest.raises(InputError, match=said):
        within_memory(settings)

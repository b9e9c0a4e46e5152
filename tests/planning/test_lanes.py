"""What is too small for a cluster: few rows and few bytes, both. What memory the sessions of a lane share."""

from __future__ import annotations

import pytest

from deltacompact import Settings
from deltacompact.planning.lanes import Lane, LaneBounds, lane_bounds, stays_here
from deltacompact.planning.plan import Capacity


@pytest.mark.parametrize(
    ("executor", "rows", "data_bytes", "expected"),
    [
        ("auto", 10, 100, True),
        ("auto", 11, 100, False),
        ("auto", 10, 101, False),
        ("local", 11, 101, True),
        ("ray", 10, 100, False),
    ],
)
def test_an_input_stays_here_if_it_is_small_in_rows_and_in_bytes(executor, rows, data_bytes, expected):
    settings = Settings(executor=executor, local_rows_max=10, local_bytes_max=100)
    assert stays_here(settings, rows, data_bytes) is expected


def test_the_bound_of_a_lane_is_the_memory_of_all_its_slots():
    one = Capacity(4, 1_000, 600)
    assert lane_bounds({Lane.POOL: one}, {Lane.POOL: 3}) == {Lane.POOL: LaneBounds(3, 4_000, 600)}
    both = lane_bounds({Lane.POOL: one, Lane.INLINE: one}, {Lane.POOL: 3, Lane.INLINE: 2})
    assert [bounds.heap_bytes for bounds in both.values()] == [2_000, 2_000], "lanes in a process divide its memory"

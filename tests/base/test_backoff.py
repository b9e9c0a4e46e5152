"""Waits between tries double, are random within their bounds, and never overflow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deltacompact.base.backoff import wait_s


@given(st.integers(0, 10**6), st.floats(0.001, 10.0), st.floats(1.0, 1000.0), st.floats(0.0, 1.0))
def test_a_wait_is_a_part_of_the_doubled_one(doubled, first_s, longest_s, least):
    longest_now_s = min(longest_s, first_s * 2.0 ** min(doubled, 100))
    assert least * longest_now_s <= wait_s(doubled, first_s, longest_s, least) <= longest_now_s


def test_waits_differ():
    assert len({wait_s(3, 0.1, 20.0) for _ in range(20)}) > 1

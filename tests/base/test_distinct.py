"""Distinct numbers, against a set."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.base.distinct import distinct_numbers


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_distinct_numbers_are_those_of_a_set(values):
    assert distinct_numbers(np.array(values, np.int64)).tolist() == sorted(set(values))

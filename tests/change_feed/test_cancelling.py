"""Rows of both sides against counters: as many are left as one side has more than the other."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.change_feed.cancelling import unmatched

few = st.tuples(st.integers(0, 2), st.integers(0, 2))  # halves of digests that are alike
distinct = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))


def left(digests, sides):
    return Counter(digest if is_added else (digest, "removed") for digest, is_added in zip(digests, sides, strict=True))


@given(st.lists(few) | st.lists(distinct, unique=True), st.lists(few) | st.lists(distinct, unique=True), st.data())
def test_what_is_left_is_the_difference(removed, added, data):
    added = added + data.draw(st.lists(st.sampled_from(removed), unique=True) if removed else st.just([]))
    digests = [*removed, *added]
    sides = np.array([False] * len(removed) + [True] * len(added), bool)
    order = data.draw(st.permutations(range(len(digests))))
    digests, sides = [digests[place] for place in order], sides[order]
    kept = unmatched(np.array(digests, np.uint64).reshape(-1, 2), sides)
    found = left([digest for digest, is_kept in zip(digests, kept, strict=True) if is_kept], sides[kept])
    expected = Counter(added) - Counter(removed), Counter(removed) - Counter(added)
    assert found == expected[0] + Counter({(digest, "removed"): count for digest, count in expected[1].items()})

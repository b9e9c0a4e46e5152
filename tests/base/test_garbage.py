"""Python looks for garbage seldom while a compaction works, and as before when it has ended."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest

import deltacompact
from deltacompact.base.garbage import AFTER


@pytest.mark.parametrize(
    ("usual", "meanwhile"), [((700, 10, 10), (AFTER, 10, 10)), ((0, 5, 5), (0, 5, 5)), ((AFTER + 1, 2, 3),) * 2]
)
def test_what_a_user_has_chosen_counts_again_after_a_compaction(tmp_path, usual, meanwhile):
    table = deltacompact.open_catalog(tmp_path).create_table("t", primary_keys=["k"])
    table.append(pa.table({"k": [1]}))
    before, seen = gc.get_threshold(), []
    gc.set_threshold(*usual)
    try:
        table.compact(event_sinks=[lambda _event: seen.append(gc.get_threshold())])
        after = gc.get_threshold()
    finally:
        gc.set_threshold(*before)
    assert set(seen) == {meanwhile}
    assert after == usual

"""What deltas are forecast to touch of a base: by key ranges that are made up, and by the footers of real files."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from deltacompact import DeltaStreamCatalog, Settings, compact
from deltacompact.base.settings import DEFAULTS
from deltacompact.job import Request, prepare
from deltacompact.planning.touched import Touched, touched
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular.key_ranges import KeyedGroup, keyed_groups

FULL = DEFAULTS.row_group_rows
ORDERED = [
    [KeyedGroup(FULL, 60 * FULL, {"id": (n * FULL, (n + 1) * FULL - 1)}) for n in file] for file in ((0, 1), (2, 3))
]
SHUFFLED = [[KeyedGroup(FULL, 60 * FULL, {"id": (0, 4 * FULL - 1)}) for _ in range(2)] for _ in range(2)]


def delta(rows: int, first: int, last: int) -> list[KeyedGroup]:
    return [KeyedGroup(rows, 60 * rows, {"id": (first, last)})]


@pytest.mark.parametrize(
    ("base", "rows", "keys", "decoded", "copied"),
    [
        (ORDERED, 500, (4 * FULL, 4 * FULL + 499), 0.0, 0.0),  # new keys
        (ORDERED, 500, (3 * FULL + 9, 4 * FULL - 1), 0.25, 0.25),  # at the end
        (ORDERED, 5_000, (3, 4 * FULL - 9), 1.0, 0.0),  # anywhere
        (ORDERED, 1, (3, 3), 0.25 * 0.632, 0.0),  # a single row hits its group, or was never there
        (SHUFFLED, 5_000, (3, 4 * FULL - 9), 1.0, 0.0),
        (SHUFFLED, 500, (4 * FULL, 4 * FULL + 499), 0.0, 0.0),
    ],
)
def test_new_keys_touch_nothing_and_keys_at_the_end_one_group(
    base: list[list[KeyedGroup]], rows: int, keys: tuple[int, int], decoded: float, copied: float
) -> None:
    found = touched(base, delta(rows, *keys), rows)
    assert found.decoded_rows == pytest.approx(decoded, abs=0.02)
    assert found.copied_bytes == pytest.approx(copied, abs=0.17 if rows == 1 else 0.02)


def test_ranges_that_nobody_knows_may_touch_all() -> None:
    unknown = [KeyedGroup(5_000, 300_000)]
    assert touched(ORDERED, unknown, 5_000).decoded_rows == pytest.approx(1.0, abs=0.01)
    assert touched([[KeyedGroup(FULL, 60 * FULL)]], delta(5_000, 0, 9), 5_000).decoded_rows == pytest.approx(1.0)
    assert touched([], delta(5_000, 0, 9), 5_000) == Touched(1.0, 1.0, 0.0, 0.0, 60.0, 0.0)


def test_a_key_of_several_columns_is_hit_where_all_of_them_overlap() -> None:
    base = [[KeyedGroup(FULL, FULL, {"a": (n, n), "b": (0, 99)})] for n in range(4)]
    one = [KeyedGroup(500, 500, {"a": (2, 2), "b": (50, 200)})]
    other = [KeyedGroup(500, 500, {"a": (2, 2), "b": (100, 200)})]
    assert touched(base, one, 500).decoded_rows == pytest.approx(0.25, abs=0.01)
    assert touched(base, other, 500).decoded_rows == 0


def test_small_files_are_merged_though_nothing_hits_them() -> None:
    found = touched(ORDERED, delta(500, 4 * FULL, 4 * FULL + 499), 500, merged=[1])
    assert (found.decoded_rows, found.copied_bytes) == (0.0, 0.5)


def test_some_of_the_files_stand_for_all() -> None:
    """Two of four delta files were read, and one of two base files: half of the rows fall on it."""
    whole = touched(ORDERED, [*delta(5, 0, FULL), *delta(5, 3 * FULL, 4 * FULL)], 10)
    part = touched(ORDERED[:1], delta(5, 0, FULL), 10, base_share=0.5)
    assert part.decoded_rows == pytest.approx(whole.decoded_rows, abs=0.05)


groups = st.builds(
    KeyedGroup,
    st.integers(0, 10**6),
    st.integers(0, 10**9),
    st.dictionaries(
        st.sampled_from("ab"),
        st.one_of(
            st.tuples(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62)),
            st.tuples(st.floats(), st.floats()),
            st.tuples(st.text(max_size=3), st.text(max_size=3)),
        ).map(lambda pair: tuple(sorted(pair))),
    ),
)


@given(st.lists(st.lists(groups, max_size=4), max_size=4), st.lists(groups, max_size=4), st.integers(0, 10**9))
def test_whatever_the_footers_say_shares_are_shares(
    base: list[list[KeyedGroup]], deltas: list[KeyedGroup], rows: int
) -> None:
    found = touched(base, deltas, rows)
    for share in (found.decoded_rows, found.decoded_bytes, found.copied_bytes, found.large):
        assert 0 <= share <= 1 + 1e-9
    assert found.decoded_bytes + found.copied_bytes <= 1 + 1e-9


@given(st.integers(1, 10**5), st.integers(0, 10**5), st.integers(0, 3 * FULL))
def test_more_rows_touch_no_less(rows: int, more: int, first: int) -> None:
    few, many = (touched(ORDERED, delta(count, first, 4 * FULL), count) for count in (rows, rows + more))
    assert few.decoded_rows <= many.decoded_rows + 1e-9


def test_footers_tell_ranges_and_other_files_tell_none() -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": np.arange(300_000), "text": ["x"] * 300_000}))
    compact("t", delta_catalog_client=catalog, settings=Settings(executor="local", local_threads=1))
    catalog.append("t", pa.table({"id": [7]}), operation="delete")
    (snapshot,) = prepare(catalog, Request("t")).snapshots
    assert snapshot.base is not None
    (file,) = snapshot.base.files
    found = keyed_groups(catalog.store, file, ["id", "no such column"])
    assert [group.rows for group in found] == [FULL, FULL, 300_000 - 2 * FULL]
    assert found[1].ranges == {"id": (FULL, 2 * FULL - 1)}
    gone = replace(file, path="tables/no-such-file.parquet")
    assert [group.ranges for group in keyed_groups(catalog.store, gone, ["id"])] == [{}], "a forecast never fails"

"""What a table holds after any deltas, in any division into rounds and sessions, is what the oracle says."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from budgets import examples
from columns import ALL_KINDS, Kind, built
from fold_cases import (
    PROFILE,
    SESSIONS,
    Case,
    append,
    as_rows,
    assert_any_division_gives_the_oracles_rows,
    assert_holds,
    cases,
    create,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Oracle

from deltacompact import DeltaStreamCatalog, Settings, compact
from deltacompact.storage.memory import MemoryStore

# --- deltas and divisions --------------------------------------------------------------------------------------------


# --- comparing -------------------------------------------------------------------------------------------------------


# --- the properties --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(cases())
@PROFILE
def test_any_division_into_sessions_and_rounds_gives_the_oracles_rows(case: Case) -> None:
    assert_any_division_gives_the_oracles_rows(case)


EVENTFUL: dict[str, Any] = {
    "key_kinds": st.just(["boolean"]),
    "days": st.just([]),
    "payloads": (),
    "files": st.just(1),
    "rows_max": 3,
    "sessions": SESSIONS,
    "sort_columns_may_lack": False,
}
"""Three keys to which much happens, one event at a time, compacted after each."""


@pytest.mark.slow
@given(cases(sort_kinds=st.just(["boolean"]), retention=st.integers(0, 3), gaps=st.integers(1, 2), **EVENTFUL))
@PROFILE
def test_a_tombstone_blocks_for_as_long_as_it_is_retained_however_the_deltas_are_divided(case: Case) -> None:
    assert_any_division_gives_the_oracles_rows(case)


SEVERAL_TYPES = [name for name, kind in ALL_KINDS.items() if len(kind.types) > 1]


@pytest.mark.parametrize("kind", SEVERAL_TYPES)
@given(st.data())
@settings(PROFILE, max_examples=examples(15))
@pytest.mark.slow
def test_sort_keys_compare_the_same_in_whatever_types_files_and_index_have_them(kind: str, data: st.DataObject) -> None:
    case = data.draw(cases(sort_kinds=st.just([kind]), operations=("upsert",), **EVENTFUL))
    assert_any_division_gives_the_oracles_rows(case)


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["ascending", "descending"])
@pytest.mark.parametrize("kind", SEVERAL_TYPES)
def test_any_two_values_compare_alike_after_their_column_was_widened(kind: str, direction: str) -> None:
    for indexed, given_later in itertools.permutations(ALL_KINDS[kind].types, 2):
        pairs = list(itertools.product(held(ALL_KINDS[kind], indexed), held(ALL_KINDS[kind], given_later)))
        catalog = DeltaStreamCatalog(MemoryStore())
        catalog.create_table("t", primary_keys=["k"], sort_keys=[("s", direction)])
        oracle = Oracle(["k"], [("s", direction)])
        for place, type_ in enumerate((indexed, given_later)):
            rows = [{"k": number, "s": pair[place], "from": place} for number, pair in enumerate(pairs)]
            oracle.apply(place, "upsert", [rows])
            columns = {
                "k": range(len(rows)),
                "s": built([row["s"] for row in rows], type_),
                "from": [place] * len(rows),
            }
            catalog.append("t", pa.table(columns), stream_position=place)
            winners = {row["k"]: row["from"] for row in catalog.read("t").to_pylist()}
            assert winners == {row["k"]: row["from"] for row in oracle.rows()}, f"{indexed}, then {given_later}"
            compact("t", delta_catalog_client=catalog, settings=Settings(executor="local"))
        assert winners == {row["k"]: row["from"] for row in catalog.read("t").to_pylist()}


def held(kind: Kind, type_: pa.DataType | str) -> list[Any]:
    """Null, and the values that the type holds."""
    if isinstance(type_, str):  # dictionaries
        return [None, *kind.values]
    return [None, *(value for value in kind.values if kind.array([value], type_).type == type_)]


@pytest.mark.slow
@given(cases())
@PROFILE
def test_merge_on_read_gives_the_oracles_rows_after_each_delta(case: Case) -> None:
    catalog = create(case)
    oracles: dict[str | None, Oracle] = {}
    for delta in case.deltas:
        append(catalog, case, delta)
        oracle = oracles.setdefault(delta.day, Oracle(case.keys, case.sort_keys, case.retention))
        oracle.apply(delta.position, delta.operation, [as_rows(f, n, delta) for n, f in enumerate(delta.files)])
        assert_holds(catalog, oracles, case.partitioned)

"""A session may die before any change of the store; whoever runs the compaction again goes on where it stood."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from interrupted import (
    THREE_ROUNDS,
    Rows,
    assert_sound,
    each_crash,
    live_rows,
    run,
    table_with_a_base_and_deltas,
    upsert,
)
from stores import CHANGES, Crash, FailsAt, InterceptedStore
from tables import problems

from deltacompact import DeltaStreamCatalog, Settings
from deltacompact.base.model import Partition
from deltacompact.storage.memory import MemoryStore

OTHER_ARGUMENTS: dict[str, Any] = {
    "hash_bucket_count": 2,
    "rows_per_compacted_file": 2,
    "settings": Settings(executor="local", rows_per_round=5),
}


def recorded_rounds(store: MemoryStore) -> int:
    """Rounds that the session which died has completed; none where it was published already."""
    active = DeltaStreamCatalog(store).state("t", Partition()).version
    return sum(
        1
        for stat in store.list("t/sessions/")
        if "/round-" in stat.path
        and json.loads(store.get(stat.path.rpartition("/")[0] + "/plan.json"))["destination_version"] == active
    )


def was_published(store: MemoryStore) -> bool:
    compacted = DeltaStreamCatalog(store).state("t", Partition()).compacted
    return compacted is not None and compacted.watermark == 4


@pytest.fixture(scope="module")
def expected() -> Rows:
    """What a session that nothing disturbs makes of the table."""
    store = table_with_a_base_and_deltas()
    before = live_rows(store)
    session = run(store, THREE_ROUNDS)
    assert (session.rounds, session.rounds_resumed) == (3, 0)
    assert live_rows(store) == before
    assert [(row["k"], row["at"]) for row in before] == [(1, 2), (2, 1), (3, 4), (5, 1), (6, 4), (7, 4)]
    return before


@pytest.mark.slow
def test_after_a_crash_before_any_change_the_rerun_goes_on_and_gives_the_same_rows(expected: Rows) -> None:
    resumed = set()
    for store, crash in each_crash(THREE_ROUNDS):
        assert live_rows(store) == expected, crash
        published, recorded = was_published(store), recorded_rounds(store)
        session = run(store, THREE_ROUNDS)
        assert (session.nothing_to_do is not None) == published, crash
        if not published:
            assert (session.rounds, session.rounds_resumed) == (3, recorded), crash
            assert session.rows_in == session.live + session.superseded + session.deleted == 12
            resumed.add(recorded)
        assert live_rows(store) == expected, crash
        assert_sound(store)
        assert run(store, THREE_ROUNDS).nothing_to_do
    assert resumed == {0, 1, 2, 3}


@pytest.mark.slow
def test_deltas_that_arrive_before_the_rerun_are_left_to_the_next_session(expected: Rows) -> None:
    for store, crash in each_crash(THREE_ROUNDS):
        published, recorded = was_published(store), recorded_rounds(store)
        planned = any(stat.path.endswith("plan.json") and not published for stat in own_session(store))
        upsert(DeltaStreamCatalog(store), 5, [(1, 3), (8, 5)])
        with_the_new_ones = live_rows(store)
        session = run(store, THREE_ROUNDS)
        if planned:
            assert (session.rounds, session.rounds_resumed) == (3, recorded), crash
            assert not run(store, THREE_ROUNDS).nothing_to_do
        assert live_rows(store) == with_the_new_ones, crash
        assert [row["at"] for row in with_the_new_ones if row["k"] in (1, 8)] == [5, 5]
        assert run(store, THREE_ROUNDS).nothing_to_do
        assert_sound(store)


def own_session(store: MemoryStore) -> list[Any]:
    """Records of sessions on the active version."""
    active = DeltaStreamCatalog(store).state("t", Partition()).version
    plans = [stat for stat in store.list("t/sessions/") if stat.path.endswith("/plan.json")]
    return [stat for stat in plans if json.loads(store.get(stat.path))["destination_version"] == active]


@pytest.mark.slow
def test_a_rerun_with_other_arguments_is_another_session(expected: Rows) -> None:
    for store, crash in each_crash(THREE_ROUNDS):
        published = was_published(store)
        session = run(store, OTHER_ARGUMENTS)
        if not published:
            assert (session.rounds, session.rounds_resumed, session.hash_bucket_count) == (2, 0, 2), crash
        assert live_rows(store) == expected, crash
        assert_sound(store)
        assert run(store, THREE_ROUNDS).nothing_to_do


@pytest.mark.slow
def test_a_rerun_that_dies_as_well_can_be_resumed_in_turn(expected: Rows) -> None:
    for place, (store, crash) in enumerate(each_crash(THREE_ROUNDS)):
        for at in (1 + place % 5, 7):
            try:
                run(InterceptedStore(store, FailsAt(at, kinds=CHANGES, error=Crash)), THREE_ROUNDS)
            except Crash:
                assert live_rows(store) == expected, crash
        run(store, THREE_ROUNDS)
        assert live_rows(store) == expected, crash
        assert_sound(store)


@pytest.mark.slow
def test_a_destination_that_died_half_written_reads_as_empty_until_the_rerun_publishes_it(expected: Rows) -> None:
    to_another_table = {**THREE_ROUNDS, "destination_compacted_table_id": "d"}

    def rows_of_destination(store: MemoryStore) -> Rows:
        catalog = DeltaStreamCatalog(store)
        return sorted(catalog.read("d").to_pylist(), key=lambda row: row["k"]) if "d" in catalog.tables() else []

    for store, crash in each_crash(to_another_table):
        assert rows_of_destination(store) in ([], expected), crash
        run(store, to_another_table)
        assert rows_of_destination(store) == expected, crash
        assert live_rows(store) == expected, crash
        assert problems(DeltaStreamCatalog(store), "d") == []


def test_a_first_compaction_that_dies_anywhere_declares_the_keys_at_most_once() -> None:
    def begin() -> MemoryStore:
        store = MemoryStore()
        catalog = DeltaStreamCatalog(store)
        catalog.create_table("t")
        catalog.append("t", pa.table({"id": [1, 1, 2], "name": ["a", "b", "c"]}))
        return store

    arguments: dict[str, Any] = {"primary_keys": ["id"], "settings": Settings(executor="local")}
    died = 0
    for at in range(1000):
        store = begin()
        try:
            run(InterceptedStore(store, FailsAt(at, kinds=CHANGES, error=Crash)), arguments)
        except Crash:
            died += 1
        else:
            break
        run(store, arguments)
        assert DeltaStreamCatalog(store).read("t").to_pydict() == {"id": [1, 2], "name": ["b", "c"]}
    assert died > 8

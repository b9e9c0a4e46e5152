"""A session is resumed by another release, on another machine, or after somebody removed some of its files.

The next attempt either continues exactly what was decided, or leaves it and begins another session. It never mixes the
two, and it never fails for ever.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from interrupted import (
    THREE_ROUNDS,
    Rows,
    assert_sound,
    each_crash,
    live_rows,
    run,
    table_with_a_base_and_deltas,
)

from deltacompact import Settings
from deltacompact.base.limits import LIMITS, Limits, ReadLimits
from deltacompact.planning import decisions
from deltacompact.planning.sizing import file_sizes, task_memory
from deltacompact.session import records as session_records
from deltacompact.storage.memory import MemoryStore

FOUR_ROWS_A_FILE: dict[str, Any] = {**THREE_ROUNDS, "rows_per_compacted_file": 4}


def died_with(session: dict[str, Any], record: str) -> MemoryStore:
    """A store whose session died right after it put its first record of this kind."""
    before = set(paths(table_with_a_base_and_deltas(), f"/{record}"))
    for store, _ in each_crash(session):
        if set(paths(store, f"/{record}")) - before:
            return store
    raise AssertionError(f"no session recorded {record}")


def records_of_the_dead(store: MemoryStore, name: str) -> list[str]:
    published = {path.rpartition("/")[0] for path in paths(store, "/published.json")}
    return [path for path in paths(store, f"/{name}") if path.rpartition("/")[0] not in published]


def paths(store: MemoryStore, part: str, prefix: str = "t/sessions/") -> list[str]:
    return [stat.path for stat in store.list(prefix) if part in stat.path]


@pytest.fixture(scope="module")
def expected() -> Rows:
    return live_rows(table_with_a_base_and_deltas())


@pytest.mark.slow
def test_a_release_with_other_file_sizes_writes_the_outputs_that_were_recorded(
    expected: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Computed anew, the outputs would not fit the index: ids twice, deleted ids back, rows lost."""
    resumed_after_the_decision = 0
    crashes = [store for store, _ in each_crash(FOUR_ROWS_A_FILE)]
    monkeypatch.setattr(file_sizes, "output_files", lambda rows, *_: rows)  # the other release: a file for each row
    monkeypatch.setattr(
        decisions, "_of_base_file", lambda *_: (decisions.FileAction.REWRITE, decisions.FileReason.ROWS_DIED)
    )
    for store in crashes:
        session = run(store, FOUR_ROWS_A_FILE)
        assert live_rows(store) == expected
        assert_sound(store)
        if session.rounds_resumed == 3:
            resumed_after_the_decision += 1
            assert session.files_after == 2
    assert resumed_after_the_decision > 3


@pytest.mark.slow
def test_another_planner_begins_another_session(expected: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    crashes = [store for store, _ in each_crash(THREE_ROUNDS)]
    monkeypatch.setattr(session_records, "PLANNER_VERSION", session_records.PLANNER_VERSION + 1)
    for store in crashes:
        session = run(store, THREE_ROUNDS)
        assert session.nothing_to_do or (session.rounds, session.rounds_resumed) == (3, 0)
        assert live_rows(store) == expected
        assert_sound(store)


def without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda document: {key: value for key, value in document.items() if key != name}


@pytest.mark.slow
@pytest.mark.parametrize("record", ["plan.json", "round-00001", "round-00003", "outputs-"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda document: {**document, "planner_version": 999, "index_version": 7, "outputs": [{"file": None}]},
        lambda document: {"format": 99},
        lambda document: [document],
        without("round_ends"),
        without("counts"),
        without("outputs"),
        without("schemas"),
    ],
    ids=["other version", "other format", "a list", "no rounds", "no counts", "no outputs", "no schemas"],
)
def test_a_record_that_is_not_understood_begins_another_session(
    expected: Rows, record: str, damage: Callable[[dict[str, Any]], Any]
) -> None:
    store = died_with(THREE_ROUNDS, record)
    for path in records_of_the_dead(store, record):
        store.put(path, json.dumps(damage(json.loads(store.get(path)))).encode())
    assert run(store, THREE_ROUNDS).error is None
    assert live_rows(store) == expected
    assert_sound(store)
    assert run(store, THREE_ROUNDS).nothing_to_do


@pytest.mark.parametrize("record", ["plan.json", "round-00001", "round-00003", "outputs-"])
@pytest.mark.slow
def test_a_record_that_is_no_json_begins_another_session(expected: Rows, record: str) -> None:
    store = died_with(THREE_ROUNDS, record)
    for path in records_of_the_dead(store, record):
        store.put(path, store.get(path)[:-9])
    assert run(store, THREE_ROUNDS).error is None
    assert live_rows(store) == expected
    assert_sound(store)


@pytest.mark.parametrize("room", ["index", "data"])
def test_a_file_that_somebody_removed_from_an_interrupted_session_is_not_published(expected: Rows, room: str) -> None:
    store = died_with(THREE_ROUNDS, "outputs-")
    sessions = [path.split("/")[-2] for path in records_of_the_dead(store, "plan.json")]
    victims = [path for name in sessions for path in paths(store, "", f"t/{room}/{name}/")]
    assert victims
    for victim in victims:
        left = died_with(THREE_ROUNDS, "outputs-")
        (name,) = {path.split("/")[-2] for path in records_of_the_dead(left, "plan.json")}
        number = victims.index(victim)
        removed = paths(left, "", f"t/{room}/{name}/")[number : number + 1]
        left.delete(removed)
        assert run(left, THREE_ROUNDS).error is None
        assert live_rows(left) == expected
        assert_sound(left)


def test_a_file_that_somebody_cut_short_is_not_published(expected: Rows) -> None:
    store = died_with(THREE_ROUNDS, "outputs-")
    (name,) = {path.split("/")[-2] for path in records_of_the_dead(store, "plan.json")}
    for path in paths(store, "", f"t/data/{name}/"):
        store.put(path, store.get(path)[:-1])
    assert run(store, THREE_ROUNDS).error is None
    assert live_rows(store) == expected
    assert_sound(store)


@pytest.mark.slow
def test_a_plan_that_does_not_fit_this_machine_is_left_for_one_that_does(
    expected: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first machine folds everything in one round and one bucket; the second has memory for less."""
    monkeypatch.setattr(task_memory, "SESSION_BYTES", 0)  # or tasks of a few rows all take as much
    roomy: dict[str, Any] = {"settings": Settings(executor="local", memory_per_task_bytes=8 << 30)}
    store = died_with(roomy, "round-00001")
    (plan,) = records_of_the_dead(store, "plan.json")
    record = json.loads(store.get(plan))
    assert len(record["round_ends"]) == 1
    narrow = {"settings": Settings(executor="local", memory_per_task_bytes=1, object_store_bytes=64)}
    session = run(store, narrow)
    assert (session.error, session.rounds_resumed) == (None, 0)
    assert session.rounds > 1
    assert live_rows(store) == expected
    assert_sound(store)


SMALL = Limits(
    runs_max=1,
    small_rows_per_bucket=2,
    small_buckets_max=4,
    task_rows_min=1,
    groups=2,
    delta_kept_bytes_min=1,
    exchange_share=0.0,
    held_share=0.0,
    chunk_entries=1,
    copied_group_share_min=0.0,
    reading=ReadLimits(batch_rows_max=1),
)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [(LIMITS, SMALL), (SMALL, LIMITS)], ids=["then small", "first small"])
def test_an_attempt_with_other_limits_is_one_at_the_same_session(expected: Rows, first: Limits, then: Limits) -> None:
    def session_by(limits: Limits) -> dict[str, Any]:
        return {**THREE_ROUNDS, "settings": replace(THREE_ROUNDS["settings"], limits=limits)}

    resumed = 0
    for store, _ in each_crash(session_by(first)):
        session = run(store, session_by(then))
        assert session.error is None and live_rows(store) == expected
        assert_sound(store)
        resumed += session.rounds_resumed
    assert resumed > 10


def test_a_plan_that_fits_is_resumed_on_a_smaller_machine(expected: Rows) -> None:
    store = died_with({"settings": Settings(executor="local", memory_per_task_bytes=8 << 30)}, "round-00001")
    session = run(store, {"settings": Settings(executor="local", memory_per_task_bytes=4 << 30, local_threads=1)})
    assert (session.error, session.rounds_resumed) == (None, 1)
    assert live_rows(store) == expected

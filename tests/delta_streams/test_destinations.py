"""A table is a destination of one other for ever, or it holds streams of its own: never both, and never by mistake."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from simulation import Simulation, everywhere
from stores import CHANGES, FailsAt, InterceptedStore
from tables import lake_of_release_0_1, problems

import deltacompact
from deltacompact import ConflictError, DeltaCompactError, DeltaStreamCatalog, InputError, SchemaError, SessionResult
from deltacompact.base.limits import Limits
from deltacompact.base.model import Partition
from deltacompact.base.table_keys import TableKeys
from deltacompact.delta_streams.destinations import open_destination
from deltacompact.delta_streams.versions import retract
from deltacompact.maintenance.check import check
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore

LOCAL = deltacompact.Settings(executor="local", local_threads=1)


def rows(*keys: int) -> pa.Table:
    return pa.table({"id": list(keys), "at": [1] * len(keys)})


@pytest.fixture
def catalog() -> DeltaStreamCatalog:
    """Orders with a row, and nothing else."""
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("orders")
    catalog.append("orders", rows(1), stream_position=1)
    return catalog


def into(catalog: DeltaStreamCatalog, destination: str, source: str = "orders", **arguments: Any) -> None:
    arguments = {"primary_keys": ["id"], **arguments}
    deltacompact.compact(
        source,
        delta_catalog_client=catalog,
        destination_compacted_table_id=destination,
        settings=LOCAL,
        **arguments,
    )


def declared(catalog: DeltaStreamCatalog) -> set[str]:
    """What is in force for ever: tables, keys, sources, partitions and logs."""
    words = ("/table.json", "/keys.json", "/source.json", "/partitions/", "/stream/")
    return {stat.path for stat in catalog.store.list("") if any(word in stat.path for word in words)}


def refused(catalog: DeltaStreamCatalog, destination: str, said: str, **arguments: Any) -> None:
    """The compaction is refused by name, and nothing is declared."""
    before = declared(catalog)
    with pytest.raises(InputError, match=said):
        into(DeltaStreamCatalog(catalog.store), destination, **arguments)
    assert declared(catalog) == before


# Who can be a destination


@pytest.mark.parametrize("made_by", ["append", "compaction", "restatement", "release 0.1"])
def test_a_table_with_data_of_its_own_is_no_destination(catalog: DeltaStreamCatalog, made_by: str) -> None:
    catalog.create_table("events")
    if made_by == "restatement":
        catalog.restate("events", rows(7))
    else:
        catalog.append("events", rows(7))
    if made_by == "compaction":
        deltacompact.compact("events", ["id"], delta_catalog_client=catalog, settings=LOCAL)
    if made_by == "release 0.1":
        catalog.store.delete(["events/source.json"])
    refused(catalog, "events", "'events' holds data of its own: it cannot be a destination of 'orders'")
    DeltaStreamCatalog(catalog.store).append("events", rows(8))
    assert catalog.read("events").num_rows == 2


def test_a_table_that_was_created_and_never_written_to_can_be_one(catalog: DeltaStreamCatalog) -> None:
    catalog.create_table("flat")
    into(catalog, "flat")
    catalog.append("orders", rows(2))
    into(DeltaStreamCatalog(catalog.store), "flat")
    assert sorted(catalog.read("flat")["id"].to_pylist()) == [1, 2]
    with pytest.raises(InputError, match="'flat' is a destination of 'orders'"):
        DeltaStreamCatalog(catalog.store).append("flat", rows(9))
    catalog.create_table("more")
    catalog.append("more", rows(1))
    refused(catalog, "flat", "'flat' is the destination of 'orders', not of 'more'", source="more")


def test_the_source_of_a_destination_cannot_be_its_destination(catalog: DeltaStreamCatalog) -> None:
    into(catalog, "flat")
    refused(catalog, "orders", "'orders' holds data of its own", source="flat")


# A refused run leaves nothing


@pytest.mark.parametrize(
    ("created", "arguments", "said"),
    [
        ({"primary_keys": ["at"]}, {}, r"'flat' has the primary keys \['at'\], not \['id'\]"),
        ({"primary_keys": ["id"], "sort_keys": ["at"]}, {}, "'flat' has the sort keys .'at:ascending'., its source"),
        (
            {"primary_keys": ["id"], "sort_keys": ["at"]},
            {"sort_keys": [("at", "descending")]},
            "'flat' has the sort keys",
        ),
        ({"partition_keys": ["day"]}, {}, "'flat' is partitioned by"),
        (None, {"primary_keys": ["ident"]}, "no column 'ident'"),
        (None, {"sort_keys": ["when"]}, "no column 'when'"),
    ],
    ids=["keys", "sort keys", "direction", "partition keys", "unknown key", "unknown sort key"],
)
def test_what_can_be_refused_is_refused_before_anything_is_declared(
    catalog: DeltaStreamCatalog, created: dict[str, Any] | None, arguments: dict[str, Any], said: str
) -> None:
    if created is not None:
        catalog.create_table("flat", **created)
    refused(catalog, "flat", said, **arguments)
    catalog.append("orders", rows(2))
    into(catalog, "elsewhere")


def test_a_plan_that_is_refused_declares_nothing(catalog: DeltaStreamCatalog) -> None:
    catalog.append("orders", pa.table({"other": [1]}))  # no keys are known yet
    before = declared(catalog)
    with pytest.raises(SchemaError, match="'id'"):
        into(catalog, "flat")
    assert declared(catalog) == before


def test_a_session_that_finds_a_damaged_file_declares_nothing(catalog: DeltaStreamCatalog) -> None:
    path = catalog.append("orders", rows(*range(1000)), stream_position=2).files[0].path
    whole = catalog.store.get(path)
    catalog.store.put(path, b"PAR1" + bytes(len(whole) - 4))
    before = declared(catalog)
    with pytest.raises(DeltaCompactError):
        into(catalog, "flat")
    assert declared(catalog) == before
    catalog.store.put(path, whole)
    into(catalog, "flat")  # the same session goes on
    assert catalog.read("flat").num_rows == 1000


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whichever_operation_of_a_first_compaction_fails_the_next_run_completes_it(after: bool) -> None:
    at = 0
    while True:
        store, failing = MemoryStore(), FailsAt(at, after=after, kinds=CHANGES if after else None)
        plain = DeltaStreamCatalog(store)
        plain.create_table("orders")
        plain.append("orders", rows(1, 2), stream_position=1)
        try:
            into(DeltaStreamCatalog(InterceptedStore(store, failing)), "flat")
        except DeltaCompactError:
            if "flat/source.json" not in {stat.path for stat in store.list("flat/")} and at % 2:
                continue_as_own(DeltaStreamCatalog(store))
                at += 1
                continue
        if failing.seen <= at:
            assert at > (5 if after else 20)
            return
        into(DeltaStreamCatalog(store), "flat")
        assert sorted(plain.read("flat")["id"].to_pylist()) == [1, 2], failing.failed
        assert problems(plain, "flat") == []
        at += 1


def continue_as_own(catalog: DeltaStreamCatalog) -> None:
    """What a compaction left that came to nothing stands in nobody's way."""
    catalog.create_table("flat")
    catalog.append("flat", rows(5))
    assert catalog.read("flat")["id"].to_pylist() == [5]


# The race


@pytest.mark.slow
@pytest.mark.parametrize("first", ["append", "compaction"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_first_append_and_a_first_compaction_that_meet_anywhere_leave_one_in_the_right(
    first: str, exists: bool
) -> None:
    at, winners = 0, []
    while True:
        simulation = Simulation()
        catalog = simulation.catalog()
        catalog.create_table("orders")
        catalog.append("orders", rows(1))
        if exists:
            catalog.create_table("flat")

        def appending(c: DeltaStreamCatalog) -> None:
            c.create_table("flat")
            c.append("flat", rows(7))

        def compacting(c: DeltaStreamCatalog) -> None:
            into(c, "flat")

        one, two = (appending, compacting) if first == "append" else (compacting, appending)
        actor = simulation.start(one, "first", everywhere)
        for _ in range(at):
            if not actor.done:
                actor.step()
        if actor.done:
            break
        other = simulation.start(two, "second", everywhere)
        while not other.done:
            other.step()
        while not actor.done:
            actor.step()
        at += 1
        errors = [each.error for each in (actor, other) if each.error is not None]
        assert len(errors) == 1 and isinstance(errors[0], InputError | ConflictError), (at, actor.error, other.error)
        appended = (actor if first == "append" else other).error is None
        winners.append(appended)
        fresh = simulation.catalog()
        assert fresh.read("flat")["id"].to_pylist() == ([7] if appended else [1])
        assert (fresh.table("flat").source_table_id is None) is appended
        if appended:
            fresh.append("flat", rows(8))
        else:
            fresh.append("orders", rows(2))
            into(fresh, "flat")
        assert fresh.read("flat").num_rows == 2
    assert set(winners) == {True, False}


def test_first_compactions_of_two_partitions_may_meet_anywhere() -> None:
    """One had declared the destination's keys when the other, which had seen no table, came to create it."""

    def opening(day: str) -> Callable[[DeltaStreamCatalog], None]:
        partition = Partition((("day", day),))
        return lambda c: open_destination(c, c.table("orders"), TableKeys(("id",)), "flat", partition)

    at = 0
    while True:
        simulation = Simulation()
        simulation.catalog().create_table("orders", partition_keys=["day"])
        actor = simulation.start(opening("a"), "a", everywhere)
        for _ in range(at):
            if not actor.done:
                actor.step()
        if actor.done:
            break
        opening("b")(simulation.catalog())
        while not actor.done:
            actor.step()
        assert actor.error is None, (at, actor.error)
        assert len(simulation.catalog().partitions("flat")) == 2
        at += 1
    assert at > 5


@pytest.mark.slow
def test_two_first_compactions_from_two_tables_leave_one_in_the_right() -> None:
    at = 0
    while True:
        simulation = Simulation()
        catalog = simulation.catalog()
        for source in ("a", "b"):
            catalog.create_table(source)
            catalog.append(source, rows(1))
        actor = simulation.start(lambda c: into(c, "flat", "a"), "a", everywhere)
        for _ in range(at):
            if not actor.done:
                actor.step()
        if actor.done:
            return
        into(simulation.catalog(), "flat", "b") if actor_may_lose(catalog) else None
        while not actor.done:
            actor.step()
        source = simulation.catalog().table("flat").source_table_id
        assert (actor.error is None) == (source == "a"), actor.error
        at += 1


def actor_may_lose(catalog: DeltaStreamCatalog) -> bool:
    """Whether nobody has declared the source yet."""
    return "flat/source.json" not in {stat.path for stat in catalog.store.list("flat/")}


# What it costs


def test_an_append_pays_for_it_once_in_the_life_of_a_table() -> None:
    requests: list[str] = []

    def intercept(kind: str, path: str, act: Any) -> Any:
        requests.append(f"{kind} {path}")
        return act()

    store = InterceptedStore(MemoryStore(), intercept)
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", ["day"], ["id"])
    counts = []
    for day in ("1", "1", "2", "2"):
        catalog.append("t", rows(1), {"day": day})
        counts.append(sum("source.json" in request for request in requests))
        requests.clear()
    assert counts == [2, 0, 0, 0], "one get and one put"


def test_destinations_of_release_0_1_are_compacted_into_as_before(tmp_path: Path) -> None:
    catalog = DeltaStreamCatalog(LocalStore(lake_of_release_0_1(tmp_path)))
    into(catalog, "flat", primary_keys=None)
    assert catalog.read("flat").num_rows == catalog.read("orders").num_rows
    for own in ("events", "wide", "interrupted"):
        with pytest.raises(InputError, match=f"'{own}'"):
            into(catalog, own, primary_keys=None)
    catalog.append("events", pa.table({"k": [1]}))
    with pytest.raises(InputError, match="'flat' is a destination of 'orders'"):
        catalog.append("flat", rows(1), {"day": "x"})


# --- a destination follows its source --------------------------------------------------------------------------------


@pytest.fixture
def numbers() -> DeltaStreamCatalog:
    """Table t with the key k, without rows."""
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    return catalog


def session(
    catalog: DeltaStreamCatalog, destination: str | None, settings: deltacompact.Settings = LOCAL, **arguments: Any
) -> SessionResult:
    """Compact t into the destination, or in place."""
    (session,) = deltacompact.compact(
        "t",
        delta_catalog_client=catalog,
        destination_compacted_table_id=destination,
        settings=settings,
        **arguments,
    ).sessions
    return session


def test_a_destination_never_refers_to_large_delta_files_of_its_source(
    numbers: DeltaStreamCatalog,
) -> None:
    settings = dataclasses.replace(LOCAL, limits=Limits(delta_kept_bytes_min=1))
    for first in (1, 3):
        numbers.append("t", pa.table({"k": [first, first + 1]}))
        session(numbers, "d", settings, rows_per_compacted_file=2)
    compacted = numbers.state("d", Partition()).compacted
    assert compacted is not None and [file.path.partition("/")[0] for file in compacted.files] == ["d", "d"]
    session(numbers, None)
    vacuum(numbers, "t", age_min_s=0, force=True)
    assert sorted(numbers.read("d")["k"].to_pylist()) == [1, 2, 3, 4]


@pytest.mark.parametrize("compacted_between", [False, True])
def test_a_destination_that_folded_a_delta_is_rebuilt_when_it_is_retracted(
    numbers: DeltaStreamCatalog, compacted_between: bool
) -> None:
    for position in (1, 2):
        numbers.append("t", pa.table({"k": [position]}), stream_position=position)
    session(numbers, "d")
    retract(numbers, "t", 2)
    if compacted_between:
        session(numbers, None)
    session(numbers, "d")
    assert numbers.read("d").equals(numbers.read("t")) and numbers.read("d")["k"].to_pylist() == [1]
    numbers.append("t", pa.table({"k": [3]}))
    session(numbers, "d")
    assert numbers.read("d")["k"].to_pylist() == [1, 3]
    assert session(numbers, "d").nothing_to_do is not None


def test_a_destination_is_emptied_with_its_source(numbers: DeltaStreamCatalog) -> None:
    numbers.append("t", pa.table({"k": [1]}), stream_position=1)
    session(numbers, "d")
    retract(numbers, "t", 1)
    session(numbers, "d")
    assert numbers.read("d").num_rows == 0 and session(numbers, "d").nothing_to_do is not None
    assert [report.problems for report in check(numbers, "d")] == [()]
    numbers.append("t", pa.table({"k": [2]}), stream_position=2)
    session(numbers, "d")
    assert numbers.read("d")["k"].to_pylist() == [2]

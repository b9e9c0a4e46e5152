"""Random deltas, compacted in random rounds and sessions. The oracle says which rows the table must then hold."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from budgets import examples
from columns import ALL_KINDS, KINDS, PAYLOADS, Kind, bag
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from oracle import Oracle, Row
from tables import problems

from deltacompact import DeltaStreamCatalog, SessionResult, Settings, compact
from deltacompact.base.limits import Limits
from deltacompact.storage.memory import MemoryStore

PROFILE = settings(
    max_examples=examples(150),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@dataclass
class File:
    rows: list[Row]
    types: dict[str, pa.DataType | str]


@dataclass
class GivenDelta:
    day: str | None
    operation: str
    position: int
    files: list[File]
    compact_after: dict[str, Any] | None


@dataclass
class Case:
    """A table and its deltas. `columns` has the kind of every column: keys, sort keys and payload."""

    keys: list[str]
    sort_keys: list[tuple[str, str]]
    retention: int | None
    partitioned: bool
    columns: dict[str, Kind] = field(repr=False)
    deltas: list[GivenDelta] = field(default_factory=list)


DIRECTIONS = st.sampled_from(["ascending", "descending"])
KEY_KINDS = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=2)
SORT_KINDS = st.lists(st.sampled_from(sorted(KINDS)), max_size=2)
RETENTIONS = st.none() | st.integers(0, 6)
PARTITIONS = st.sampled_from([[], ["1", None]])
FILES = st.integers(0, 2)
GAPS = st.integers(1, 4)
SESSIONS = st.fixed_dictionaries(
    {
        "hash_bucket_count": st.none() | st.integers(1, 5),
        "rows_per_compacted_file": st.sampled_from([1, 2, 3, 4_000_000]),
        "rows_per_primary_key_index_file": st.sampled_from([1, 2, 38_000_000]),
        "settings": st.builds(
            Settings,
            executor=st.just("local"),
            local_threads=st.just(1),
            rows_per_round=st.none() | st.integers(1, 8),
            row_group_rows=st.sampled_from([1, 2, 4, 131_072]),
        ),
        "adds_runs": st.booleans(),
    }
)
PERHAPS_SESSIONS = st.none() | SESSIONS


@st.composite
def cases(
    draw: st.DrawFn,
    key_kinds: st.SearchStrategy[list[str]] = KEY_KINDS,
    sort_kinds: st.SearchStrategy[list[str]] = SORT_KINDS,
    retention: st.SearchStrategy[int | None] = RETENTIONS,
    days: st.SearchStrategy[list[str | None]] = PARTITIONS,
    files: st.SearchStrategy[int] = FILES,
    sessions: st.SearchStrategy[dict[str, Any] | None] = PERHAPS_SESSIONS,
    payloads: tuple[str, ...] = tuple(PAYLOADS),
    operations: tuple[str, ...] = ("upsert", "upsert", "delete"),
    rows_max: int = 5,
    sort_columns_may_lack: bool = True,
    gaps: st.SearchStrategy[int] = GAPS,
) -> Case:
    drawn_keys, drawn_sort_keys, drawn_days = draw(key_kinds), draw(sort_kinds), draw(days)
    columns = {f"key{place}": KINDS[kind] for place, kind in enumerate(drawn_keys)}
    columns |= {f"sort{place}": ALL_KINDS[kind] for place, kind in enumerate(drawn_sort_keys)}
    case = Case(
        keys=[f"key{place}" for place in range(len(drawn_keys))],
        sort_keys=[(f"sort{place}", draw(DIRECTIONS)) for place in range(len(drawn_sort_keys))],
        retention=draw(retention),
        partitioned=bool(drawn_days),
        columns=columns | {name: PAYLOADS[name] for name in payloads},
    )
    position = draw(st.integers(-3, 3))
    upserted: set[str | None] = set()
    for _ in range(draw(st.integers(1, 6))):
        day = draw(st.sampled_from(drawn_days)) if case.partitioned else None
        operation = draw(st.sampled_from(operations))
        delta = GivenDelta(day, operation, position, [], draw(sessions))
        for _ in range(draw(files)):
            complete = not sort_columns_may_lack or (operation == "upsert" and day not in upserted)
            delta.files.append(draw(files_of(case, operation, payloads, rows_max, complete)))
            upserted |= {day} if operation == "upsert" else set()
        case.deltas.append(delta)
        position += draw(gaps)
    return case


@st.composite
def files_of(
    draw: st.DrawFn, case: Case, operation: str, payloads: tuple[str, ...], rows_max: int, with_all_sort_columns: bool
) -> File:
    sort_names = [name for name, _ in case.sort_keys]
    if with_all_sort_columns:
        chosen = sort_names
    elif operation == "delete":
        chosen = draw(st.sampled_from([sort_names, []]))  # all or none
    else:
        chosen = [name for name in sort_names if draw(st.booleans())]
    names = [*case.keys, *chosen, *(name for name in payloads if draw(st.booleans()))]
    types = {name: draw(st.sampled_from([pa.null(), *case.columns[name].types])) for name in names}
    row = st.fixed_dictionaries({name: st.none() | st.sampled_from(case.columns[name].values) for name in names})
    return File(draw(st.lists(row, max_size=rows_max)), types)


def as_table(case: Case, file: File, number: int, delta: GivenDelta) -> pa.Table:
    """Upserts number their rows, to show which row lives. Columns of deletes that are no keys may hold anything."""
    arrays = {}
    for name, type_ in file.types.items():
        if delta.operation == "delete" and name in PAYLOADS:
            arrays[name] = pa.array([b"?"] * len(file.rows), pa.binary())
        else:
            arrays[name] = case.columns[name].array([row[name] for row in file.rows], type_)
    if delta.operation == "upsert":
        arrays["origin"] = pa.array([f"{delta.position}/{number}/{i}" for i in range(len(file.rows))], pa.string())
        if case.partitioned and number == 0:
            arrays["day"] = pa.array([delta.day] * len(file.rows), pa.string())
    return pa.table(arrays)


def as_rows(file: File, number: int, delta: GivenDelta) -> list[Row]:
    if delta.operation == "delete":
        return file.rows
    return [{**row, "origin": f"{delta.position}/{number}/{i}"} for i, row in enumerate(file.rows)]


def read_rows(catalog: DeltaStreamCatalog, day: str | None, partitioned: bool) -> list[Row]:
    rows = catalog.read("t", {"day": day} if partitioned else None).to_pylist()
    assert {row.pop("day", day) for row in rows} <= {day}
    return rows


def assert_holds(catalog: DeltaStreamCatalog, oracles: dict[str | None, Oracle], partitioned: bool) -> None:
    for day, oracle in oracles.items():
        assert bag(read_rows(catalog, day, partitioned)) == bag(oracle.rows())


def assert_conserved(session: SessionResult) -> None:
    assert session.error is None
    assert session.rows_in == session.live + session.superseded + session.deleted


def create(case: Case) -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(MemoryStore())
    partition_keys = ["day"] if case.partitioned else []
    catalog.create_table("t", partition_keys, case.keys, case.sort_keys, tombstone_retention=case.retention)
    return catalog


def append(catalog: DeltaStreamCatalog, case: Case, delta: GivenDelta) -> None:
    tables = [as_table(case, file, number, delta) for number, file in enumerate(delta.files)]
    partition = {"day": delta.day} if case.partitioned else {}
    catalog.append("t", tables, partition, delta.operation, delta.position)


def assert_any_division_gives_the_oracles_rows(case: Case) -> None:
    catalog = create(case)
    oracles: dict[str | None, Oracle] = {}
    superseded: Counter[str | None] = Counter()
    deleted: Counter[str | None] = Counter()
    last = {"settings": Settings(executor="local")}
    for place, delta in enumerate(case.deltas, 1):
        append(catalog, case, delta)
        oracle = oracles.setdefault(delta.day, Oracle(case.keys, case.sort_keys, case.retention))
        oracle.apply(delta.position, delta.operation, [as_rows(f, n, delta) for n, f in enumerate(delta.files)])
        arguments = last if place == len(case.deltas) else delta.compact_after
        if arguments is not None:
            assert_holds(catalog, oracles, case.partitioned)
            for session in compacted(catalog, **arguments):
                assert_conserved(session)
                day = session.partition.get("day")
                superseded[day] += session.superseded
                deleted[day] += session.deleted
                if session.nothing_to_do is None:
                    assert session.live == len(oracles[day].rows())
            assert_holds(catalog, oracles, case.partitioned)
            assert problems(catalog) == []
    for day, oracle in oracles.items():
        assert (superseded[day], deleted[day]) == (oracle.superseded, oracle.deleted)


def compacted(catalog: DeltaStreamCatalog, adds_runs: bool = False, **arguments: Any) -> tuple[SessionResult, ...]:
    """`adds_runs`: add runs to the index and never merge them."""
    if adds_runs:
        limits = Limits(runs_max=math.inf, runs_share_max=math.inf, masks_share_of_index=math.inf)
        arguments["settings"] = replace(arguments.get("settings", Settings()), limits=limits)
    return compact("t", delta_catalog_client=catalog, **arguments).sessions

"""What a table holds after any deltas, in any division into rounds and sessions, is what the oracle says."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import Oracle, Row
from stores import unmeasured  # noqa: F401

from deltacompact import DeltaStreamCatalog, SessionResult, Settings, compact
from deltacompact.base.limits import Limits
from deltacompact.maintenance.check import check
from deltacompact.storage.memory import MemoryStore

PROFILE = settings(
    max_examples=150,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# --- columns: one domain of values, several physical types that files may give it ------------------------------------


@dataclass(frozen=True)
class Kind:
    """Values that collide often. Any file may have the column in any of the types that holds its values."""

    values: tuple[Any, ...] = field(repr=False)
    types: tuple[pa.DataType | str, ...] = field(repr=False)

    def array(self, values: list[Any], wanted: pa.DataType | str) -> pa.Array:
        """In the wanted type if it holds the values, else in the next one that does; the last one holds them all."""
        wider = self.types[self.types.index(wanted) :] if wanted in self.types else self.types
        for type_ in (wanted, *wider):
            try:
                array = built(values, type_)
                array.validate(full=True)
            except (pa.ArrowInvalid, OverflowError):
                continue
            if list(map(canonical, array.to_pylist())) == list(map(canonical, values)):
                return array
        raise AssertionError(f"{self.types[-1]} does not hold {values}")


def built(values: list[Any], type_: pa.DataType | str) -> pa.Array:
    if type_ == "dictionary":
        return pa.array(values, pa.string()).dictionary_encode()
    if type_ == "dictionary with nulls":
        return pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.int32()), pa.array(values, pa.string()))
    if type_ in (pa.string_view(), pa.binary_view()):
        return pa.array(values, pa.string() if type_ == pa.string_view() else pa.binary()).cast(type_)
    return pa.array(values, type_)


EVENING = datetime(1995, 4, 3, 20, 16, 32)
KINDS = {
    "integer": Kind(
        (0, 1, -1, 200, 70_000, 2**63 - 1, -(2**63)),
        (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64()),
    ),
    "unsigned": Kind((0, 1, 255, 2**64 - 1), (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    "float": Kind((0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan), (pa.float16(), pa.float32(), pa.float64())),
    "boolean": Kind((False, True), (pa.bool_(),)),
    "decimal": Kind(
        (Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), Decimal("99999999.99")),
        (pa.decimal128(4, 2), pa.decimal64(12, 2), pa.decimal128(12, 2), pa.decimal128(38, 2)),
    ),
    "date": Kind((date(1995, 4, 3), date(1995, 4, 4), date(1969, 12, 31)), (pa.date64(), pa.date32())),
    "timestamp": Kind(
        (EVENING, EVENING + timedelta(milliseconds=982), datetime(1969, 12, 31, 23, 59, 59)),
        (pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("us")),
    ),
    "instant": Kind(
        (
            EVENING.replace(tzinfo=UTC),
            EVENING.replace(tzinfo=UTC) + timedelta(hours=7),
            datetime(1969, 1, 1, tzinfo=UTC),
        ),
        (pa.timestamp("s", "UTC"), pa.timestamp("us", "America/Los_Angeles"), pa.timestamp("ms", "UTC")),
    ),
    "time": Kind(
        (time(0), time(13, 16, 32), time(13, 16, 32, 982_000)), (pa.time32("s"), pa.time32("ms"), pa.time64("us"))
    ),
    "duration": Kind(
        (timedelta(0), timedelta(seconds=-1), timedelta(milliseconds=1500)), (pa.duration("s"), pa.duration("ms"))
    ),
    "fixed bytes": Kind((b"\x00\x00", b"\xff\xfe", b"ab"), (pa.binary(2),)),
    "string": Kind(
        ("", "a", "aa", "é", "\x00", "a\x00", "nine byte", "sixteen bytes,é"),
        (pa.string_view(), "dictionary", "dictionary with nulls", pa.large_string(), pa.string()),
    ),
    "binary": Kind(
        (b"", b"\xff\xfe", b"ab", b"a", b"a\x00", b"\xff" * 12), (pa.binary(2), pa.large_binary(), pa.binary())
    ),
}
LONG_KINDS = {
    "long string": Kind(
        ("", "abc", "ab\x00", "abcdefghi", "abcdefghi\x00", "z" * 32, "é" * 16, "é" * 15 + "z"),
        (pa.string_view(), "dictionary", "dictionary with nulls", pa.large_string(), pa.string()),
    ),
    "long binary": Kind(
        (b"", b"abc", b"ab\x00", b"\xff" * 9, bytes(32), b"\xff" * 31),
        (pa.binary(3), pa.binary(32), pa.binary_view(), pa.large_binary(), pa.binary()),
    ),
}
"""Their values fit a sort key only where no other column needs room."""
ALL_KINDS = KINDS | LONG_KINDS
PAYLOADS = {
    "note": Kind(("x", "yy"), (pa.string(), "dictionary")),
    "amount": Kind((1, 300, 2**40), (pa.int8(), pa.int32(), pa.int64())),
    "pair": Kind(({"a": 1, "b": None}, {"a": None, "b": "z"}), (pa.struct([("a", pa.int32()), ("b", pa.string())]),)),
    "items": Kind(([], [1, None, 3]), (pa.list_(pa.int64()),)),
    "tags": Kind(([("k", 1)], []), (pa.map_(pa.string(), pa.int32()),)),
}


# --- deltas and divisions --------------------------------------------------------------------------------------------


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
    """A table and its deltas. `columns` has the kind of each column of a key, a sort key or the payload."""

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
    """Upserts number their rows, so that it is known which one lives; a delete's other columns may be anything."""
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


# --- comparing -------------------------------------------------------------------------------------------------------


def canonical(value: Any) -> Any:
    """Values that may be compared and hashed; NaN equals itself, whatever type of number it came in."""
    if isinstance(value, dict):
        return tuple((name, canonical(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(canonical(each) for each in value)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def bag(rows: Iterable[Row]) -> Counter[Any]:
    """Rows without regard to their order, and to columns in which they are null."""
    return Counter(frozenset((name, canonical(v)) for name, v in row.items() if v is not None) for row in rows)


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


# --- the properties --------------------------------------------------------------------------------------------------


def create(case: Case) -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(MemoryStore())
    partition_keys = ["day"] if case.partitioned else []
    catalog.create_table("t", partition_keys, case.keys, case.sort_keys, tombstone_retention=case.retention)
    return catalog


def append(catalog: DeltaStreamCatalog, case: Case, delta: GivenDelta) -> None:
    tables = [as_table(case, file, number, delta) for number, file in enumerate(delta.files)]
    partition = {"day": delta.day} if case.partitioned else {}
    catalog.append("t", tables, partition, delta.operation, delta.position)


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


@given(cases(sort_kinds=st.just(["boolean"]), retention=st.integers(0, 3), gaps=st.integers(1, 2), **EVENTFUL))
@PROFILE
def test_a_tombstone_blocks_for_as_long_as_it_is_retained_however_the_deltas_are_divided(case: Case) -> None:
    assert_any_division_gives_the_oracles_rows(case)


SEVERAL_TYPES = [name for name, kind in ALL_KINDS.items() if len(kind.types) > 1]


@pytest.mark.parametrize("kind", SEVERAL_TYPES)
@given(st.data())
@settings(PROFILE, max_examples=15)
def test_sort_keys_compare_the_same_in_whatever_types_files_and_index_have_them(kind: str, data: st.DataObject) -> None:
    case = data.draw(cases(sort_kinds=st.just([kind]), operations=("upsert",), **EVENTFUL))
    assert_any_division_gives_the_oracles_rows(case)


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
            assert [problem for each in check(catalog, "t") for problem in each.problems] == []
    for day, oracle in oracles.items():
        assert (superseded[day], deleted[day]) == (oracle.superseded, oracle.deleted)


def compacted(catalog: DeltaStreamCatalog, adds_runs: bool = False, **arguments: Any) -> tuple[SessionResult, ...]:
    """`adds_runs`: the index is never found so small that it is merged, whatever changes."""
    if adds_runs:
        limits = Limits(runs_max=math.inf, runs_share_max=math.inf, masks_share_of_index=math.inf)
        arguments["settings"] = replace(arguments.get("settings", Settings()), limits=limits)
    return compact("t", delta_catalog_client=catalog, **arguments).sessions


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

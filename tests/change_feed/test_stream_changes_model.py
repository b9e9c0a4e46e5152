"""Random histories of a delta stream: the feed between two of its moments is what a dictionary says.

upsert 1 a · compact · delete 1, upsert 2 b · compact · rollback · …        after each step the model is copied
any two of the copies                                                       net = EXCEPT ALL both ways, in pairs
the commits between them                                                    replayed, they make the one of the other
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from deltacompact import DeltaStreamCatalog, SchemaError, Settings
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.limits import LIMITS
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular.fingerprint import fingerprint_of

RELOCATING = replace(LIMITS, masks_share_of_index=1.0, runs_share_max=10.0)
SETTINGS = Settings(executor="local", local_threads=1)
MOVING = replace(SETTINGS, limits=RELOCATING)
MARKING = replace(SETTINGS, rewrite_dead_fraction=0.9)
IDS, VALUES = st.integers(0, 5), st.sampled_from(["a", "b", None])
UPSERT = st.tuples(st.just("upsert"), st.lists(st.tuples(IDS, VALUES), min_size=1, max_size=4))
DELETE = st.tuples(st.just("delete"), st.lists(IDS, min_size=1, max_size=3))
OTHERS = st.tuples(st.sampled_from(["compact", "move", "lay out", "mark", "rollback", "restate"]), st.integers(0, 3))
STEPS = st.lists(st.one_of(UPSERT, UPSERT, DELETE, OTHERS), min_size=2, max_size=8)

INTO = st.tuples(st.just("into"), st.integers(0, 2))
RETRACT = st.tuples(st.just("retract"), st.just(0))
INTO_FLAT = st.lists(st.one_of(UPSERT, UPSERT, DELETE, OTHERS, RETRACT, INTO, INTO, INTO), min_size=2, max_size=9)

ONE = st.tuples(st.just("upsert"), st.lists(st.tuples(IDS, VALUES), min_size=1, max_size=1))
GONE = st.tuples(st.just("delete"), st.lists(IDS, min_size=1, max_size=2))
MOVE = st.tuples(st.sampled_from(["move", "lay out"]), st.integers(0, 3))
MOVED = st.lists(st.tuples(st.one_of(ONE, GONE), MOVE, st.one_of(ONE, GONE)), min_size=1, max_size=3)

LANDED = {1: "l", 2: "l"}
REFER = st.tuples(st.just("refer"), st.sampled_from(["upsert", "delete"]))
REPAIR = st.sampled_from([("retract", 0), ("rollback", -2)])
REPAIRED = st.lists(st.tuples(st.one_of(ONE, GONE), REFER, REPAIR, REFER), min_size=1, max_size=2)


class History:
    """A stream, its clock, and what a dictionary says of each moment."""

    def __init__(self, landed: Path | None = None) -> None:
        self.now = 100
        self.landed = landed
        self.catalog = DeltaStreamCatalog(MemoryStore(), clock=lambda: float(self.now))
        self.table = self.catalog.create_table("t", primary_keys=["id"])
        self.rows: dict[int, Any] = {}
        self.moments: list[tuple[int, dict[int, Any]]] = [(self.now, {})]
        self.first = 0
        """When the first commit came; nobody goes back to before it."""
        self.waiting: list[tuple[int, int]] = []
        """The positions of deltas that nobody has compacted, and how many moments were before each."""
        self.flat: list[tuple[int, dict[int, Any]]] = []
        """The moments of the destination, after each compaction into it."""
        self.bookmarks: list[dict[int, Any]] = []
        """What each moment's bookmark has seen: of a delta that is taken back later, the moments have nothing."""

    def do(self, kind: str, given: Any) -> None:
        self.now += 10
        if kind in ("upsert", "delete", "refer", "restate"):
            self.first = self.first or self.now
        waiting, self.waiting = self.waiting, []
        match kind:
            case "upsert":
                delta = self.table.append(rows_of(given))
                self.rows, self.waiting = self.rows | dict(given), [*waiting, (delta.position, len(self.moments))]
            case "delete":
                delta = self.table.append(pa.table({"id": pa.array(given, pa.int64())}), operation="delete")
                self.rows, self.waiting = without(self.rows, given), [*waiting, (delta.position, len(self.moments))]
            case "refer":
                delta = self.table.append_files(self.landed, operation=given, reference=True)
                self.rows = self.rows | LANDED if given == "upsert" else without(self.rows, LANDED)
                self.waiting = [*waiting, (delta.position, len(self.moments))]
            case "retract" if waiting:
                *self.waiting, (position, number) = waiting
                self.table.retract(position)
                self.rows = self.moments[number - 1][1]
                self.moments[number:] = [(time, self.rows) for time, _ in self.moments[number:]]
            case "compact" | "mark":
                self.table.compact(settings=MARKING if kind == "mark" else SETTINGS)
            case "move" | "lay out":
                by = "v" if kind == "lay out" else None
                self.table.compact(settings=MOVING, cluster_by=by, rows_per_compacted_file=2 + given)
            case "into":
                settings = (SETTINGS, MARKING, MOVING)[given]
                self.table.compact(destination_compacted_table_id="flat", settings=settings)
                self.flat.append((self.now, self.rows))
            case "rollback":
                time, rows = self.moments[given % len(self.moments)]
                if self.rows != rows and time >= self.first:
                    self.table.rollback(at(time))
                    self.rows = rows
            case "restate":
                self.table.restate(pa.table({"id": pa.array([given], pa.int64()), "v": pa.array(["r"], pa.string())}))
                self.rows = {given: "r"}
        self.moments.append((self.now, self.rows))
        if self.landed:
            self.table.changes(bookmark=f"of-{len(self.bookmarks)}", from_="1970-01-01")
            self.table.commit_bookmark(f"of-{len(self.bookmarks)}")
            self.bookmarks.append(self.rows)


def rows_of(given: Iterable[tuple[int, Any]]) -> pa.Table:
    ids, values = zip(*given, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.string())})


def without(rows: dict[int, Any], keys: Collection[int]) -> dict[int, Any]:
    return {key: value for key, value in rows.items() if key not in keys}


def at(seconds: int) -> str:
    return f"1970-01-01 00:{seconds // 60:02}:{seconds % 60:02}"


def net(before: dict[int, Any], after: dict[int, Any]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for key in before.keys() | after.keys():
        match key in before, key in after:
            case True, False:
                found[key, before[key], "delete"] += 1
            case False, True:
                found[key, after[key], "insert"] += 1
            case _ if before[key] != after[key]:
                found[key, before[key], "update_before"] += 1
                found[key, after[key], "update_after"] += 1
    return found


def told(reader: pa.RecordBatchReader) -> list[dict[str, Any]]:
    return reader.read_all().to_pylist()


def shown(change: dict[str, Any]) -> tuple[Any, ...]:
    return change["id"], change["v"], change["_change_type"]


def replayed(rows: dict[int, Any], changes: list[dict[str, Any]]) -> dict[int, Any]:
    rows = dict(rows)
    for change in changes:
        match change["_change_type"]:
            case "delete" | "update_before":
                assert rows.pop(change["id"]) == change["v"]
            case _:
                assert change["id"] not in rows
                rows[change["id"]] = change["v"]
    return rows


def fingerprint(rows: list[tuple[int, Any]]) -> Fingerprint:
    columns = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = pa.Table.from_pylist([{"id": key, "v": value} for key, value in rows], columns)
    return fingerprint_of([table], columns, "")


def accounted(changes: list[dict[str, Any]]) -> Fingerprint:
    """What came less what went."""
    sides: dict[bool, list[tuple[int, Any]]] = {True: [], False: []}
    for change in changes:
        sides[change["_change_type"] in ("insert", "update_after")].append((change["id"], change["v"]))
    return fingerprint(sides[True]) - fingerprint(sides[False])


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(STEPS, st.data())
def test_the_feed_is_what_a_dictionary_says(steps, data):
    the_feed_is_what_a_dictionary_says([("upsert", [(0, "a"), (1, "b")]), *steps], data)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(MOVED, st.data())
def test_rows_that_compactions_moved_live_or_died_since(steps, data):
    first = ("upsert", [(number, "a") for number in range(6)]), ("compact", 0)
    the_feed_is_what_a_dictionary_says([*first, *itertools.chain.from_iterable(steps)], data)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(INTO_FLAT, st.data())
def test_the_feed_of_a_destination_is_what_a_dictionary_says(steps, data):
    history = History()
    for step in (("upsert", [(0, "a"), (1, "b")]), ("into", 0), *steps, ("into", 0)):
        history.do(*step)
    flat = history.catalog.table("flat")
    assert {row["id"]: row["v"] for row in flat.read().to_pylist()} == history.rows
    moments = [(100, {}), *history.flat]
    numbers = st.integers(0, len(moments) - 1)
    (begin, before), (end, after) = moments[data.draw(numbers)], moments[data.draw(numbers)]
    assert Counter(map(shown, told(flat.changes(at(begin), at(end), before=True)))) == net(before, after)
    if begin <= end:
        assert replayed(before, told(flat.changes(at(begin), at(end), per_commit=True, before=True))) == after
    rows: dict[int, Any] = {}
    for time, expected in history.flat:
        rows = replayed(rows, told(flat.changes(bookmark="q", from_=at(100), to=at(time), before=True)))
        flat.commit_bookmark("q")
        assert rows == expected


def test_a_compaction_into_a_destination_brings_changes():
    """Both of its versions counted as the same rows, so a mirror stayed empty, and its bookmark was done."""
    history = History()
    for step in (
        ("upsert", [(1, "a"), (2, "b")]),
        ("into", 0),
        ("upsert", [(2, "c"), (3, "d")]),
        ("delete", [1]),
        ("into", 0),
    ):
        history.do(*step)
    flat = history.catalog.table("flat")
    expected = [(1, "delete"), (2, "update_after"), (3, "insert")]
    assert sorted((row["id"], row["_change_type"]) for row in told(flat.changes("1", "2"))) == expected
    found = flat.diff("1", "2")
    assert (found.inserts, found.deletes, found.updates) == (1, 1, 1)
    assert {row["id"] for row in told(flat.changes(bookmark="mirror", from_="1970-01-01"))} == {2, 3}
    flat.commit_bookmark("mirror")
    assert told(flat.changes(bookmark="mirror")) == []
    history.do("upsert", [(4, "e")])
    history.do("into", 0)
    (change,) = told(flat.changes(bookmark="mirror"))
    assert (change["id"], change["_change_type"], change["_commit_timestamp"].timestamp()) == (4, "insert", 170)


@pytest.fixture(scope="module")
def landed(tmp_path_factory):
    path = tmp_path_factory.mktemp("landed") / "landed.parquet"
    pq.write_table(rows_of(LANDED.items()), path)
    return path


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(REPAIRED, st.data())
def test_a_file_comes_again_with_another_operation_after_the_first_was_taken_back(landed, steps, data):
    first = ("upsert", [(number, "a") for number in range(4)]), ("compact", 0)
    the_feed_is_what_a_dictionary_says([*first, *itertools.chain.from_iterable(steps)], data, landed)


@pytest.mark.parametrize("repair", [("retract", 0), ("rollback", -2)])
@pytest.mark.parametrize(("wrong", "right"), [("upsert", "delete"), ("delete", "upsert")])
def test_a_file_that_came_with_the_wrong_operation_is_not_taken_for_the_right_one(landed, wrong, right, repair):
    """The entries of a file were kept whatever its operation: mirrors kept deleted rows, or lost inserted ones."""
    history = History(landed)
    for step in (("upsert", [(1, "a"), (3, "a")]), ("compact", 0), ("refer", wrong), repair, ("refer", right)):
        history.do(*step)
    _, good, bad, _, now = history.bookmarks
    assert Counter(map(shown, told(history.table.changes("of-2", before=True)))) == net(bad, now)
    assert replayed(good, told(history.table.changes("of-1", per_commit=True, before=True))) == now


def the_feed_is_what_a_dictionary_says(steps, data, landed=None):
    history = History(landed)
    for kind, given_ in steps:
        history.do(kind, given_)
    numbers = st.integers(0, len(history.moments) - 1)
    first, last = data.draw(numbers), data.draw(numbers)
    if not any(rows for _, rows in history.moments):
        return
    small = data.draw(st.sampled_from([1, 1 << 30]))
    (time, before), (end, after) = history.moments[first], history.moments[last]
    begin = at(time)
    if first and history.bookmarks and data.draw(st.booleans()):
        begin, before = f"of-{first - 1}", history.bookmarks[first - 1]
    found = told(feed(history, begin, at(end), small))
    expected = net(before, after)
    assert Counter(map(shown, found)) == expected
    assert accounted(found) == fingerprint(list(after.items())) - fingerprint(list(before.items()))
    now = {row["id"]: row["v"] for row in history.table.read().to_pylist()}
    assert history.table.fingerprint() == fingerprint(list(now.items()))
    if first <= last:
        commits = told(history.table.changes(begin, at(end), per_commit=True, before=True))
        assert replayed(before, commits) == after
        ordinals = [row["_change_ordinal"] for row in commits]
        assert ordinals == sorted(ordinals)


def feed(history: History, begin: str, end: str, memory_bytes: int) -> pa.RecordBatchReader:
    from deltacompact.change_feed.changes import stream_changes
    from deltacompact.change_feed.request import ChangesRequest

    asked = ChangesRequest(before=True, held_bytes=memory_bytes)
    return stream_changes(history.catalog, "t", begin, end, None, asked)


def test_versions_are_exclusive_from_and_inclusive_to():
    history = History()
    for step in (
        ("upsert", [(1, "a"), (2, "b")]),
        ("compact", 0),
        ("upsert", [(2, "c"), (3, "d")]),
        ("delete", [1]),
        ("compact", 0),
        ("upsert", [(4, "e")]),
    ):
        history.do(*step)
    changes = history.table.changes
    assert sorted((row["id"], row["_change_type"]) for row in told(changes("0"))) == [
        *((1, "delete"), (2, "update_after"), (3, "insert"), (4, "insert")),
    ]
    assert told(changes("1", "1")) == [] and told(changes("2")) == []
    assert {row["id"] for row in told(changes(to="0"))} == {1, 2}
    assert {row["id"] for row in told(changes(at(130)))} == {1, 4}
    per_commit = told(changes(per_commit=True))
    assert [row["_change_ordinal"] for row in per_commit] == [0, 0, 1, 1, 2, 3]
    assert len({row["_commit_snapshot_id"] for row in per_commit}) == 4
    assert per_commit[0]["_commit_timestamp"].timestamp() == 110


def test_an_end_that_has_nothing_but_deletes_has_no_row_and_lacks_no_key():
    history = History()
    history.do("restate", 0)
    history.now += 10
    history.table.rollback("0")
    history.do("delete", [0])
    assert [(row["id"], row["_change_type"]) for row in told(history.table.changes(at(110)))] == [(0, "delete")]
    assert told(history.table.changes(at(120))) == []


@pytest.mark.parametrize("column", ["_change_type", "_commit_timestamp"])
def test_a_column_of_that_name_is_refused(column):
    from deltacompact import InputError

    catalog = DeltaStreamCatalog(MemoryStore())
    table = catalog.create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": [1], column: ["x"]}))
    with pytest.raises(InputError, match=f"table 't' has a column '{column}': leave it out with --columns"):
        table.changes()
    assert table.changes(columns=["id"]).read_all().num_rows == 1


@pytest.mark.parametrize("compacted", [False, True])
def test_a_column_that_has_other_values_than_a_file_without_rows_said(compacted):
    """One such file in any partition, and the table had no changes any more."""
    table = DeltaStreamCatalog(MemoryStore()).create_table("t", ["day"], ["id"])
    table.append(pa.table({"id": [1]}), {"day": "a"})
    table.append(pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.int64())}), {"day": "a"})
    table.append(pa.table({"id": [2], "v": ["x"]}), {"day": "b"})
    if compacted:
        table.compact(settings=SETTINGS)
    assert sorted((row["id"], row["v"]) for row in told(table.changes())) == [(1, None), (2, "x")]
    table.append(pa.table({"id": [1], "v": ["y"]}), {"day": "a"})
    assert sorted((row["id"], row["v"]) for row in told(table.changes())) == [(1, "y"), (2, "x")]


def test_a_column_that_a_restatement_gave_another_type_is_left_out_or_all_rows_are_taken_anew():
    """Its changes had no remedy, not even those of other columns."""
    table = DeltaStreamCatalog(MemoryStore()).create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": [1, 2], "v": [10, 20]}))
    table.changes(bookmark="mirror", from_="1970-01-01")
    table.commit_bookmark("mirror")
    table.restate(pa.table({"id": [2, 3], "v": ["x", "y"]}))
    for asked in ({"bookmark": "mirror"}, {"from_": "1970-01-01", "per_commit": True}):
        with pytest.raises(SchemaError, match="column 'v' is int64 and string in versions of this feed: take all rows"):
            table.changes(**asked)
    of_keys = told(table.changes(bookmark="mirror", columns=["id"]))
    assert sorted((row["id"], row["_change_type"]) for row in of_keys) == [(1, "delete"), (3, "insert")]
    anew = told(table.changes(bookmark="anew", from_="1970-01-01"))
    assert sorted((row["id"], row["v"]) for row in anew) == [(2, "x"), (3, "y")]


def test_a_value_that_the_type_of_a_restatement_does_not_hold_has_the_same_remedy():
    """The refusal named the file, and no way on: a consumer was stuck."""
    table = DeltaStreamCatalog(MemoryStore()).create_table("t", primary_keys=["id"])
    far = pa.array([253_402_300_799], pa.timestamp("s"))
    table.append(pa.table({"id": [1], "at": far}))
    table.changes(bookmark="mirror", from_="1970-01-01")
    table.commit_bookmark("mirror")
    table.restate(pa.table({"id": [2], "at": pa.array([1], pa.timestamp("ns"))}))
    with pytest.raises(SchemaError, match=r"column 'at' does not fit timestamp\[ns\]: .* empty mirror.* --columns"):
        told(table.changes(bookmark="mirror"))
    of_keys = told(table.changes(bookmark="mirror", columns=["id"]))
    assert sorted((row["id"], row["_change_type"]) for row in of_keys) == [(1, "delete"), (2, "insert")]
    assert [row["id"] for row in told(table.changes(bookmark="anew", from_="1970-01-01"))] == [2]


@pytest.mark.parametrize("float_type", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize(("old", "new"), [(0.0, -0.0), (-0.0, 0.0)])
def test_minus_zero_and_zero_are_one_key(float_type, old, new):
    """As a delete and an insert, in the order of digests, a consumer could lose the row."""
    now = iter(range(100, 200))
    table = DeltaStreamCatalog(MemoryStore(), clock=lambda: float(next(now))).create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": pa.array([old], float_type), "v": ["a"]}))
    table.compact(settings=SETTINGS)
    table.append(pa.table({"id": pa.array([new], float_type), "v": ["b"]}))
    changed = told(table.changes("0", before=True))
    assert [(row["v"], row["_change_type"]) for row in changed] == [("a", "update_before"), ("b", "update_after")]

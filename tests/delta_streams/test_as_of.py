"""A stream as of a moment: read it, and go back to it.

100 s upsert 1    200 s upsert 2    300 s compact    400 s upsert 3, delete 1    500 s compact
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from deltacompact import ConflictError, DeltaStreamCatalog, InputError, NotFoundError, vacuum
from deltacompact.base.model import Partition
from deltacompact.base.moments import milliseconds_of, moment_at, moment_of, spelled
from deltacompact.delta_streams.log.entries import Retracted
from deltacompact.delta_streams.retained import state_as_of, state_of_chain
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore

MOMENTS = {50: [], 100: [1], 150: [1], 200: [1, 2], 350: [1, 2], 400: [2, 3], 450: [2, 3], 600: [2, 3]}
"""The ids that live then."""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(tmp_path, clock) -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "lake"), clock=clock)
    table = catalog.create_table("t", primary_keys=["id"])
    for now, doing in (
        (100, lambda: table.append(pa.table({"id": [1]}))),
        (200, lambda: table.append(pa.table({"id": [2]}))),
        (300, table.compact),
        (400, lambda: table.append(pa.table({"id": [3]}))),
        (400, lambda: table.append(pa.table({"id": [1]}), operation="delete")),
        (500, table.compact),
    ):
        clock.now = now
        doing()
    clock.now = 600
    return catalog


class Once:
    """An event sink that acts on the first event only."""

    def __init__(self, act) -> None:
        self.acts = [act]

    def __call__(self, event) -> None:
        while self.acts:
            self.acts.pop()(event)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def ids(catalog: DeltaStreamCatalog, **selection) -> list[int]:
    return sorted(row["id"] for row in catalog.read("t", **selection).to_pylist())


def test_each_moment_has_its_rows(catalog):
    for seconds, expected in MOMENTS.items():
        assert ids(catalog, as_of=at(seconds)) == expected, seconds
        assert ids(catalog, as_of=at(seconds).isoformat()) == expected
    assert ids(catalog, as_of="1") == ids(catalog, version="1") == [2, 3]
    assert ids(catalog, as_of="1969-12-31") == []


@pytest.mark.parametrize("seconds", MOMENTS)
@pytest.mark.slow
def test_a_rollback_to_a_moment_has_its_rows_and_the_stream_goes_on(catalog, clock, seconds):
    table = catalog.table("t")
    if seconds == 50:  # a mistyped year would empty the table
        with pytest.raises(InputError, match=r"is before its first commit, of 1970-01-01 00:01:40\.000"):
            table.rollback(at(seconds))
        assert ids(catalog) == MOMENTS[600]
        return
    if seconds == 600:
        with pytest.raises(InputError, match="is the active one, with all that was committed to it"):
            table.rollback(at(seconds))
        return
    state = table.rollback(at(seconds))
    assert state.version.startswith("3-") and ids(catalog) == MOMENTS[seconds]
    assert table.history()[-1].operation == "rollback"
    clock.now = 700
    table.append(pa.table({"id": [9]}))
    table.compact()
    assert ids(catalog) == sorted([*MOMENTS[seconds], 9]) and table.check()[0].problems == ()


def test_a_mistyped_year_does_not_empty_a_table_that_a_restatement_began(tmp_path, clock):
    """Its first version has no commit, so this rollback emptied the table."""
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "lake"), clock=clock)
    table = catalog.create_table("t", primary_keys=["id"])
    clock.now = 100
    table.restate(pa.table({"id": [1]}))
    clock.now = 200
    table.append(pa.table({"id": [2]}))
    with pytest.raises(InputError, match=r"1926-11-20 is before its first commit, of 1970-01-01 00:01:40\.000"):
        table.rollback("1926-11-20")
    assert ids(catalog) == [1, 2]
    table.rollback("0")
    assert ids(catalog) == []


def test_a_file_is_taken_out_after_a_rollback_to_a_moment_before_a_retracted_delta(tmp_path, clock):
    """The version said that the delta is retracted, which it has not: each call found that "a delta was retracted"."""
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "lake"), clock=clock)
    table = catalog.create_table("t", primary_keys=["id"])
    deltas = []
    for clock.now in (100, 200):
        deltas.append(table.append(pa.table({"id": [int(clock.now)]})))
    table.retract(deltas[1].position)
    clock.now = 300
    rolled_back = table.rollback(at(150))
    assert (ids(catalog), rolled_back.retracted) == ([100], frozenset())
    log = catalog.log("t", Partition())
    by_older_release = log.active()
    log.put(by_older_release.version, by_older_release.tail, Retracted(deltas[1].position))  # as it was written
    taken = table.retract(file=deltas[0].files[0].path)
    assert (ids(catalog), taken.retracted, table.check()[0].problems) == ([], frozenset(), ())


def test_commits_since_the_last_compaction_are_rolled_back_too(catalog, clock):
    table = catalog.table("t")
    for clock.now in (610, 620):
        table.append(pa.table({"id": [int(clock.now)]}))
    table.rollback(at(615).isoformat())
    assert ids(catalog) == [2, 3, 610]
    assert table.append(pa.table({"id": [1]})).position > 620


def test_history_counts_what_each_version_brought(catalog):
    first, compacted, last = catalog.table("t").history()
    assert (first.operation, first.rows_added, first.deltas, first.time) == ("create", 0, 2, None)
    assert (compacted.rows_added, compacted.files_added, compacted.files_removed) == (2, 1, 0)
    assert compacted.session and compacted.bytes_added > 0
    assert last.rows == 2 and last.rows_added - last.rows_removed == 0


def test_a_compaction_that_kept_all_files_while_a_late_delta_was_retracted_is_no_rollback(catalog):
    table = catalog.table("t")
    table.append(pa.table({"id": [77]}), operation="delete")

    def meanwhile(event):
        late = table.append(pa.table({"id": [9]}))
        table.retract(late.position)

    table.compact(event_sinks=[Once(meanwhile)])
    made = table.history()[-1]
    assert (made.operation, made.files_added, made.files_removed) == ("compact", 0, 0)


def test_a_version_by_a_clock_that_is_beyond_the_calendar_has_no_time():
    """Its table had no history at all: "year 14645 is out of range"."""
    ahead = DeltaStreamCatalog(MemoryStore(), clock=lambda: 4e11)
    ahead.create_table("t", primary_keys=["id"]).append(pa.table({"id": [1]}))
    ahead.table("t").compact()
    assert [(made.operation, made.time) for made in ahead.table("t").history()] == [("create", None), ("compact", None)]


def test_tokens_of_a_version_are_those_of_its_own_commits(catalog):
    table = catalog.table("t")
    table.append(pa.table({"id": [9]}), token=("etl", 7))
    assert table.history()[-1].tokens == ("'etl' sequence 7",)
    table.compact()
    assert table.history()[-1].tokens == ()


def test_of_a_partitioned_table_a_moment_is_of_all_partitions(tmp_path, clock):
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "other"), clock=clock)
    table = catalog.create_table("t", ["day"], ["id"])
    for clock.now, day in ((100, "a"), (200, "b")):
        table.append(pa.table({"id": [int(clock.now)]}), {"day": day})
    assert ids(catalog, as_of=at(150)) == [100] and ids(catalog, as_of=at(250)) == [100, 200]
    with pytest.raises(InputError, match="version '1': each partition has its own versions, name a partition"):
        catalog.read("t", as_of="1")


@pytest.mark.parametrize("as_of", ["2026-13-01", "2026-01-01 25:00"])
def test_what_no_calendar_has_is_refused(catalog, as_of):
    with pytest.raises(InputError, match="is no time: write it like 2026-11-22"):
        catalog.read("t", as_of=as_of)


@pytest.mark.parametrize("as_of", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_what_utc_has_not_is_refused(catalog, as_of):
    with pytest.raises(InputError, match="is no time that UTC has: write one of the years 1 to 9999"):
        catalog.read("t", as_of=as_of)


@pytest.mark.parametrize("milliseconds", [1091128907712, 2170037711753, 2195772627713, -1, 0])
def test_a_printed_time_is_the_same_millisecond_when_it_is_given_again(milliseconds):
    assert milliseconds_of(moment_of(spelled(moment_at(milliseconds)))) == milliseconds


def test_both_names_at_once_are_refused(catalog):
    with pytest.raises(InputError, match="as_of and version say the same"):
        catalog.read("t", as_of="1", version="1")


STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "compact", "restate", "rollback"]), st.integers(0, 400)), max_size=9
)


@pytest.mark.slow
@given(STEPS, st.lists(st.integers(-5, 405), min_size=1, max_size=4))
def test_what_is_read_back_from_the_newest_version_is_what_the_whole_chain_says(steps, moments):
    """The clocks of compactors may go back, so versions need not be in the order of their times."""
    clock = Clock()
    catalog = DeltaStreamCatalog(MemoryStore(clock=lambda: 10_000.0), clock=clock)
    table = catalog.create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": [0]}))
    for number, (step, clock.now) in enumerate(steps, 1):
        rows = pa.table({"id": [number]})
        doing = {"append": table.append, "restate": table.restate}
        with contextlib.suppress(InputError, ConflictError):  # nothing came since that version
            doing[step](rows) if step in doing else table.compact() if step == "compact" else table.rollback("0")
    chain = list(catalog.log("t", Partition()).chain())
    names = [name for state in chain for name in (state.version, state.version[:6], str(state.opened.number))]
    for as_of in (*names, *map(at, moments), "", "9", "7-", "0-"):
        fresh = DeltaStreamCatalog(catalog.store, clock=clock)
        found = answer_of(state_as_of, fresh, "t", Partition(), as_of)
        assert found == answer_of(state_of_chain, catalog, "t", Partition(), chain, as_of), as_of


def answer_of(ask, *asked):
    """The state, or the words of the error."""
    try:
        return ask(*asked)
    except NotFoundError as error:
        return str(error)


def test_of_a_moment_that_is_vacuumed_the_oldest_version_left_is_named(catalog):
    vacuum(catalog, "t", age_min_s=0, force=True)
    (left,) = [info.version for info in catalog.table("t").versions() if info.retained]
    assert left == catalog.state("t", Partition()).version
    for as_of in (at(150), "1"):
        with pytest.raises(NotFoundError, match=f"the oldest version that is left: {left}"):
            catalog.read("t", as_of=as_of)


def test_a_read_of_a_moment_leaves_out_deltas_that_were_retracted_since(clock):
    table = DeltaStreamCatalog(MemoryStore(), clock=clock).create_table("t", primary_keys=["id"])
    for now in (100, 200):
        clock.now = now
        position = table.append(pa.table({"id": [now]})).position
    clock.now = 300
    table.retract(position)
    assert table.read(as_of=spelled(moment_at(250_000)))["id"].to_pylist() == [100]

"""Any one operation of the store may fail, before or after it took effect: nothing is lost and a rerun completes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow as pa
import pytest
from oracle import Oracle, Row
from stores import CHANGES, FailsAt, InterceptedStore, copy_of
from tables import problems

from deltacompact import CompactionResult, DeltaCompactError, DeltaStreamCatalog, Settings, StoreError, compact
from deltacompact.base.model import Partition
from deltacompact.executors.local import LocalExecutor
from deltacompact.maintenance.check import rehash_table
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.storage.memory import MemoryStore

TWO_ROUNDS = Settings(executor="local", local_threads=1, rows_per_round=4)
SORT_KEYS = [("t", "ascending")]

# position -> operation and files; keyed and keyless deletes, late rows, two files in a delta
BEFORE: dict[int, tuple[str, list[list[Row]]]] = {
    10: ("upsert", [[{"k": 1, "t": 1}, {"k": 2, "t": 1}], [{"k": 3, "t": 1}, {"k": 2, "t": 2}]]),
    20: ("delete", [[{"k": 1, "t": 5}, {"k": 3, "t": None}]]),
    30: ("upsert", [[{"k": 1, "t": 4}, {"k": 3, "t": 0}]]),
}
AFTER: dict[int, tuple[str, list[list[Row]]]] = {
    40: ("upsert", [[{"k": 1, "t": 6}, {"k": 4, "t": 1}]]),
    50: ("delete", [[{"k": 2, "t": None}]]),
}

KINDS = ["get", "put", "put_if_absent", "open", "writer", "list", "stat", "folders"]


def faults(*kinds: str) -> pytest.MarkDecorator:
    """Each kind, failing before it happens and after it did. A read that fails is the same read both times."""
    cases = [(kind, after) for kind in kinds for after in ((False, True) if kind in CHANGES else (False,))]
    ids = [f"{kind}-{'after' if after else 'before'}" for kind, after in cases]
    return pytest.mark.parametrize(("kind", "after"), cases, ids=ids)


class Run:
    """Create, append, compact, append, read, compact: again and again until every step has succeeded."""

    def __init__(self) -> None:
        self.oracle = Oracle(["k"], SORT_KEYS)
        self.acknowledged: list[int] = []
        self.results: list[CompactionResult] = []

    def attempt(self, catalog: DeltaStreamCatalog) -> None:
        catalog.create_table("t", primary_keys=["k"], sort_keys=SORT_KEYS)
        self._append(catalog, BEFORE)
        self._compact(catalog, hash_bucket_count=2)
        self._append(catalog, AFTER)
        assert catalog.tables() == ["t"]
        assert rows_of(catalog) == bag(self.oracle)
        self._compact(catalog, hash_bucket_count=3)
        assert rows_of(catalog) == bag(self.oracle)

    def _append(self, catalog: DeltaStreamCatalog, deltas: dict[int, tuple[str, list[list[Row]]]]) -> None:
        for position, (operation, files) in deltas.items():
            tables = [pa.Table.from_pylist(rows) for rows in files]
            delta = catalog.append("t", tables, None, operation, position, token=f"run-{position}")
            assert delta.position == position
            if position not in self.acknowledged:
                self.acknowledged.append(position)
                self.oracle.apply(position, operation, files)

    def _compact(self, catalog: DeltaStreamCatalog, hash_bucket_count: int) -> None:
        self.results.append(
            compact("t", delta_catalog_client=catalog, hash_bucket_count=hash_bucket_count, settings=TWO_ROUNDS)
        )


def rows_of(catalog: DeltaStreamCatalog) -> list[tuple[int, int]]:
    return sorted((row["k"], row["t"]) for row in catalog.read("t").to_pylist())


def bag(oracle: Oracle) -> list[tuple[int, int]]:
    return sorted((row["k"], row["t"]) for row in oracle.rows())


def what_may_be_read(run: Run) -> list[list[tuple[int, int]]]:
    """The acknowledged deltas; the next one may have been committed although its reply was lost."""
    everything = {**BEFORE, **AFTER}
    next_one = [position for position in everything if position not in run.acknowledged][:1]
    possible = []
    for seen in (run.acknowledged, [*run.acknowledged, *next_one]):
        oracle = Oracle(["k"], SORT_KEYS)
        for position in seen:
            oracle.apply(position, *everything[position])
        possible.append(bag(oracle))
    return possible


def rounds_recorded(store: MemoryStore) -> int:
    """Rounds that are complete in the session under way on the active version."""
    active = DeltaStreamCatalog(store).state("t", Partition()).version
    sessions = {stat.path.split("/")[2] for stat in store.list("t/sessions/")}
    open_ = [s for s in sessions if json.loads(store.get(f"t/sessions/{s}/plan.json"))["destination_version"] == active]
    return sum(1 for session in open_ for _ in store.list(f"t/sessions/{session}/round-"))


def each_failure(kind: str, after: bool, work: Callable[[Any, FailsAt], None]) -> int:
    """Run `work` with the first, second, … operation of a kind failing, until none is left to fail."""
    at = 0
    while True:
        failing = FailsAt(at, kinds={kind}, after=after)
        work(MemoryStore(), failing)
        if failing.failed is None:
            return at
        at += 1


@pytest.mark.slow
@faults(*KINDS)
def test_whichever_operation_fails_the_table_is_intact_and_a_rerun_completes(kind: str, after: bool) -> None:
    def work(store: MemoryStore, failing: FailsAt) -> None:
        run = Run()
        try:
            run.attempt(DeltaStreamCatalog(InterceptedStore(store, failing)))
        except DeltaCompactError as error:
            assert "\n" not in str(error)
            if run.acknowledged:
                assert rows_of(DeltaStreamCatalog(store)) in what_may_be_read(run), failing.failed
                assert problems(DeltaStreamCatalog(store)) == []
        run.attempt(DeltaStreamCatalog(store))
        assert problems(DeltaStreamCatalog(store)) == [], failing.failed

    assert each_failure(kind, after, work) >= 1


@faults(*KINDS)
@pytest.mark.slow
def test_whichever_operation_of_a_compaction_fails_its_rounds_are_not_repeated(kind: str, after: bool) -> None:
    resumed, run, prepared = [], Run(), MemoryStore()
    first = DeltaStreamCatalog(prepared)
    first.create_table("t", primary_keys=["k"], sort_keys=SORT_KEYS)
    run._append(first, BEFORE)

    def work(_: MemoryStore, failing: FailsAt) -> None:
        store = copy_of(prepared)
        plain = DeltaStreamCatalog(store)
        try:
            run._compact(DeltaStreamCatalog(InterceptedStore(store, failing)), hash_bucket_count=2)
        except DeltaCompactError:
            recorded = rounds_recorded(store)
            run._compact(DeltaStreamCatalog(store), hash_bucket_count=2)
            (session,) = run.results[-1].sessions
            if session.nothing_to_do is None:
                assert session.rounds == 2
                assert session.rounds_resumed == recorded, failing.failed
                resumed.append(recorded)
        assert rows_of(plain) == bag(run.oracle)
        assert problems(DeltaStreamCatalog(store)) == []

    each_failure(kind, after, work)
    if kind == "put_if_absent":
        assert set(resumed) == {0, 1, 2}  # there were failures to resume from at every stage


@pytest.mark.slow
@faults(*KINDS, "delete")
def test_whichever_operation_of_a_rehash_or_a_vacuum_fails_the_table_is_intact(kind: str, after: bool) -> None:
    now_s = [1e9]
    run, prepared = Run(), MemoryStore(clock=lambda: now_s[0])
    run.attempt(DeltaStreamCatalog(prepared, clock=lambda: now_s[0]))
    now_s[0] += 4 * 24 * 3600

    def work(_: MemoryStore, failing: FailsAt) -> None:
        store = copy_of(prepared)
        broken = DeltaStreamCatalog(InterceptedStore(store, failing), clock=lambda: now_s[0])
        for maintain in (lambda c: rehash_table(c, "t", 5, LocalExecutor(TWO_ROUNDS)), lambda c: vacuum(c, "t")):
            try:
                maintain(broken)
            except DeltaCompactError:
                assert rows_of(DeltaStreamCatalog(store)) == bag(run.oracle)
                assert problems(DeltaStreamCatalog(store)) == []
                maintain(DeltaStreamCatalog(store, clock=lambda: now_s[0]))
        assert rows_of(DeltaStreamCatalog(store)) == bag(run.oracle)
        assert problems(DeltaStreamCatalog(store)) == []

    each_failure(kind, after, work)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_commit_whose_put_fails_once_is_acknowledged_all_the_same_and_is_there_once(after: bool) -> None:
    store, broken = MemoryStore(), []

    def intercept(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if kind != "put_if_absent" or not path.endswith("00000001.json") or broken:
            return act()
        broken.append(path)
        if after:
            act()
        raise StoreError("no reply")

    catalog = DeltaStreamCatalog(InterceptedStore(store, intercept))
    catalog.create_table("t")
    catalog.append("t", pa.table({"k": [1]}), stream_position=7)
    assert broken
    assert DeltaStreamCatalog(store).read("t").to_pydict() == {"k": [1]}


class BreaksOff:
    """A file that can be opened but not read: the connection is gone."""

    closed = False

    def read(self, *_: Any) -> bytes:
        raise OSError("connection reset by peer")

    seek = tell = size = read

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


class BreakingStore(InterceptedStore):
    """Whose `at`-th opened file breaks off."""

    def __init__(self, inner: MemoryStore, at: int) -> None:
        super().__init__(inner, lambda kind, path, act: act())
        self.at = at
        self.opened = 0

    def open(self, path: str) -> pa.NativeFile:
        place, self.opened = self.opened, self.opened + 1
        return pa.PythonFile(BreaksOff(), mode="r") if place == self.at else self.inner.open(path)


@pytest.mark.slow
def test_a_connection_that_breaks_while_a_file_is_read_is_the_stores_fault_and_may_be_retried() -> None:
    at = 0
    while True:
        store, run = MemoryStore(), Run()
        breaking = BreakingStore(store, at)
        try:
            run.attempt(DeltaStreamCatalog(breaking))
        except DeltaCompactError as error:
            assert isinstance(error, StoreError), f"open number {at}: {error!r}"
        run.attempt(DeltaStreamCatalog(store))
        if breaking.opened <= at:
            break
        at += 1
    assert at > 10


class FullDisk(InterceptedStore):
    """Whose files break off while they are written."""

    def writer(self, path: str) -> Iterator[IO[bytes]]:  # type: ignore[override]
        raise StoreError(f"{path}: no space left")


def test_nothing_is_committed_when_no_file_can_be_written() -> None:
    store = MemoryStore()
    full = DeltaStreamCatalog(FullDisk(store, lambda kind, path, act: act()))
    full.create_table("t", primary_keys=["k"])
    with pytest.raises(StoreError, match="no space left"):
        full.append("t", pa.table({"k": [1]}))
    assert [stat.path for stat in store.list("t/data/")] == []
    assert DeltaStreamCatalog(store).partitions("t") == []

"""How many requests each operation makes: never more than docs/requests.md says, at any length of log and history.

Every operation runs in a process that remembers nothing, unless it says "again". `DELTACOMPACT_WRITE_DOCS=1 pytest
tests/delta_streams/test_requests.py` writes today's numbers into the page.

How many requests wait for each other is measured with a store that takes a while to answer.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from counting_store import CountingStore

from deltacompact import DeltaStreamCatalog, Settings, compact
from deltacompact.base.errors import ConflictError
from deltacompact.base.limits import Limits
from deltacompact.base.model import Partition
from deltacompact.base.settings import Options
from deltacompact.base.wording import counted
from deltacompact.delta_streams.file_lists import publish
from deltacompact.delta_streams.partition import DeltaStreamPartition
from deltacompact.delta_streams.streams import VACUUM_AGE_MIN_S
from deltacompact.delta_streams.versions import retract, rollback
from deltacompact.executors.local import LocalExecutor
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.job import Request, prepare
from deltacompact.maintenance.check import check, rehash_table
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.reports.table_report import table_document
from deltacompact.storage.memory import MemoryStore
from sessions.watch.statistics import statistics_of

PAGE = Path(__file__).parents[2] / "docs/requests.md"
_TABLE = re.compile(r"(?<=<!-- measured -->\n).*?(?=<!-- end -->)", re.S)
LOCAL = Settings(executor="local", local_threads=2)


class Lake:
    """A table "t", partitioned by p or not, in a store that counts. Streams have appends of one row each."""

    def __init__(self, partitions: int = 1, appends: int = 0, versions: int = 0) -> None:
        self.now_s = 1_000_000_000.0
        self.store = CountingStore(MemoryStore(clock=lambda: self.now_s))
        self.names = [{"p": f"{number:05}"} for number in range(partitions)] if partitions > 1 else [{}]
        self.versions = versions
        self.warm = self.fresh()
        self.warm.create_table("t", ["p"] if partitions > 1 else [], ["k"])
        for _ in range(versions):
            self.append_to_all(1)
            self.compact(self.warm)
        self.append_to_all(appends)

    def fresh(self) -> DeltaStreamCatalog:
        return DeltaStreamCatalog(self.store, clock=lambda: self.now_s)

    def copy(self) -> Lake:
        """The same objects in a store of its own. No process remembers anything of it."""
        other = copy.copy(self)
        other.store = CountingStore(MemoryStore(clock=lambda: other.now_s))
        for stat in self.store.inner.list(""):
            other.now_s = stat.modified_s
            other.store.inner.put(stat.path, self.store.inner.get(stat.path))
        other.now_s = self.now_s
        other.warm = other.fresh()
        return other

    @property
    def before(self) -> str:
        """The version that the last compaction has replaced."""
        return str(self.versions - 1)

    def append_to_all(self, appends: int) -> None:
        for values in self.names:
            for _ in range(appends):
                self.append(self.warm, values)

    def append(self, catalog: DeltaStreamCatalog, values: dict[str, str] | None = None) -> None:
        self.now_s += 1
        catalog.append("t", pa.table({"k": [int(self.now_s)]}), values or self.names[0])

    def compact(self, catalog: DeltaStreamCatalog) -> None:
        self.now_s += 1
        assert not compact("t", delta_catalog_client=catalog, settings=LOCAL).errors

    def vacuum_days_later(self) -> None:
        self.now_s += 2 * VACUUM_AGE_MIN_S
        vacuum(self.fresh(), "t")

    def partition(self, number: int = 0) -> Partition:
        return Partition(tuple(self.names[number].items()))

    def counted(self, work: Callable[[], Any]) -> list[tuple[str, str]]:
        """The requests that the work makes."""
        self.store.reset()
        work()
        return self.store.requests


Size = tuple[int, int, int]
"""Of a lake: partitions, appends to each, versions of each."""


_MADE: dict[Size, Lake] = {}
"""Each lake as it was made, to be copied."""


def made(size: Size) -> Lake:
    """A lake whose process remembers it."""
    lake = Lake(*size)
    _MADE[size] = lake.copy()
    return lake


def copied(size: Size) -> Lake:
    """A lake that nobody remembers. It is made once."""
    if size not in _MADE:
        made(size)
    return _MADE[size].copy()


@dataclass(frozen=True)
class Operation:
    """An operation on a lake. `bound`: the requests that it may make in a stream, or in a table if it says so.

    `again`: the process that made the lake does it.
    """

    name: str
    bound: int
    lakes: dict[str, Size]
    work: Callable[[Lake], Any]
    counts: Callable[[str], bool] = lambda path: True
    prepare: Callable[[Lake], Any] = lambda lake: None
    again: bool = False

    def lake(self, size: Size) -> Lake:
        return made(size) if self.again else copied(size)

    def measure(self, size: Size) -> int:
        lake = self.lake(size)
        self.prepare(lake)
        return sum(self.counts(path) for _, path in lake.counted(lambda: self.work(lake)))


def is_no_data(path: str) -> bool:
    """What a compaction reads and writes of rows and index depends on the rows."""
    return "/data/" not in path and "/index/" not in path


def lakes(*sizes: tuple[int, int]) -> dict[str, Size]:
    """One stream each, of so many appends after so many versions."""
    return {
        f"{counted(appends, 'delta')} after {counted(versions, 'compaction')}": (1, appends, versions)
        for appends, versions in sizes
    }


LENGTHS = lakes((10, 0), (1000, 0), (10, 1), (130, 30))
IDLE = lakes((0, 1), (0, 30))
HISTORIES = lakes((3, 2), (3, 30))


def many(appends: int) -> dict[str, Size]:
    return {"100 partitions": (100, appends, 1)}


def change_one(lake: Lake) -> None:
    lake.compact(lake.fresh())
    lake.append(lake.warm, lake.names[7])


def compact_and_vacuum(lake: Lake) -> None:
    lake.vacuum_days_later()
    lake.append_to_all(1)
    lake.compact(lake.warm)
    lake.now_s += 2 * VACUUM_AGE_MIN_S


def bookmarked(lake: Lake) -> None:
    """A consumer has taken all but what came since the last compaction."""
    lake.warm.table("t").changes(lake.before, bookmark="mirror").read_all()


def vacuum_stream(lake: Lake) -> None:
    vacuum(lake.fresh(), "t", lake.partition())


def read_before(lake: Lake) -> None:
    lake.fresh().read("t", version=lake.before)


def changes_of_last(lake: Lake) -> None:
    lake.fresh().table("t").changes(lake.before).read_all()


def stream_of(lake: Lake) -> DeltaStreamPartition:
    catalog = lake.fresh()
    table = catalog.described("t")
    return DeltaStreamPartition(catalog, table, "t", lake.partition(), table.keys)


def begin_a_session(lake: Lake) -> None:
    """An attempt that was fenced off leaves its plan."""
    stream_of(lake).fence_attempt("run-1/1/1")
    lake.now_s += 1
    with pytest.raises(ConflictError, match="run-1/1/1 was fenced"):
        compact("t", delta_catalog_client=lake.fresh(), settings=LOCAL, attempt="run-1/1/1")


def look_for_what_it_published(lake: Lake) -> None:
    """As a dispatcher does before the next attempt."""
    plan = max(lake.store.inner.list("t/sessions/"), key=lambda stat: stat.modified_s).path
    lake.store.reset()
    assert stream_of(lake).published_by(plan.split("/")[2]) is None


def poll(lake: Lake) -> None:
    lake.fresh().table("t").changes(bookmark="mirror").read_all()


def all_taken(lake: Lake) -> None:
    """A consumer has taken all."""
    lake.warm.table("t").changes("1970-01-01", bookmark="mirror").read_all()
    lake.warm.table("t").commit_bookmark("mirror")


OPERATIONS = [
    Operation("append, again", 4, LENGTHS, lambda lake: lake.append(lake.warm), again=True),
    Operation("append", 7, LENGTHS, lambda lake: lake.append(lake.fresh())),
    Operation("append the first delta of a partition", 11, lakes((0, 0)), lambda lake: lake.append(lake.fresh())),
    Operation(
        "append to a new partition (reads another)",
        18,
        many(1),
        lambda lake: lake.append(lake.fresh(), {"p": "1000"}),
    ),
    Operation("open a stream to read", 4, LENGTHS, lambda lake: lake.fresh().state("t", lake.partition())),
    Operation("open a stream to compact", 4, LENGTHS, lambda lake: lake.fresh().state("t", lake.partition(), True)),
    Operation("read", 9, LENGTHS, lambda lake: lake.fresh().read("t"), is_no_data),
    Operation("read the version before", 12, HISTORIES, read_before, is_no_data),
    Operation("changes since the version before", 12, HISTORIES, changes_of_last, is_no_data),
    Operation("changes of a bookmark", 15, HISTORIES, poll, is_no_data, prepare=bookmarked),
    Operation("poll a bookmark, nothing came", 115, many(0), poll, prepare=all_taken),
    Operation("show a table", 9, LENGTHS, lambda lake: table_document(lake.fresh(), "t")),
    Operation("plan", 9, LENGTHS, lambda lake: prepare(lake.fresh(), Request("t"))),
    Operation("compact for the first time", 20, lakes((3, 0)), lambda lake: lake.compact(lake.fresh()), is_no_data),
    Operation("compact", 20, lakes((3, 1), (3, 30)), lambda lake: lake.compact(lake.fresh()), is_no_data),
    Operation("compact, nothing to do", 6, IDLE, lambda lake: lake.compact(lake.fresh())),
    Operation("compact again, nothing to do", 2, IDLE, lambda lake: lake.compact(lake.warm), again=True),
    Operation(
        "take over a session",
        7,
        HISTORIES,
        look_for_what_it_published,
        is_no_data,
        prepare=begin_a_session,
    ),
    Operation("compact a table, nothing to do", 20, many(0), lambda lake: lake.compact(lake.fresh())),
    Operation(
        "compact a table, one partition changed",
        60,
        many(0),
        lambda lake: lake.compact(lake.fresh()),
        prepare=change_one,
    ),
    Operation("list the partitions of a table", 5, many(0), lambda lake: lake.fresh().partitions("t")),
    Operation("retract", 7, lakes((10, 1)), lambda lake: retract(lake.fresh(), "t", newest(lake)), again=True),
    Operation("roll back to the version before", 30, HISTORIES, lambda lake: rollback(lake.fresh(), "t", lake.before)),
    Operation("restate", 14, lakes((3, 1)), lambda lake: lake.fresh().restate("t", pa.table({"k": [1]}))),
    Operation("rehash", 14, lakes((3, 1)), lambda lake: rehashed(lake.fresh()), is_no_data),
    Operation("publish lists of files", 10, lakes((0, 1)), lambda lake: publish(lake.fresh(), "t")),
    Operation("vacuum, again", 3, IDLE, vacuum_stream, prepare=Lake.vacuum_days_later),
    Operation(
        "vacuum a table, again",
        305,
        many(0),
        lambda lake: vacuum(lake.fresh(), "t"),
        prepare=Lake.vacuum_days_later,
    ),
    Operation("vacuum after one compaction", 25, IDLE, vacuum_stream, prepare=compact_and_vacuum),
]


def rehashed(catalog: DeltaStreamCatalog) -> None:
    options = Options.of(LOCAL)
    assert rehash_table(catalog, "t", 3, LocalExecutor(options), options=options)


def newest(lake: Lake) -> int:
    return lake.warm.state("t", lake.partition()).deltas[-1].position


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, int]]:
    """The requests of each operation, by lake. First those that make lakes anew, which the others have copies of."""
    return {
        operation.name: {name: operation.measure(size) for name, size in operation.lakes.items()}
        for operation in sorted(OPERATIONS, key=lambda operation: not operation.again)
    }


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_operation_keeps_its_bound(operation: Operation, measured: dict[str, dict[str, int]]) -> None:
    assert max(measured[operation.name].values()) <= operation.bound, measured[operation.name]


READ_ALL: dict[str, Callable[[Lake], Any]] = {
    "check": lambda lake: check(lake.fresh(), "t"),
    "history": lambda lake: lake.fresh().table("t").history(),
    "vacuum --full": lambda lake: vacuum(lake.fresh(), "t", full=True),
}
"""They read each entry ever put, so they have no bound. The page says what they make for each append and compaction."""


@pytest.mark.slow
@pytest.mark.parametrize("name", READ_ALL)
@pytest.mark.parametrize("size", [*HISTORIES.values(), (1, 130, 30)], ids=str)
def test_what_reads_all_makes_so_many_requests_for_each_entry(name: str, size: Size) -> None:
    _, appends, versions = size
    lake = copied(size)
    made = sum(is_no_data(path) for _, path in lake.counted(lambda: READ_ALL[name](lake)))
    assert made <= 30 + (appends + versions) + 7 * versions
    told = " ".join(PAGE.read_text().split())
    assert f"`{name}`" in told and "one more for each append, seven for each compaction" in told


@pytest.mark.slow
def test_the_page_has_the_bounds_and_todays_numbers(measured: dict[str, dict[str, int]]) -> None:
    lines = ["| operation | at most | measured |", "|---|---|---|"]
    for operation in OPERATIONS:
        counts = measured[operation.name].values()
        told = "…".join(map(str, sorted({min(counts), max(counts)})))
        lines.append(f"| {operation.name} | {operation.bound} | {told} |")
    text = PAGE.read_text()
    told = _TABLE.sub("\n" + "\n".join(lines) + "\n\n", text)
    if os.environ.get("DELTACOMPACT_WRITE_DOCS"):
        PAGE.write_text(told)
    else:
        assert told == text


CHAINS = {
    "append": 5,
    "read": 5,
    "compact for the first time": 16,
    "compact": 19,
    "compact, nothing to do": 3,
    "compact again, nothing to do": 2,
    "compact a table, one partition changed": 22,
}
"""So many requests at most wait for each other, those included that read and write rows and index. The page says so."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_requests_that_do_not_need_each_other_are_sent_together(name: str) -> None:
    """Requests that overlap once do not need each other. On a busy machine a thread may begin late, so look again."""
    operation = next(operation for operation in OPERATIONS if operation.name == name)
    for _ in range(4):
        lake = operation.lake(next(iter(operation.lakes.values())))
        operation.prepare(lake)
        lake.store.reset()
        lake.store.latency_s = 0.03
        operation.work(lake)
        if len(lake.store.chain()) <= CHAINS[name]:
            break
    assert len(lake.store.chain()) <= CHAINS[name], lake.store.chain()
    assert f"| {name} | {CHAINS[name]} |\n" in PAGE.read_text()


def one_is_new(lake: Lake) -> None:
    """A consumer has taken all, and then something came in one partition."""
    all_taken(lake)
    lake.append(lake.warm, lake.names[7])


SIDE_BY_SIDE: dict[str, tuple[int, Callable[[Lake], Any], Callable[[Lake], Any]]] = {
    "poll a bookmark": (50, one_is_new, poll),
    "look at a table that is watched": (40, lambda lake: None, lambda lake: statistics_of(lake.fresh(), "t", 2e9)),
    "look again": (
        30,
        lambda lake: statistics_of(lake.warm, "t", 2e9),
        lambda lake: statistics_of(lake.warm, "t", 2e9),
    ),
    "history": (50, lambda lake: None, lambda lake: lake.fresh().table("t").history()),
    "readable by": (40, lambda lake: None, lambda lake: lake.fresh().table("t").check(readable_by="duckdb")),
}
"""So many requests at most wait for each other, of 60 partitions: one after the other they would be 60 to 700."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_partitions_are_looked_at_side_by_side(name: str) -> None:
    """On a busy machine a thread may begin late, so look again."""
    bound, prepare, work = SIDE_BY_SIDE[name]
    for _ in range(4):
        lake = copied((60, 0, 1))
        prepare(lake)
        lake.store.reset()
        lake.store.latency_s = 0.03
        work(lake)
        if len(lake.store.chain()) <= bound:
            break
    assert len(lake.store.chain()) <= bound, lake.store.chain()


@pytest.mark.slow
def test_the_chain_does_not_grow_with_the_number_of_hash_buckets() -> None:
    """Two CPUs, 64 buckets in 8 tasks: their index files are read and written side by side."""
    lake = Lake()
    for start in (0, 500, 1000):
        lake.warm.append("t", pa.table({"k": range(start, start + 1000)}))
    settings = Settings(executor="local", limits=Limits(groups=8))
    for start, rows in (2000, 0), (0, 100):
        lake.warm.append("t", pa.table({"k": range(start, start + rows)}, pa.schema([("k", pa.int64())])))
        lake.store.reset()
        lake.store.latency_s = 0.04
        compact("t", delta_catalog_client=lake.fresh(), hash_bucket_count=64, settings=settings)
        assert len(lake.store.chain()) <= 22, lake.store.chain()
        lake.store.latency_s = 0.0


def test_an_index_file_has_the_bytes_that_its_manifest_says() -> None:
    lake = Lake(1, 3)
    lake.compact(lake.fresh())
    manifest = read_manifest(lake.store, lake.fresh().state("t", Partition()).index)
    assert [file.bytes for file in manifest.files] == [lake.store.stat(file.path).bytes for file in manifest.files]
    lake.append_to_all(1)
    fetched = [path for kind, path in lake.counted(lambda: lake.compact(lake.fresh())) if kind == "fetch"]
    assert [path for path in fetched if "/index/" in path and "masks" not in path] == [
        file.path for file in manifest.files
    ]


def test_a_log_that_an_older_release_wrote_has_no_head_and_gets_one_with_the_next_append() -> None:
    lake = Lake(1, 40)
    lake.store.inner.delete(["t/stream/hint.json"])
    assert len(lake.counted(lambda: lake.fresh().state("t", lake.partition()))) > 40
    lake.append(lake.fresh())
    assert len(lake.counted(lambda: lake.fresh().state("t", lake.partition()))) <= 4


@pytest.mark.parametrize("at_once", [1, 64])
@pytest.mark.slow
def test_partitions_are_opened_side_by_side_and_a_bad_one_does_not_end_the_others(at_once: int) -> None:
    lake = Lake(20, 2)
    path = "t/p=00003/stream/0/00000000000000000001.json"
    lake.store.inner.delete([path, "t/p=00003/stream/hint.json"])
    catalog = lake.fresh()
    catalog.at_once = at_once
    sessions = compact("t", delta_catalog_client=catalog, settings=LOCAL).sessions
    assert [dict(session.partition) for session in sessions] == lake.names
    errors = {session.partition["p"]: str(session.error) for session in sessions if session.error}
    assert list(errors) == ["00003"] and path in errors["00003"]
    assert [session.live for session in sessions if not session.error] == [2] * 19

"""Consumers that poll a table of partitions on a store behind a network: each change is theirs once.

upsert 3 into p=1 · compact · delete 3 · poll · commit · upsert 5 into p=2 · rollback of p=1 · poll · poll · commit …
"""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pytest
from budgets import examples
from counting_store import CountingStore
from hypothesis import given, settings
from hypothesis import strategies as st

from deltacompact import DeltaStreamCatalog, Settings, vacuum
from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.delta_streams.log.objects import LogLimits
from deltacompact.storage.memory import MemoryStore

LOCAL = Settings(executor="local", local_threads=1)
LIMITS = LogLimits(streams_listed_min=1, keys_in_a_page=5)
PARTITIONS, KEYS = st.integers(0, 3), st.integers(0, 5)
WRITES = st.tuples(st.sampled_from(["upsert", "upsert", "delete"]), PARTITIONS, KEYS)
CHORES = st.tuples(st.sampled_from(["compact", "rollback", "vacuum", "spoil", "forget"]), PARTITIONS, KEYS)
POLLS = st.tuples(st.sampled_from(["poll", "poll", "commit"]), PARTITIONS, KEYS)
NEW = ("insert", "update_after")
"""What a row is after a change. A batch has it behind what the row was before."""
STEPS = st.lists(st.one_of(WRITES, WRITES, CHORES, POLLS), min_size=4, max_size=16)


class Lake:
    """A table of partitions p=0 … p=3, a consumer with a bookmark, and what the consumer has applied."""

    def __init__(self, partitions: int = 4) -> None:
        self.now_s = 1_000_000_000.0
        self.inner = MemoryStore(clock=lambda: self.now_s)
        self.store = CountingStore(self.inner)
        self.warm = self.fresh()
        self.warm.create_table("t", ["p"], ["k"])
        for number in range(partitions):
            self.do("upsert", number, 0)
        self.mirror: dict[tuple[str, int], float] = {}
        self.open: list[dict[str, Any]] = []

    def fresh(self) -> DeltaStreamCatalog:
        return DeltaStreamCatalog(self.store, clock=lambda: self.now_s, log_limits=LIMITS)

    def do(self, kind: str, number: int, key: int) -> None:
        self.now_s += 1
        catalog = self.warm if key % 2 else self.fresh()
        partition = {"p": str(number)}
        match kind:
            case "upsert":
                catalog.append("t", pa.table({"k": [key], "v": [self.now_s]}), partition)
            case "delete":
                catalog.append("t", pa.table({"k": [key]}), partition, operation="delete")
            case "compact":
                assert not catalog.table("t").compact(settings=LOCAL).errors
            case "rollback":
                active = int(catalog.state("t", catalog.partition("t", partition)).version.split("-")[0])
                with contextlib.suppress(InputError, NotFoundError):  # none was before, or a vacuum has deleted it
                    catalog.table("t").rollback(str(max(1, active - 1)), partition)
            case "vacuum":
                self.now_s += 4 * 24 * 3600
                vacuum(self.fresh(), "t")
            case "spoil":
                path = f"t/p={number}/stream/hint.json"
                self.inner.put(path, self.inner.get(path)[: -1 - 5 * key])
            case "forget":
                self.warm = self.fresh()
            case "poll":
                batch = self.polled(catalog)
                assert not self.open or self.open == batch, "a batch is the same until it is done"
                self.open = batch
            case "commit" if catalog.table("t").bookmarks():
                for change in self.open:
                    self.apply(change)
                catalog.table("t").commit_bookmark("mirror")
                self.open = []

    def polled(self, catalog: DeltaStreamCatalog) -> list[dict[str, Any]]:
        """The changes since the beginning, or since the bookmark that the first poll made."""
        beginning = None if catalog.table("t").bookmarks() else "1970-01-01"
        asked = {"columns": ["p", "k", "v"], "before": True}
        changes = catalog.table("t").changes(beginning, bookmark="mirror", **asked).read_all()
        return sorted(changes.to_pylist(), key=lambda change: (change["p"], change["k"], change["_change_type"] in NEW))

    def apply(self, change: dict[str, Any]) -> None:
        key = change["p"], change["k"]
        match change["_change_type"]:
            case "delete":
                assert self.mirror.pop(key) == change["v"]
            case "update_before":
                assert self.mirror[key] == change["v"]
            case "insert":
                assert key not in self.mirror
                self.mirror[key] = change["v"]
            case "update_after":
                self.mirror[key] = change["v"]

    def streams_asked(self, catalog: DeltaStreamCatalog) -> list[str]:
        """What a poll that finds nothing reads of streams."""
        self.store.reset()
        assert self.polled(catalog) == []
        return sorted(path for kind, path in self.store.requests if kind != "list" and "/stream/" in path)


@pytest.mark.slow
@settings(max_examples=examples(50))
@given(STEPS)
def test_a_consumer_that_polls_has_the_rows_of_the_table(steps):
    lake = Lake()
    for step in steps:
        lake.do(*step)
    for kind in ("poll", "commit", "poll", "commit"):
        lake.do(kind, 0, 0)
    rows = lake.fresh().read("t", columns=["p", "k", "v"]).to_pylist()
    assert lake.mirror == {(row["p"], row["k"]): row["v"] for row in rows}


def test_a_poll_that_finds_nothing_asks_each_stream_once_for_its_columns_and_again_for_nothing():
    lake = Lake(12)
    lake.do("compact", 0, 0)
    lake.do("poll", 0, 0)
    lake.do("commit", 0, 0)
    catalog = lake.fresh()
    assert lake.streams_asked(catalog) == sorted(f"t/p={number}/stream/hint.json" for number in range(12))
    assert lake.streams_asked(catalog) == []
    lake.do("upsert", 7, 1)
    assert [change["p"] for change in lake.polled(catalog)] == ["7"]

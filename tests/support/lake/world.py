"""One store, one clock, one table "t" (perhaps its destination "d"), and the model of what they hold.

Actors change the catalog and the model together. After each change they call `note`, which checks that both agree
about what waits to be compacted, and remembers what this version says.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from oracle import Row
from stores import Fetching, Intercept, InterceptedStore

from deltacompact import DeltaStreamCatalog, Settings
from deltacompact.base.model import Partition
from deltacompact.storage.fetched_file import open_fetched
from deltacompact.storage.memory import MemoryStore

from .limits import SMALL_READS, LakeLimits
from .model import Event, Shape, Stream, folded, unfolded

HOUR_S = 3600.0
LOCAL = Settings(executor="local", local_threads=1)


def passes(kind: str, path: str, act: Callable[[], Any]) -> Any:
    """A hook that lets every operation happen."""
    return act()


class HookedStore(InterceptedStore):
    """Its hook may be exchanged."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner, lambda *operation: self._hook(*operation))
        self._hook: Intercept = passes

    @contextlib.contextmanager
    def behaving(self, hook: Intercept) -> Iterator[None]:
        """Inside of the block, operations go through this hook."""
        before, self._hook = self._hook, hook
        try:
            yield
        finally:
            self._hook = before


class RemoteStore(Fetching, HookedStore):
    """A HookedStore behind a network. Its files are fetched range by range; each range has its answer at once."""

    def open(self, path: str) -> pa.NativeFile:
        return open_fetched(self, path, SMALL_READS)


class World:
    """The table and its model. `seen` counts what happened, so that a test can say that it all did."""

    def __init__(self, shape: Shape, limits: LakeLimits) -> None:
        self.shape = shape
        self.limits = limits
        self.now_s = 1_000_000_000.0
        self.inner = MemoryStore(clock=self._clock)
        self.store = (RemoteStore if limits.remote else HookedStore)(self.inner)
        self.catalog = self.fresh()
        self.streams = {day: Stream() for day in shape.days}
        self.seen: Counter[str] = Counter()
        self.lied = False
        """A vacuum's mark says that there is nothing to do: what it leaves goes with the next full vacuum."""
        self._numbers = 0
        self._known: set[tuple[str | None, int]] = set()
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        self.catalog.create_table(
            "t",
            ["day"] if shape.partitioned else [],
            list(shape.keys) if shape.declared else (),
            shape.sort_keys if shape.declared else (),
            tombstone_retention=shape.retention,
        )

    def close(self) -> None:
        self._folder.cleanup()

    def _clock(self) -> float:
        return self.now_s

    def fresh(self) -> DeltaStreamCatalog:
        """A process that remembers nothing."""
        catalog = DeltaStreamCatalog(
            self.store, clock=self._clock, log_limits=self.limits.of_logs, read_limits=SMALL_READS
        )
        catalog.at_once = 1  # the same operations in the same order in every run
        return catalog

    def count(self) -> int:
        """A number that was never given before."""
        self._numbers += 1
        return self._numbers

    # Partitions

    def values(self, day: str | None) -> dict[str, Any]:
        return {"day": None if day == "null" else day} if self.shape.partitioned else {}

    def partition(self, day: str | None) -> Partition:
        return Partition.of(("day",) if self.shape.partitioned else (), self.values(day))

    def day_of(self, values: dict[str, str | None]) -> str | None:
        if not self.shape.partitioned:
            return None
        return "null" if values["day"] is None else values["day"]

    @property
    def has_destination(self) -> bool:
        return any(stream.destination is not None for stream in self.streams.values())

    # Catalog and model

    def table(self, rows: list[Row], types: dict[str, Any], operation: str, day: str | None) -> pa.Table:
        """Rows as a table to append. Upserts name their rows; some have the partition's column as well."""
        columns = self.shape.columns
        arrays = {name: columns[name].array([row.get(name) for row in rows], type_) for name, type_ in types.items()}
        if operation == "upsert":
            arrays["origin"] = pa.array([row["origin"] for row in rows], pa.string())
            if self.shape.partitioned and len(rows) % 2:
                arrays["day"] = pa.array([self.values(day)["day"]] * len(rows), pa.string())
        return pa.table(arrays)

    def appended(self, day: str | None, event: Event) -> None:
        """The event is in the log now. Nothing happens where the model knows it already."""
        stream = self.streams[day]
        stream.begun = True
        if (day, event.position) not in self._known:
            self._known.add((day, event.position))
            stream.events.append(event)

    def restated(self, day: str | None, event: Event) -> None:
        """The event takes the place of all others."""
        self._known.add((day, event.position))
        stream = self.streams[day]
        stream.begun = True
        stream.events, stream.compacted = [event], 0

    def note(self, day: str | None) -> None:
        """Remember what the active version says. See how much of it is compacted now."""
        stream = self.streams[day]
        if not stream.begun:
            return
        state = self.fresh().state("t", self.partition(day))
        positions = [delta.position for delta in state.deltas]
        waiting = len(positions)
        assert positions == [event.position for event in stream.events[len(stream.events) - waiting :]]
        stream.compacted = len(stream.events) - waiting
        stream.history[state.version] = (list(stream.events), stream.compacted)
        stream.said.append(list(stream.events))

    def expected(self, day: str | None, keys: bool = True) -> list[Row]:
        """What the table must show. Without keys every row that was upserted."""
        events = self.streams[day].events
        return folded(self.shape, events).rows() if keys else unfolded(events)

    def read(self, day: str | None, table: str = "t", **how: Any) -> list[Row]:
        rows: list[Row] = self.catalog.read(table, self.values(day), **how).to_pylist()
        value = self.values(day).get("day")
        assert {row.pop("day", value) for row in rows} <= {value}
        return rows

    # Others

    def interrupting(self, at: int, act: Callable[[], None]) -> Intercept:
        """A hook: before operation number `at` somebody else acts, whom nobody interrupts.

        Operations of other threads do not count: small files of an index are closed in them, and Hypothesis draws what
        others do in its own thread alone.
        """
        operations, drawing = 0, threading.get_ident()

        def hook(kind: str, path: str, operation: Callable[[], Any]) -> Any:
            nonlocal operations
            if threading.get_ident() != drawing:
                return operation()
            number, operations = operations, operations + 1
            if number == at:
                mine, self.catalog = self.catalog, self.fresh()
                try:
                    with self.store.behaving(passes):
                        act()
                        for day in self.streams:
                            self.note(day)
                finally:
                    self.catalog = mine
            return operation()

        return hook

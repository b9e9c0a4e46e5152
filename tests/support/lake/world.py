"""One store, one clock, one table "t" (perhaps with a destination "d"), and the model of both tables.

Actors change the catalog and the model together. After each change they call `note`: it checks that both count the same
deltas to compact, and remembers the events of this version.
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
    """A store whose hook can be replaced."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner, lambda *operation: self._hook(*operation))
        self._hook: Intercept = passes

    @contextlib.contextmanager
    def behaving(self, hook: Intercept) -> Iterator[None]:
        """Use this hook inside of the block."""
        before, self._hook = self._hook, hook
        try:
            yield
        finally:
            self._hook = before


class RemoteStore(Fetching, HookedStore):
    """A HookedStore behind a network: it fetches files range by range, and answers each fetch at once."""

    def open(self, path: str) -> pa.NativeFile:
        return open_fetched(self, path, SMALL_READS)


class World:
    """The table and its model. `seen` counts what happened, so that a test can assert that everything did."""

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
        """A vacuum's mark is wrong, so a vacuum may leave garbage. The next full vacuum deletes it."""
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
        """The catalog of a new process, with empty caches."""
        catalog = DeltaStreamCatalog(
            self.store, clock=self._clock, log_limits=self.limits.of_logs, read_limits=SMALL_READS
        )
        catalog.at_once = 1  # the same operations in the same order in every run
        return catalog

    def count(self) -> int:
        """A new number in each call."""
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
        """The rows as a table to append. Upserts get a row number; some tables have the partition's column."""
        columns = self.shape.columns
        arrays = {name: columns[name].array([row.get(name) for row in rows], type_) for name, type_ in types.items()}
        if operation == "upsert":
            arrays["origin"] = pa.array([row["origin"] for row in rows], pa.string())
            if self.shape.partitioned and len(rows) % 2:
                arrays["day"] = pa.array([self.values(day)["day"]] * len(rows), pa.string())
        return pa.table(arrays)

    def appended(self, day: str | None, event: Event) -> None:
        """Add an event of the log to the model, unless the model has it already."""
        stream = self.streams[day]
        stream.begun = True
        if (day, event.position) not in self._known:
            self._known.add((day, event.position))
            stream.events.append(event)

    def restated(self, day: str | None, event: Event) -> None:
        """Replace all events of the partition by this event."""
        self._known.add((day, event.position))
        stream = self.streams[day]
        stream.begun = True
        stream.events, stream.compacted = [event], 0

    def note(self, day: str | None) -> None:
        """Remember the events of the active version, and how many of them are compacted now."""
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
        """The rows that the table must show; without `keys` every upserted row."""
        events = self.streams[day].events
        return folded(self.shape, events).rows() if keys else unfolded(events)

    def read(self, day: str | None, table: str = "t", **how: Any) -> list[Row]:
        rows: list[Row] = self.catalog.read(table, self.values(day), **how).to_pylist()
        value = self.values(day).get("day")
        assert {row.pop("day", value) for row in rows} <= {value}
        return rows

    # Others

    def interrupting(self, at: int, act: Callable[[], None]) -> Intercept:
        """A hook that calls `act` before operation number `at`. It does not interrupt `act` itself.

        It counts no operations of other threads, which close small index files: hypothesis may draw values only in its
        own thread.
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


class Agent:
    """Somebody who acts in a world."""

    def __init__(self, world: World) -> None:
        self.world = world

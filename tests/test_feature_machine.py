"""Everything a table can do, in any order, against a fold written from the design: one machine for all features.

    append 3 files · compact in rounds of 2 rows · rewrite_dead_fraction 0.5 · a put fails · append · resume as ORC ·
    rehash · roll back to version 1 · retract · three days pass · vacuum · compact into another table · publish · …

After each step the table, every version that is still retained, and the destination hold what the oracle says, and
`check` finds nothing. `Lake` is the table beside its model; the machine only chooses what happens next. Limits that
only large tables meet are so low that runs, relocations, deletion vectors, kept and copied rows, exchange files,
checkpoints and stubs all occur: a plain test counts them. What was found is at the end, one plain test each.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from oracle import Oracle, Row
from stores import Crash, FailsAt, InterceptedStore, unmeasured  # noqa: F401
from test_fold_properties import KINDS, PAYLOADS, Kind, bag

from deltacompact import ConflictError, DeltaStreamCatalog, InputError, SessionResult, Settings, compact
from deltacompact.base import limits as limits_module
from deltacompact.base.errors import PositionError, StoreError
from deltacompact.base.model import ContentType, DataFile, Delta, Partition
from deltacompact.base.settings import Options
from deltacompact.catalog.delta_stream.catalog import VACUUM_AGE_MIN_S
from deltacompact.catalog.delta_stream.file_lists import publish
from deltacompact.catalog.delta_stream.log import LogLimits
from deltacompact.catalog.delta_stream.scan import export_table
from deltacompact.catalog.delta_stream.tokens import TOKEN_RETENTION_S
from deltacompact.catalog.delta_stream.vacuum import vacuum
from deltacompact.catalog.delta_stream.versions import retract, rollback, versions
from deltacompact.executors.local import LocalExecutor
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.maintenance.check import check, rehash_table
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular.formats import EXTENSIONS

HOUR_S = 3600.0


# --- the model -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """One delta as the model knows it."""

    position: int
    operation: str
    files: tuple[tuple[Row, ...], ...]


@dataclass(frozen=True)
class Shape:
    """What a table declares, and the kinds of its columns. `plain`: every format holds its values."""

    keys: dict[str, Kind]
    sorts: dict[str, Kind]
    directions: tuple[str, ...]
    payloads: dict[str, Kind]
    retention: int | None
    days: tuple[str | None, ...]
    declared: bool
    plain: bool

    @property
    def sort_keys(self) -> list[tuple[str, str]]:
        return list(zip(self.sorts, self.directions, strict=True))

    @property
    def columns(self) -> dict[str, Kind]:
        return {**self.keys, **self.sorts, **self.payloads}


def folded(shape: Shape, events: Sequence[Event]) -> Oracle:
    """What stands after these events; where nothing expires, checked against the design's one sentence."""
    oracle = Oracle(shape.keys, shape.sort_keys, shape.retention)
    for event in events:
        oracle.apply(event.position, event.operation, event.files)
    if shape.retention is None:
        assert bag(oracle.rows()) == bag(_greatest(oracle, events))
    return oracle


def _greatest(oracle: Oracle, events: Sequence[Event]) -> list[Row]:
    """Per key the row of the greatest (sort key, order) after the last delete without sort key."""
    standing: dict[Any, list[tuple[Any, int, Row | None]]] = {}
    flat = [(event.operation, row) for event in events for rows in event.files for row in rows]
    for order, (operation, row) in enumerate(flat):
        here = standing.setdefault(oracle._key(row), [])
        if operation == "delete" and all(row.get(name) is None for name, _ in oracle.sort_keys):
            here.clear()
        else:
            here.append((oracle._sort_key(row), order, None if operation == "delete" else row))
    winners = [max(here, key=lambda one: one[:2])[2] for here in standing.values() if here]
    return [row for row in winners if row is not None]


@dataclass
class Stream:
    """One partition: its events, how many of them are compacted, and what every version said when it was sealed."""

    events: list[Event] = field(default_factory=list)
    compacted: int = 0
    history: dict[str, tuple[list[Event], int]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    begun: bool = False
    destination: list[Event] | None = None
    said: list[list[Event]] = field(default_factory=list)
    """All that it ever said, for a destination that folded what there was at some time."""


# --- limits of large tables, made small ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """By what a lake is compacted, read and logged, all its life."""

    runs_max: float = math.inf
    runs_share_max: float = math.inf
    chunk_entries: int = 2
    kept_bytes_min: int = 1
    exchange_share: float = 0.0
    held_share: float = 0.0
    group_share_min: float = 0.25
    entry_bytes_max: int = 2000
    checkpoint_after: int = 5
    groups: int = 3
    nodes: tuple[int, ...] = (1, 2)
    remote: bool = False


def small_limits(limits: Limits) -> limits_module.Limits:
    """Of every compaction and rehash of the lake."""
    return limits_module.Limits(
        runs_max=limits.runs_max,
        runs_share_max=limits.runs_share_max,
        masks_share_of_index=math.inf,
        small_rows_per_bucket=4,
        small_buckets_max=4,
        task_rows_min=3,
        groups=limits.groups,
        delta_kept_bytes_min=limits.kept_bytes_min,
        output_parallel_bytes_min=1,
        exchange_share=limits.exchange_share,
        held_share=limits.held_share,
        chunk_entries=limits.chunk_entries,
        copied_group_share_min=limits.group_share_min,
        local_nodes=limits.nodes,
        reading=SMALL_READS,
    )


SMALL_READS = limits_module.ReadLimits(
    batch_bytes=64, batch_rows_max=2, run_bytes=100, read_ahead_bytes=64, tail_bytes=64
)


def small_log(limits: Limits) -> LogLimits:
    return LogLimits(limits.entry_bytes_max, limits.checkpoint_after, probes_before_listing=2)


# --- a table beside its model ----------------------------------------------------------------------------------------


def _passes(kind: str, path: str, act: Callable[[], Any]) -> Any:
    return act()


class HookedStore(InterceptedStore):
    """Its hook may be exchanged; as a remote store it gives files that cannot be mapped."""

    def __init__(self, inner: MemoryStore, remote: bool) -> None:
        super().__init__(inner, lambda *operation: self.hook(*operation))
        self.hook: Callable[[str, str, Callable[[], Any]], Any] = _passes
        self._remote = remote

    def open(self, path: str) -> pa.NativeFile:
        opened = super().open(path)
        return pa.PythonFile(io.BytesIO(opened.read()), "r") if self._remote else opened


LOCAL = Settings(executor="local", local_threads=1)


class Lake:
    """A table "t" and perhaps its destination "d", and what they ought to hold."""

    def __init__(self, shape: Shape, limits: Limits | None = None) -> None:
        self.shape = shape
        self.limits = limits = limits or Limits()
        self.now_s = 1_000_000_000.0
        self.inner = MemoryStore(clock=self._clock)
        self.hooked = HookedStore(self.inner, limits.remote)
        self.catalog = self.fresh()
        self.streams = {day: Stream() for day in shape.days}
        self.seen: Counter[str] = Counter()
        self.tokens: list[tuple[str | None, str, int, str]] = []
        self._interrupted = False
        self._known: set[tuple[str | None, int]] = set()
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        self._rows = self._files = 0
        partition_keys = ["day"] if self.partitioned else []
        keys = list(shape.keys) if shape.declared else ()
        sort_keys = shape.sort_keys if shape.declared else ()
        self.catalog.create_table("t", partition_keys, keys, sort_keys, tombstone_retention=shape.retention)

    def close(self) -> None:
        self._folder.cleanup()

    def _clock(self) -> float:
        return self.now_s

    def fresh(self) -> DeltaStreamCatalog:
        """A process that remembers nothing."""
        limits = small_log(self.limits)
        return DeltaStreamCatalog(self.hooked, clock=self._clock, log_limits=limits, read_limits=SMALL_READS)

    def count(self) -> int:
        """A number that was never given before."""
        self._rows += 1
        return self._rows

    @property
    def partitioned(self) -> bool:
        return self.shape.days != (None,)

    def partition(self, day: str | None) -> dict[str, Any]:
        return {"day": None if day == "null" else day} if self.partitioned else {}

    def place(self, day: str | None) -> Partition:
        return Partition.of(("day",) if self.partitioned else (), self.partition(day))

    # What may happen

    def append(
        self,
        day: str | None,
        operation: str,
        given: Sequence[tuple[list[Row], dict[str, Any]]],
        gap: int | None = None,
        token: str | None = None,
        extension: str | None = None,
        fails: FailsAt | None = None,
        meanwhile: tuple[int, Callable[[], None]] | None = None,
    ) -> None:
        """Files of (rows, types). Where the store fails it is asked again with the same token."""
        stream = self.streams[day]
        position = None
        if gap is not None:
            position = (stream.events[-1].position if stream.events else 0) + gap
            known = self._last_position(day)
            position = position if known is None else max(position, known + 1)
        contents, tables = [], []
        for rows, types in given:
            rows = [dict(row) for row in rows]
            if operation == "upsert":
                for row in rows:
                    row["origin"] = f"row {self.count()}"
            contents.append(tuple(rows))
            tables.append(self.table(rows, types, operation, day))
        paths = [self.written(table, extension) for table in tables] if extension else []

        def appended() -> Delta:
            where = self.partition(day)
            if extension:
                return self.catalog.append_files("t", paths, where, operation, position, token)
            return self.catalog.append("t", tables, where, operation, position, token)

        if meanwhile is not None:
            at, act = meanwhile

            def others() -> None:
                self._committed(day, operation, contents)  # so far we may have come
                act()

            self.hooked.hook = self._interrupting(at, others)
        elif fails is not None:
            assert token is not None
            self.hooked.hook = fails
        try:
            delta = appended()
        except (StoreError, Crash):
            self.hooked.hook = _passes
            self.catalog = self.fresh()
            self.seen["appends failed"] += 1
            delta = appended()
        except InputError as error:
            assert extension == ".csv" and "CSV conversion error" in str(error)  # wider than the stream's type
            return
        finally:
            self.hooked.hook = _passes
        if delta.files:  # a token that was committed and compacted names no files any more
            assert [file.rows for file in delta.files] == [len(rows) for rows in contents]
        stream.begun = True
        if (day, delta.position) not in self._known:
            stream.events.append(Event(delta.position, operation, tuple(contents)))
        self._known.add((day, delta.position))
        if token is not None:
            self.tokens.append((day, token, delta.position, operation))
        self.seen["appended"] += 1
        self.note(day)

    def _committed(self, day: str | None, operation: str, contents: Sequence[tuple[Row, ...]]) -> None:
        """An append that is under way may be in the log already."""
        stream, opened = self.streams[day], self.catalog.log("t", self.place(day))
        if opened.exists() and (deltas := opened.active().deltas):
            position = deltas[-1].position
            if (day, position) not in self._known:
                self._known.add((day, position))
                stream.begun = True
                stream.events.append(Event(position, operation, tuple(contents)))
                self.note(day)

    def repeat(self, place: int) -> None:
        """A token that was committed is committed again: nothing happens. It stands for no other operation."""
        day, token, position, operation = self.tokens[place % len(self.tokens)]
        table = pa.table({name: pa.array([None], kind.types[0]) for name, kind in self.shape.keys.items()})
        try:
            delta = self.catalog.append("t", table, self.partition(day), operation, token=token)
        except InputError as error:
            assert "is a destination" in str(error)
            return
        assert delta.position == position and not delta.committed
        other = "delete" if operation == "upsert" else "upsert"
        with pytest.raises(InputError, match=f"{token}.* stands for the {operation} at position {position}"):
            self.catalog.append("t", table, self.partition(day), other, token=token)
        self.seen["token repeated"] += 1

    def compact(
        self,
        day: str | None = None,
        destination: bool = False,
        fails: FailsAt | None = None,
        meanwhile: tuple[int, Callable[[], None]] | None = None,
        **arguments: Any,
    ) -> list[SessionResult]:
        """Fold everything, or one partition. `meanwhile`: before operation number n something else happens.

        A failure leaves the table as it was or compacts it, and says so by an error of ours.
        """
        before = {each: (list(stream.events), stream.compacted) for each, stream in self.streams.items()}
        catalog, rolled_back = self.catalog, self.seen["rolled back"]
        if fails is not None:
            self.hooked.hook = fails
        elif meanwhile is not None:
            at, act = meanwhile

            def others() -> None:
                for each in self.streams:  # other partitions may have been compacted by now
                    self.note(each)
                act()

            self.hooked.hook = self._interrupting(at, others)
        chosen = {"partitions": [self.partition(day)]} if day is not None and self.partitioned else {}
        keys = {} if self.shape.declared else {"primary_keys": list(self.shape.keys), "sort_keys": self.shape.sort_keys}
        target = {"destination_compacted_table_id": "d"} if destination else {}
        arguments["settings"] = dataclasses.replace(
            arguments.get("settings", Settings()), limits=small_limits(self.limits)
        )
        sessions: list[SessionResult] = []
        try:
            sessions = list(
                compact("t", delta_catalog_client=catalog, **keys, **chosen, **target, **arguments).sessions
            )
        except (StoreError, ConflictError, Crash) as error:
            assert fails is not None or meanwhile is not None, error
            self.seen["interrupted"] += 1
        finally:
            self.hooked.hook = _passes
        if fails is not None and fails.failed:
            self.catalog = self.fresh()
        for result in sessions:
            if result.error is not None:
                assert fails is not None or meanwhile is not None, result.error
                assert isinstance(result.error, (StoreError, ConflictError)), result.error
                continue
            self._counted(result, before, destination or self.seen["rolled back"] != rolled_back)
        if destination:
            self._destination_is(before, sessions, fails is None and meanwhile is None)
        for each in self.streams:
            self.note(each)
        return sessions

    def _counted(self, result: SessionResult, before: dict[str | None, Any], other_base: bool) -> None:
        """`other_base`: it did not fold onto what was compacted before."""
        assert result.rows_in == result.live + result.superseded + result.deleted
        seen = self.seen
        seen["sessions"] += 1
        seen["nothing to do"] += result.nothing_to_do is not None
        seen["rounds"] += max(0, result.rounds - 1)
        seen["rounds resumed"] += result.rounds_resumed
        seen["files kept"] += result.files_kept
        seen["files marked"] += result.files_marked
        seen["files rewritten"] += result.files_rewritten
        seen["rows copied"] += result.rows_copied
        if result.nothing_to_do is not None or other_base:
            return
        day = self._day(result.partition)
        events, compacted = before[day]
        if self.streams[day].events == events and not self._pending(day):
            first, whole = folded(self.shape, events[:compacted]), folded(self.shape, events)
            assert result.live == len(whole.rows())
            assert result.superseded == whole.superseded - first.superseded
            assert result.deleted == whole.deleted - first.deleted
            assert result.delete_rows == whole.delete_rows - first.delete_rows

    def _destination_is(self, before: dict[str | None, Any], sessions: list[SessionResult], certain: bool) -> None:
        """It holds what the source held. After a failure perhaps what it had held before, and a session that is
        resumed folds what there was when it began."""
        done = {self._day(each.partition) for each in sessions if each.error is None}
        self._interrupted |= not certain
        for day, (events, _) in before.items():
            stream = self.streams[day]
            if day not in done and certain:
                continue
            if not self.catalog.log("d", self.place(day)).exists():
                assert day not in done or not events  # there was nothing to do
                continue
            now = bag(self._read(day, "d"))
            if now == bag(folded(self.shape, events).rows()):
                stream.destination = events
            elif stream.destination is None or now != bag(folded(self.shape, stream.destination).rows()):
                assert self._interrupted
                told = [said[:n] for said in (events, *stream.said) for n in range(len(said) + 1)]
                stream.destination = next(said for said in told if now == bag(folded(self.shape, said).rows()))
            else:
                assert not certain or self._interrupted, "the destination was left behind"
        self._interrupted &= not certain

    def _interrupting(self, at: int, act: Callable[[], None]) -> Callable[[str, str, Callable[[], Any]], Any]:
        seen = [0]

        def hook(kind: str, path: str, operation: Callable[[], Any]) -> Any:
            place, seen[0] = seen[0], seen[0] + 1
            if place == at:
                # Another process: it has a catalog of its own, and nobody interrupts it.
                mine, self.catalog = self.catalog, self.fresh()
                outer, self.hooked.hook = self.hooked.hook, _passes
                try:
                    act()
                    for day in self.streams:
                        self.note(day)
                finally:
                    self.catalog, self.hooked.hook = mine, outer
            return operation()

        return hook

    def rehash(self, buckets: int) -> None:
        options = Options.of(dataclasses.replace(LOCAL, limits=small_limits(self.limits)))
        rehash_table(self.catalog, "t", buckets, LocalExecutor(options), options=options)
        self.seen["rehashed"] += 1

    def vacuum(self, force: bool = False) -> None:
        results = vacuum(self.catalog, "t", age_min_s=0 if force else VACUUM_AGE_MIN_S, force=force)
        self.seen["vacuumed objects"] += sum(len(result.deleted) for result in results)
        self.seen["fenced"] += sum(len(result.fenced) for result in results)
        if self.has_destination:
            vacuum(self.catalog, "d", age_min_s=0 if force else VACUUM_AGE_MIN_S, force=force)
        for day, stream in self.streams.items():
            if stream.begun:
                infos = versions(self.catalog, "t", self.place(day))
                stream.lost |= {
                    info.state.version
                    for info in infos
                    if info.sealed_s is not None and (force or self.now_s - info.sealed_s >= VACUUM_AGE_MIN_S)
                }

    def rollback(self, day: str | None, choice: int) -> None:
        """To a version that was sealed at most 36 hours ago, if there is one."""
        stream = self.streams[day]
        infos = versions(self.catalog, "t", self.place(day))
        young = [
            info.state.version
            for info in infos
            if info.sealed_s is not None
            and self.now_s - info.sealed_s <= VACUUM_AGE_MIN_S / 2
            and info.state.version not in stream.lost
        ]
        if not young:
            return
        version = young[choice % len(young)]
        rollback(self.catalog, "t", version, self.partition(day))
        events, compacted = stream.history[version]
        stream.events, stream.compacted = list(events), compacted
        self.seen["rolled back"] += 1
        self.note(day)

    def retract(self, day: str | None, choice: int) -> None:
        stream = self.streams[day]
        waiting = stream.events[stream.compacted :]
        if not waiting:
            return
        event = waiting[choice % len(waiting)]
        retract(self.catalog, "t", event.position, self.partition(day))
        stream.events.remove(event)
        self.seen["retracted"] += 1
        self.note(day)

    def restate(self, day: str | None, given: Sequence[tuple[list[Row], dict[str, Any]]]) -> None:
        contents, tables = [], []
        for rows, types in given:
            rows = [{**row, "origin": f"restated {self.count()}"} for row in rows]
            contents.append(tuple(rows))
            tables.append(self.table(rows, types, "upsert", day))
        state = self.catalog.restate("t", tables, self.partition(day))
        self._known.add((day, state.deltas[0].position))
        stream = self.streams[day]
        stream.begun = True
        stream.events = [Event(state.deltas[0].position, "upsert", tuple(contents))]
        stream.compacted = 0
        self.seen["restated"] += 1
        self.note(day)

    def publish(self, day: str | None) -> None:
        """What the lists name is what was compacted; refused where files have dead rows in them."""
        stream = self.streams[day]
        state = self.catalog.state("t", self.place(day))
        try:
            (done,) = publish(self.catalog, "t", self.place(day))
        except InputError as error:
            compacted = state.compacted
            assert compacted is None or any(file.deletions for file in compacted.files), error
            return
        listed = self.inner.get(done.manifest.removeprefix(self.inner.uri)).decode().splitlines()
        assert self.inner.get(done.files.removeprefix(self.inner.uri)).decode().splitlines() == listed
        rows: list[Row] = []
        for uri in listed:
            rows += _plainly(self.inner.get(uri.removeprefix(self.inner.uri)), uri, state.compacted.schema)
        expected = folded(self.shape, stream.events[: stream.compacted]).rows()
        assert done.rows == len(expected) == len(rows)
        assert {row["origin"] for row in rows} == {row["origin"] for row in expected}
        self.seen["published"] += 1

    def export(self, day: str | None, extension: str) -> None:
        target = self.folder / f"out{extension}"
        export_table(self.catalog, "t", str(target), self.partition(day))
        rows = _plainly(target.read_bytes(), target.name, None)
        expected = self._expected(day, self.catalog.table("t").keys is not None)
        assert len(rows) == len(expected)
        assert {row.get("origin") for row in rows} == {row.get("origin") for row in expected}
        self.seen["exported"] += 1

    # Files

    def table(self, rows: Sequence[Row], types: dict[str, Any], operation: str, day: str | None) -> pa.Table:
        columns = self.shape.columns
        arrays = {name: columns[name].array([row.get(name) for row in rows], type_) for name, type_ in types.items()}
        if operation == "upsert":
            arrays["origin"] = pa.array([row["origin"] for row in rows], pa.string())
            if self.partitioned and len(rows) % 2:
                arrays["day"] = pa.array([self.partition(day)["day"]] * len(rows), pa.string())
        return pa.table(arrays)

    def written(self, table: pa.Table, extension: str) -> str:
        self._files += 1
        path = self.folder / f"{self._files}{extension}"
        match EXTENSIONS[extension]:
            case ContentType.PARQUET:
                pq.write_table(table, path, row_group_size=2)
            case ContentType.FEATHER:
                pyarrow.feather.write_feather(table, path, chunksize=2)
            case ContentType.ORC:
                pyarrow.orc.write_table(table, path)
            case ContentType.CSV:
                pyarrow.csv.write_csv(table, path)
            case ContentType.JSON:
                path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        return str(path)

    # What must hold

    @property
    def has_destination(self) -> bool:
        return any(stream.destination is not None for stream in self.streams.values())

    def note(self, day: str | None) -> None:
        """Remember what the active version says; see how much of it is compacted now."""
        stream = self.streams[day]
        if not stream.begun:
            return
        state = self.fresh().state("t", self.place(day))
        positions = [delta.position for delta in state.deltas]
        waiting = len(positions)
        assert positions == [event.position for event in stream.events[len(stream.events) - waiting :]]
        stream.compacted = len(stream.events) - waiting
        stream.history[state.version] = (list(stream.events), stream.compacted)
        stream.said.append(list(stream.events))

    def verify(self, choice: int = 0) -> None:
        keys = self.catalog.table("t").keys is not None
        for day, stream in self.streams.items():
            if not stream.begun:
                continue
            self.note(day)
            assert bag(self._read(day)) == bag(self._expected(day, keys))
            infos = versions(self.catalog, "t", self.place(day))
            names = [info.state.version for info in infos if info.state.version not in stream.lost]
            if keys and names:
                name = names[choice % len(names)]
                events, _ = stream.history[name]
                rows = self._read(day, version=name)
                assert bag(rows) == bag(folded(self.shape, events).rows()), f"version {name}"
                self.seen["old versions read"] += name != names[-1]
            if stream.destination is not None:
                assert bag(self._read(day, "d")) == bag(folded(self.shape, stream.destination).rows())
            self._looked_at(day)
        for name in ("t", "d") if self.has_destination else ("t",):
            assert [problem for each in check(self.catalog, name) for problem in each.problems] == []

    def _looked_at(self, day: str | None) -> None:
        state = self.catalog.state("t", self.place(day))
        self.seen["stubs"] += len(state.manifests)
        self.seen["checkpoints"] += any("/checkpoints/" in path for path in self.inner._objects)
        self.seen["exchanged"] += any(path.endswith(".exchange.arrow") for path in self.inner._objects)
        if state.index is not None:
            manifest = read_manifest(self.inner, state.index)
            self.seen["runs"] += len(manifest.runs) - 1
            self.seen["relocations"] += len(manifest.relocations)
            self.seen["tombstones"] += manifest.tombstones
        for file in state.compacted.files if state.compacted else ():
            self.seen["delta files kept"] += _is_delta_file(file)
            self.seen["deletion vectors"] += file.deletions is not None

    def _expected(self, day: str | None, keys: bool = True) -> list[Row]:
        events = self.streams[day].events
        if keys:
            return folded(self.shape, events).rows()
        return [row for event in events if event.operation == "upsert" for rows in event.files for row in rows]

    def _read(self, day: str | None, table: str = "t", **how: Any) -> list[Row]:
        rows: list[Row] = self.catalog.read(table, self.partition(day), **how).to_pylist()
        value = self.partition(day).get("day")
        assert {row.pop("day", value) for row in rows} <= {value}
        return rows

    def _pending(self, day: str | None) -> list[int]:
        return [delta.position for delta in self.catalog.state("t", self.place(day)).deltas]

    def _last_position(self, day: str | None) -> int | None:
        opened = self.catalog.log("t", self.place(day))
        return opened.active().last_position if opened.exists() else None

    def _day(self, partition: dict[str, str | None]) -> str | None:
        if not self.partitioned:
            return None
        return "null" if partition["day"] is None else partition["day"]


def _is_delta_file(file: DataFile) -> bool:
    """One that no session wrote: sessions have folders of their own."""
    return "/" not in file.path.partition("/data/")[2]


def _plainly(data: bytes, name: str, schema: pa.Schema | None) -> list[Row]:
    """A file as any other program reads it."""
    source = pa.BufferReader(data)
    match EXTENSIONS[Path(name).suffix]:
        case ContentType.PARQUET:
            return list(pq.read_table(source).to_pylist())
        case ContentType.FEATHER:
            return list(pa.ipc.open_file(source).read_all().to_pylist())
        case ContentType.ORC:
            return list(pyarrow.orc.ORCFile(source).read().to_pylist())
        case _:
            return list(pyarrow.csv.read_csv(source).to_pylist()) if data.strip() else []


# --- the machine -----------------------------------------------------------------------------------------------------

PLAIN = {
    "integer": Kind((0, 1, -1, 300, 2**40), (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    "string": Kind(("", "a", "NA", 'é "x",\n', "null"), (pa.string(),)),
    "float": Kind((0.5, -0.25, 1.5, math.inf, math.nan), (pa.float64(),)),  # CSV says 0 for 0.0, an integer
    "boolean": Kind((False, True), (pa.bool_(),)),
}
"""What every format holds: integers with sign, strings, floats, booleans."""

EXPORTS = [".parquet", ".arrow", ".orc", ".csv"]
CONTENT_TYPES = st.sampled_from(["parquet", "parquet", "parquet", "feather", "orc", "csv"])
DAYS = st.sampled_from([(None,), (None,), ("x", "null"), ("a b%/é", "")])


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    plain = draw(st.booleans())
    kinds = PLAIN if plain else KINDS
    keys = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=2))
    sorts = draw(st.lists(st.sampled_from(sorted(kinds)), max_size=2))
    payloads = {"note": PLAIN["string"], "amount": PLAIN["integer"], "ratio": PLAIN["float"]} if plain else PAYLOADS
    return Shape(
        {f"key{place}": kinds[kind] for place, kind in enumerate(keys)},
        {f"sort{place}": kinds[kind] for place, kind in enumerate(sorts)},
        tuple(draw(st.sampled_from(["ascending", "descending"])) for _ in sorts),
        payloads,
        draw(st.none() | st.integers(0, 6)),
        draw(DAYS),
        bool(sorts) or draw(st.booleans()),
        plain,
    )


LIMITS = st.builds(
    Limits,
    runs_max=st.sampled_from([1, 3, math.inf]),
    runs_share_max=st.sampled_from([0.5, math.inf, math.inf]),
    chunk_entries=st.sampled_from([1, 2, 5]),
    kept_bytes_min=st.sampled_from([1, 1 << 30]),
    exchange_share=st.sampled_from([0.0, 0.6]),
    held_share=st.sampled_from([0.0, 0.35]),
    group_share_min=st.sampled_from([0.0, 0.25]),
    entry_bytes_max=st.sampled_from([1500, 64 << 10]),
    checkpoint_after=st.sampled_from([2, 5, 100]),
    groups=st.integers(1, 4),
    remote=st.booleans(),
)

COMPACTIONS = st.fixed_dictionaries(
    {
        "hash_bucket_count": st.none() | st.integers(1, 5),
        "rows_per_compacted_file": st.sampled_from([1, 2, 3, 7, 4_000_000]),
        "rows_per_primary_key_index_file": st.sampled_from([1, 2, 38_000_000]),
        "purge": st.sampled_from([False, False, True]),
        "settings": st.builds(
            Settings,
            executor=st.just("local"),
            local_threads=st.just(1),
            rows_per_round=st.sampled_from([None, None, 1, 2, 5]),
            row_group_rows=st.sampled_from([1, 2, 4, 131_072]),
            rewrite_dead_fraction=st.sampled_from([0.0, 0.3, 0.6, 1.0]),
            target_file_bytes=st.sampled_from([1, 1500, 512 << 20]),
            compression=st.sampled_from([None, None, "snappy", "none"]),
            memory_per_task_bytes=st.sampled_from([None, 1 << 20]),
            object_store_bytes=st.sampled_from([None, 200]),
        ),
    }
)
OFTEN = st.fixed_dictionaries(
    {
        "rows_per_compacted_file": st.sampled_from([2, 5, 4_000_000]),
        "settings": st.builds(
            Settings,
            executor=st.just("local"),
            local_threads=st.just(1),
            rewrite_dead_fraction=st.sampled_from([0.0, 0.5, 1.0]),
            row_group_rows=st.sampled_from([1, 2]),
        ),
    }
)
PLACES = st.integers(0, 60)
CHOICES = st.integers(0, 5)


class FeatureMachine(RuleBasedStateMachine):
    """One lake, and whatever may be asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.lake: Lake | None = None
        self.last: dict[str, Any] = {}

    @initialize(
        shape=shapes(),
        limits=LIMITS,
        first=st.sampled_from([[], list(range(12)), list(range(0, 40, 3))]),
        groups=st.sampled_from([1, 2, 131_072]),
    )
    def begin(self, shape: Shape, limits: Limits, first: list[int], groups: int) -> None:
        """Often with some rows that are compacted, so that later changes are small."""
        self.lake = Lake(shape, limits)
        if first:
            types = {name: kind.types[-1] for name, kind in shape.columns.items()}
            rows = [
                {
                    name: kind.values[(n + place) % len(kind.values)]
                    for place, (name, kind) in enumerate(shape.columns.items())
                }
                for n in first
            ]
            for day in shape.days:
                self.lake.append(day, "upsert", [(rows, types)])
            self.lake.compact(settings=dataclasses.replace(LOCAL, row_group_rows=groups))

    def teardown(self) -> None:
        if self.lake is not None:
            self.lake.close()

    @property
    def begun(self) -> list[str | None]:
        return [day for day, stream in self.lake.streams.items() if stream.begun] if self.lake else []

    def _day(self, data: st.DataObject, begun: bool = True) -> str | None:
        return data.draw(st.sampled_from(self.begun if begun else list(self.lake.streams)))

    def _files(self, data: st.DataObject, operation: str, count: int) -> list[tuple[list[Row], dict[str, Any]]]:
        shape = self.lake.shape
        files = []
        for _ in range(count):
            optional = [name for name in shape.payloads if data.draw(st.booleans())]
            if operation == "delete":
                sorts = data.draw(st.sampled_from([list(shape.sorts), []]))
            else:
                sorts = [name for name in shape.sorts if data.draw(st.sampled_from([True, True, True, False]))]
            names = [*shape.keys, *sorts, *optional]
            types = {name: data.draw(st.sampled_from(shape.columns[name].types)) for name in names}
            row = st.fixed_dictionaries({name: st.sampled_from([*shape.columns[name].values, None]) for name in names})
            files.append((data.draw(st.lists(row, max_size=6)), types))
        return files

    def _append(self, data: st.DataObject, **how: Any) -> None:
        lake = self.lake
        operation = data.draw(st.sampled_from(["upsert", "upsert", "delete"]))
        files = self._files(data, operation, data.draw(st.sampled_from([1, 1, 2, 3])))
        gap = data.draw(st.none() | st.integers(1, 4))
        extension = None
        if lake.shape.plain and files and all(rows for rows, _ in files):
            # In a CSV file of one column a null is a blank line, which is none.
            others = [".csv"] * all(len(types) > 1 for _, types in files)
            extension = data.draw(st.sampled_from([None, ".parquet", ".orc", ".arrow", *others]))
        how.setdefault("token", f"token {lake.count()}" if data.draw(st.booleans()) else None)
        lake.append(self._day(data, False), operation, files, gap, extension=extension, **how)

    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        self._append(data)

    @rule(data=st.data(), at=PLACES, after=st.booleans(), dies=st.booleans())
    def append_while_the_store_fails(self, data: st.DataObject, at: int, after: bool, dies: bool) -> None:
        fails = FailsAt(at % 12, after=after, error=Crash if dies else StoreError)
        self._append(data, fails=fails, token=f"certain:{self.lake.count()}")

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), at=PLACES)
    def append_while_something_happens(self, data: st.DataObject, at: int) -> None:
        lake = self.lake
        compacting = functools.partial(lake.compact, **data.draw(COMPACTIONS))
        # No days pass: what is suspended for days inside its last request may commit what a vacuum took, a known limit.
        acts = [compacting, lambda: lake.rehash(2)]
        act = data.draw(st.sampled_from(acts))
        self._append(data, meanwhile=(at % 12, act))

    @precondition(lambda self: self.lake and self.lake.tokens)
    @rule(choice=CHOICES)
    def repeat_a_token(self, choice: int) -> None:
        self.lake.repeat(choice)

    def _arguments(self, data: st.DataObject) -> dict[str, Any]:
        """New ones, or those of before, which resume what was interrupted."""
        if not self.last or data.draw(st.booleans()):
            self.last = data.draw(COMPACTIONS)
            if self.lake.shape.plain:
                self.last["compacted_file_content_type"] = data.draw(CONTENT_TYPES)
        return self.last

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), destination=st.sampled_from([False, False, True]))
    def compact(self, data: st.DataObject, destination: bool) -> None:
        day = data.draw(st.sampled_from([None, *self.begun]))
        self.lake.compact(day, destination, **self._arguments(data))

    @precondition(lambda self: self.begun)
    @rule(
        data=st.data(),
        at=PLACES,
        after=st.booleans(),
        dies=st.booleans(),
        destination=st.sampled_from([False, False, True]),
    )
    def compact_while_the_store_fails(
        self, data: st.DataObject, at: int, after: bool, dies: bool, destination: bool
    ) -> None:
        fails = FailsAt(at, after=after, error=Crash if dies else StoreError)
        self.lake.compact(destination=destination, fails=fails, **self._arguments(data))

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), at=PLACES, destination=st.sampled_from([False, False, True]))
    def compact_while_something_happens(self, data: st.DataObject, at: int, destination: bool) -> None:
        lake = self.lake
        day, choice = self._day(data), data.draw(CHOICES)
        acts: dict[str, Callable[[], None]] = {
            "append": lambda: self._append(data),
            "retract": lambda: lake.retract(day, choice),
            "append, retract": lambda: (self._append(data), lake.retract(day, -1)),
            "rehash": lambda: lake.rehash(1 + choice),
            "rollback": lambda: lake.rollback(day, choice),
            "vacuum": self._days_pass,
        }
        act = acts[data.draw(st.sampled_from(sorted(acts)))]
        lake.compact(destination=destination, meanwhile=(at, act), **self._arguments(data))

    def _days_pass(self) -> None:
        self.lake.now_s += 80 * HOUR_S
        self.lake.vacuum()

    @rule(data=st.data(), purge=st.sampled_from([False, False, False, True]))
    def append_and_compact(self, data: st.DataObject, purge: bool) -> None:
        """What a table sees most often; its index gets a run, its files deletion vectors and copied rows."""
        self._append(data)
        if self.begun:
            how = data.draw(OFTEN)
            self.lake.compact(purge=purge, **how)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), destination=st.booleans())
    def compact_again_as_before(self, data: st.DataObject, destination: bool) -> None:
        self.lake.compact(destination=destination, **self.last)

    @precondition(lambda self: self.begun)
    @rule(buckets=st.integers(1, 5))
    def rehash(self, buckets: int) -> None:
        self.lake.rehash(buckets)

    @precondition(lambda self: self.begun)
    @rule(hours=st.sampled_from([0, 20, 40, 80]), force=st.sampled_from([False, False, True]))
    def vacuum(self, hours: int, force: bool) -> None:
        self.lake.now_s += hours * HOUR_S
        self.lake.vacuum(force)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), choice=CHOICES)
    def rollback(self, data: st.DataObject, choice: int) -> None:
        self.lake.rollback(self._day(data), choice)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), choice=CHOICES)
    def retract(self, data: st.DataObject, choice: int) -> None:
        self.lake.retract(self._day(data), choice)

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def restate(self, data: st.DataObject) -> None:
        self.lake.restate(self._day(data), self._files(data, "upsert", data.draw(st.integers(1, 2))))

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        self.lake.publish(self._day(data))

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def export(self, data: st.DataObject) -> None:
        plain = self.lake.shape.plain
        self.lake.export(self._day(data), data.draw(st.sampled_from(EXPORTS[: 4 if plain else 2])))

    @rule()
    def another_process(self) -> None:
        self.lake.catalog = self.lake.fresh()

    @precondition(lambda self: self.begun)
    @rule(choice=CHOICES)
    def look(self, choice: int) -> None:
        self.lake.verify(choice)

    def check_invariants(self, *given: Any, **more: Any) -> None:
        if self.lake is not None and self.begun:
            self.lake.verify(len(self.lake.seen))
        super().check_invariants(*given, **more)


class TestFeatures(FeatureMachine.TestCase):
    settings = settings(
        max_examples=10,
        stateful_step_count=20,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


# --- that it all occurs ----------------------------------------------------------------------------------------------

SMALL = Shape(
    {"k": PLAIN["integer"]},
    {"s": PLAIN["integer"]},
    ("ascending",),
    {"note": PLAIN["string"]},
    None,
    (None,),
    True,
    True,
)
TYPES = {"k": pa.int64(), "s": pa.int64(), "note": pa.string()}


def rows(*keys: int, s: int | None = 1) -> list[tuple[list[Row], dict[str, Any]]]:
    """One file."""
    return [([{"k": key, "s": s, "note": f"note {key}"} for key in keys], TYPES)]


def test_small_limits_bring_about_what_only_large_tables_see() -> None:
    lake = Lake(SMALL, Limits(remote=True, entry_bytes_max=1000))
    try:
        how = {"rows_per_compacted_file": 12, "settings": dataclasses.replace(LOCAL, row_group_rows=2)}
        marking = {**how, "settings": dataclasses.replace(LOCAL, row_group_rows=2, rewrite_dead_fraction=0.5)}
        rounds = {**how, "settings": dataclasses.replace(LOCAL, row_group_rows=2, rows_per_round=1)}
        lake.append(None, "upsert", rows(*range(12)), token="etl:1")
        lake.compact(**how)
        lake.verify()
        for arguments in (marking, how, how):
            lake.append(None, "delete", rows(len(lake.streams[None].events) + 2, s=2))
            lake.compact(**arguments)
            lake.verify()
        for key in (20, 21, 22, 0):
            lake.append(None, "upsert", rows(key, s=3))
        lake.compact(fails=FailsAt(120), **rounds)
        lake.compact(**rounds)
        lake.verify()
        lake.compact(destination=True, **how)
        lake.append(None, "upsert", rows(30))
        lake.retract(None, 0)
        lake.repeat(0)
        lake.rehash(3)
        lake.rollback(None, 1)
        lake.verify()
        lake.compact(destination=True, **how)
        lake.compact(purge=True, **how)
        lake.compact(**how)
        lake.publish(None)
        lake.export(None, ".csv")
        lake.now_s += 80 * HOUR_S
        lake.vacuum()
        lake.restate(None, rows(1))
        lake.verify()
        never = [name for name, count in lake.seen.items() if not count and name != "fenced"]
        assert never == []
        assert {"runs", "relocations", "rows copied", "files marked", "delta files kept", "exchanged"} <= {*lake.seen}
    finally:
        lake.close()


# --- what the machine and its author found ---------------------------------------------------------------------------


@pytest.fixture
def catalog() -> DeltaStreamCatalog:
    made = DeltaStreamCatalog(MemoryStore())
    made.create_table("t", (), ["k"])
    return made


def run(catalog: DeltaStreamCatalog, **arguments: Any) -> SessionResult:
    (result,) = compact("t", delta_catalog_client=catalog, **{"settings": LOCAL, **arguments}).sessions
    assert result.error is None
    return result


TO_D: dict[str, Any] = {"destination_compacted_table_id": "d"}


def test_a_destination_never_refers_to_large_delta_files_of_its_source(
    catalog: DeltaStreamCatalog,
) -> None:
    settings = dataclasses.replace(LOCAL, limits=limits_module.Limits(delta_kept_bytes_min=1))
    for first in (1, 3):
        catalog.append("t", pa.table({"k": [first, first + 1]}))
        run(catalog, settings=settings, rows_per_compacted_file=2, **TO_D)
    compacted = catalog.state("d", Partition()).compacted
    assert compacted is not None and [file.path.partition("/")[0] for file in compacted.files] == ["d", "d"]
    run(catalog)
    vacuum(catalog, "t", age_min_s=0, force=True)
    assert sorted(catalog.read("d")["k"].to_pylist()) == [1, 2, 3, 4]


@pytest.mark.parametrize("compacted_between", [False, True])
def test_a_destination_that_folded_a_delta_is_rebuilt_when_it_is_retracted(
    catalog: DeltaStreamCatalog, compacted_between: bool
) -> None:
    for position in (1, 2):
        catalog.append("t", pa.table({"k": [position]}), stream_position=position)
    run(catalog, **TO_D)
    retract(catalog, "t", 2)
    if compacted_between:
        run(catalog)
    run(catalog, **TO_D)
    assert catalog.read("d").equals(catalog.read("t")) and catalog.read("d")["k"].to_pylist() == [1]
    catalog.append("t", pa.table({"k": [3]}))
    run(catalog, **TO_D)
    assert catalog.read("d")["k"].to_pylist() == [1, 3]
    assert run(catalog, **TO_D).nothing_to_do is not None


def test_a_destination_is_emptied_with_its_source(catalog: DeltaStreamCatalog) -> None:
    catalog.append("t", pa.table({"k": [1]}), stream_position=1)
    run(catalog, **TO_D)
    retract(catalog, "t", 1)
    run(catalog, **TO_D)
    assert catalog.read("d").num_rows == 0 and run(catalog, **TO_D).nothing_to_do is not None
    assert [each.problems for each in check(catalog, "d")] == [()]
    catalog.append("t", pa.table({"k": [2]}), stream_position=2)
    run(catalog, **TO_D)
    assert catalog.read("d")["k"].to_pylist() == [2]


@pytest.mark.parametrize("content_type", ["parquet", "feather", "orc", "csv"])
def test_nan_is_a_number_and_null_is_none_in_every_format(catalog: DeltaStreamCatalog, content_type: str) -> None:
    given = pa.table({"k": [math.nan, 1.0, None], "v": [None, math.nan, math.inf], "n": ["NaN", "null", None]})
    catalog.append("t", given)
    run(catalog, compacted_file_content_type=content_type)
    assert bag(catalog.read("t").to_pylist()) == bag(given.to_pylist())
    assert [each.problems for each in check(catalog, "t")] == [()]


def test_a_null_in_the_only_column_is_refused_where_csv_would_lose_it(catalog: DeltaStreamCatalog) -> None:
    catalog.append("t", pa.table({"k": pa.array([None, 1])}))
    with pytest.raises(InputError, match="CSV cannot hold a null in a table of one column, 'k'"):
        run(catalog, compacted_file_content_type="csv")
    assert catalog.read("t").num_rows == 2


@pytest.mark.parametrize("content_type", ["parquet", "feather", "orc", "csv"])
def test_dictionaries_of_several_files_go_into_one(catalog: DeltaStreamCatalog, content_type: str) -> None:
    given = [pa.table({"k": [n, n + 10], "v": pa.array([f"v{n}", None]).dictionary_encode()}) for n in range(3)]
    expected = bag(row for table in given for row in table.to_pylist())
    for table in given:
        catalog.append("t", table)
    small = dataclasses.replace(LOCAL, row_group_rows=1)
    compact("t", delta_catalog_client=catalog, compacted_file_content_type=content_type, settings=small)
    assert bag(catalog.read("t").to_pylist()) == expected
    assert catalog.read("t").schema.field("v").type == pa.dictionary(pa.int32(), pa.string())
    catalog.append("t", pa.table({"k": [10]}), operation="delete")
    run(catalog, compacted_file_content_type=content_type)
    assert catalog.read("t").num_rows == 5


@pytest.mark.parametrize("content_type", ["parquet", "feather", "orc", "csv"])
@pytest.mark.parametrize("value_type", [pa.string(), pa.int64()])
def test_categories_of_two_files_are_more_than_a_byte_counts(
    catalog: DeltaStreamCatalog, content_type: str, value_type: pa.DataType
) -> None:
    codes = pa.array(range(100), pa.int8())
    for first in (0, 100):
        keys = pa.array(range(first, first + 100))
        values = keys.cast(pa.string()).cast(value_type)
        catalog.append("t", pa.table({"k": keys, "v": pa.DictionaryArray.from_arrays(codes, values)}))
    run(catalog, compacted_file_content_type=content_type)
    assert [(row["k"], int(row["v"])) for row in catalog.read("t").to_pylist()] == [(n, n) for n in range(200)]


@pytest.mark.parametrize(
    "nested",
    [
        lambda values: pa.ListArray.from_arrays(list(range(101)), values),
        lambda values: pa.FixedSizeListArray.from_arrays(values, 1),
        lambda values: pa.StructArray.from_arrays([values], ["s"]),
        lambda values: pa.MapArray.from_arrays(list(range(101)), pa.array(["key"] * 100), values),
    ],
)
def test_categories_inside_of_nested_columns_are_too(
    catalog: DeltaStreamCatalog, nested: Callable[[pa.Array], pa.Array]
) -> None:
    expected: list[Row] = []
    for first in (0, 100):
        categories = pa.array([str(first + n) for n in range(100)])
        values = nested(pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), categories))
        table = pa.table({"k": list(range(first, first + 100)), "v": values})
        expected += table.to_pylist()
        catalog.append("t", table)
    run(catalog)
    assert catalog.read("t").to_pylist() == expected


def test_no_position_follows_the_greatest(catalog: DeltaStreamCatalog) -> None:
    catalog.append("t", pa.table({"k": [1]}), stream_position=2**63 - 1, force_position=True)
    with pytest.raises(PositionError, match="no stream position follows 9223372036854775807"):
        catalog.append("t", pa.table({"k": [2]}))
    run(catalog)
    assert catalog.read("t")["k"].to_pylist() == [1]


def test_rows_without_columns_are_refused(catalog: DeltaStreamCatalog) -> None:
    with pytest.raises(InputError, match="3 rows without columns"):
        catalog.append("t", pa.table({"k": [1, 2, 3]}).select([]))


def test_a_table_of_several_dictionaries_is_appended(catalog: DeltaStreamCatalog) -> None:
    pieces = [
        pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array([f"{n}/{m}" for n in range(100)]))
        for m in range(2)
    ]
    catalog.append("t", pa.table({"k": list(range(200)), "v": pa.chunked_array(pieces)}))
    assert catalog.read("t")["v"].to_pylist()[-1] == "99/1"


def test_structs_come_back_from_orc_as_they_were(catalog: DeltaStreamCatalog) -> None:
    structs = [None if n % 3 == 0 else {"a": n} for n in range(10)]
    given = pa.table({"k": list(range(10)), "v": structs, "l": [[each] for each in structs]})
    catalog.append("t", given)
    small = dataclasses.replace(LOCAL, row_group_rows=4)
    compact("t", delta_catalog_client=catalog, compacted_file_content_type="orc", settings=small)
    assert catalog.read("t").to_pylist() == given.to_pylist()


@pytest.mark.parametrize("type_", [pa.timestamp("us"), pa.timestamp("s"), pa.date64(), pa.timestamp("ms", "UTC")])
def test_orc_refuses_the_year_9999_before_anything_is_published(
    catalog: DeltaStreamCatalog, type_: pa.DataType
) -> None:
    catalog.append("t", pa.table({"k": [1], "until": pa.array([datetime(9999, 12, 31)]).cast(type_)}))
    with pytest.raises(InputError, match="column 'until': ORC holds timestamps of the years"):
        run(catalog, compacted_file_content_type="orc")
    assert catalog.read("t").num_rows == 1


@pytest.mark.parametrize(
    ("content_type", "type_"),
    [
        ("csv", pa.decimal256(50, 2)),
        ("csv", pa.list_(pa.int64())),
        ("orc", pa.uint64()),
        ("orc", pa.time64("us")),
        ("orc", pa.duration("s")),
    ],
)
def test_a_type_that_a_format_does_not_give_back_is_refused_by_name(
    catalog: DeltaStreamCatalog, content_type: str, type_: pa.DataType
) -> None:
    catalog.append("t", pa.table({"k": [1], "v": pa.nulls(1, type_)}))
    with pytest.raises(InputError, match=r"column 'v' is .*, which .* files cannot hold"):
        run(catalog, compacted_file_content_type=content_type)
    assert catalog.read("t").num_rows == 1 and catalog.state("t", Partition()).compacted is None


@pytest.mark.parametrize(
    ("name", "texts"),
    [("csv", ["id,v\n", "id,v\n,\n", "id,v\n7,x\n"]), ("jsonl", ["", '{"id":null,"v":null}\n', '{"id":7,"v":"x"}\n'])],
)
def test_a_column_that_had_no_value_yet_takes_any(tmp_path: Path, name: str, texts: list[str]) -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", (), ["id"])
    for place, text in enumerate(texts):
        path = tmp_path / f"{place}.{name}"
        path.write_text(text)
        if text:
            catalog.append_files("t", [path])
    expected = bag([{"id": None}, {"id": 7, "v": "x"}])
    assert bag(catalog.read("t").to_pylist()) == expected
    run(catalog)
    assert bag(catalog.read("t").to_pylist()) == expected


@pytest.mark.parametrize(
    ("name", "data"),
    [("short.orc", b""), ("sealed.parquet", b"PAR1" + b"." * 40 + b"\x10\0\0\0PARE"), ("a.parquet", None)],
)
def test_what_will_never_be_readable_is_bad_input(
    catalog: DeltaStreamCatalog, tmp_path: Path, name: str, data: bytes | None
) -> None:
    path = tmp_path / name
    path.mkdir() if data is None else path.write_bytes(data)
    with pytest.raises(InputError, match=name) as raised:
        catalog.append_files("t", [path])
    assert raised.value.exit_status == 2


def test_a_token_expires_after_its_commit_was_compacted_not_after_it_was_made() -> None:
    now_s = [1e9]
    catalog = DeltaStreamCatalog(MemoryStore(), clock=lambda: now_s[0])
    catalog.create_table("t", (), ["k"])
    catalog.append("t", pa.table({"k": [1], "v": ["first"]}), token="nightly")
    now_s[0] += TOKEN_RETENTION_S + 1
    run(catalog)
    catalog.append("t", pa.table({"k": [1], "v": ["again"]}), token="nightly")
    assert catalog.read("t")["v"].to_pylist() == ["first"]
    now_s[0] += TOKEN_RETENTION_S + 1
    catalog.append("t", pa.table({"k": [2], "v": ["second"]}))
    run(catalog)
    catalog.append("t", pa.table({"k": [1], "v": ["much later"]}), token="nightly")
    assert sorted(catalog.read("t")["v"].to_pylist()) == ["much later", "second"]


def test_a_session_whose_files_a_vacuum_took_says_that_it_was_fenced_off() -> None:
    lake = Lake(SMALL)
    try:
        lake.append(None, "upsert", rows(*range(5)))

        def days_pass() -> None:
            lake.now_s += 80 * HOUR_S
            lake.vacuum()

        fenced = 0
        for at in range(0, 60, 3):
            lake.append(None, "upsert", rows(at))
            lake.seen.clear()
            lake.compact(meanwhile=(at, days_pass))  # a ConflictError, or it is done: nothing else
            fenced += lake.seen["fenced"]
            lake.verify()
        assert fenced
    finally:
        lake.close()

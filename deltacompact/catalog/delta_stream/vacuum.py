"""Vacuum: delete unreached objects, but none that a running writer, reader or compactor may still need.

    data/5c…       of the active version, or of one sealed less than the minimum age ago    reached: stays
    data/77…       of a version sealed 4 days ago                                           deleted
    data/s1/0a…    of session s1 on the unsealed base, last written 4 days ago              fence s1, then delete
    data/s2/0b…    of session s2 on the unsealed base, written an hour ago                  stays
    data/9e…       newer than the last log entry                                            doubtful: stays
    data/4d…       dropped, but in a retained snapshot of the table's publication           stays
    stream/…       the log of a version in the chain                                        stays for ever

If somebody removed log entries, the log reaches too little. So vacuum deletes nothing at all where the log contradicts
other objects (contradictions.py), where a needed file is missing, or where one is newer than every log entry. Unreached
objects that are newer than the last log entry are kept and reported: a removed entry may have named them.

Vacuum lists candidates first and reads reachability afterwards, so it sees commits in between as reached. A fence is an
entry in the base's log, and a compactor reads every entry before its seal, so a fenced session cannot publish.

It leaves a mark (vacuum_mark.py). If the next vacuum lists the same objects, and none of them has become old enough, it
has nothing to do. Otherwise it reads the log back to the versions that the mark knows.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from deltacompact.base import expect
from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.model import DataFile, ObjectRef, Partition
from deltacompact.base.partitions import all_done
from deltacompact.catalog.delta_stream.catalog import VACUUM_AGE_MIN_S, DeltaStreamCatalog, stream_files
from deltacompact.catalog.delta_stream.contradictions import Evidence, contradictions
from deltacompact.catalog.delta_stream.log import StreamLog
from deltacompact.catalog.delta_stream.log_entries import Entry, Fence
from deltacompact.catalog.delta_stream.paths import StreamPaths, TablePaths
from deltacompact.catalog.delta_stream.state import StreamState
from deltacompact.catalog.delta_stream.vacuum_mark import Mark, SealedVersion, digest, parsed
from deltacompact.index.primary_key_index import IndexManifest, read_manifest
from deltacompact.storage.objects import ObjectStat, ObjectStore, discard, unfinished
from deltacompact.storage.opening import identity, is_uri

_TOLERANCE_S = 60.0
"""A file is older than the entry that names it, but clocks may differ by this many seconds."""


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """The result for one partition stream. Paths are relative to the catalog's root.

    `waiting` are data files that the active version does not need but that are too young to delete, or that snapshots
    of the Iceberg table need, if the table is published to one. `dead_rows` are
    still in files of the active version, under deletion vectors. `doubtful` objects are old and unreached, but newer
    than the last log entry: they stay until the next commit. `unfinished` are writes that never ended; they are
    discarded.
    """

    partition: Partition
    deleted: tuple[ObjectStat, ...]
    fenced: tuple[str, ...]
    kept: int
    waiting: tuple[ObjectStat, ...] = ()
    dead_rows: int = 0
    doubtful: tuple[ObjectStat, ...] = ()
    unfinished: tuple[ObjectStat, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(stat.bytes for stat in self.deleted)


def vacuum(
    catalog: DeltaStreamCatalog,
    table_id: str,
    partition: Mapping[str, Any] | Partition | None = None,
    *,
    age_min_s: float = VACUUM_AGE_MIN_S,
    force: bool = False,
    dry_run: bool = False,
    full: bool = False,
    held: Held | None = None,
) -> list[VacuumResult]:
    """Delete unreached objects older than `age_min_s` seconds (since the seal that dropped them, or last modified).

    `full` reads the whole history again, and not only what came since the last vacuum.
    Raises InputError for an age below VACUUM_AGE_MIN_S, which writers and readers rely on, unless `force` says that
    none is running. Raises CorruptionError, and deletes nothing of the partition, where the stored objects contradict
    each other.

    If the table is published to an Iceberg table, that one's snapshots older than `age_min_s` are expired first, and
    files of the others stay. Nothing is deleted where the Iceberg table cannot be read. Several calls may share what
    they know of it (`held`).
    """
    expect.number("age_min_s", age_min_s)
    expect.flag("force", force)
    expect.flag("dry_run", dry_run)
    expect.flag("full", full)
    if age_min_s < VACUUM_AGE_MIN_S and not force:
        raise InputError(
            f"a minimum age of {age_min_s:.0f} s is below {VACUUM_AGE_MIN_S} s: running readers and writers could lose "
            "their files; if none are running, force it (force=True, --force)"
        )
    shared = held or Held(catalog, table_id, age_min_s, dry_run)
    return all_done(
        catalog.chosen(table_id, partition),
        lambda chosen: _Vacuum(catalog, table_id, chosen, age_min_s, shared).collect(dry_run, full),
        catalog.at_once,
    )


class Held:
    """The files that a published table's Iceberg snapshots refer to. They are read when something could be deleted."""

    def __init__(self, catalog: DeltaStreamCatalog, table_id: str, age_min_s: float, dry_run: bool) -> None:
        self._catalog = catalog
        self._table_id = table_id
        self._old_s = catalog.clock() - age_min_s
        self._dry_run = dry_run
        self._lock = Lock()
        self._known: frozenset[str] | None = None

    def paths(self) -> frozenset[str]:
        """Paths in the catalog's store. Raises where the Iceberg table cannot be read."""
        with self._lock:
            if self._known is None:
                target = self._catalog.publication(self._table_id)
                self._known = frozenset() if target is None else self._read(target)
            return self._known

    def _read(self, target: str) -> frozenset[str]:
        from deltacompact.catalog.publication.held import held_files

        return held_files(target, self._catalog.location, self._old_s, self._dry_run)


@dataclass(frozen=True, slots=True)
class _Listing:
    """The objects of a stream, listed before the log is read. `beside` lie beside the log, `ours` are those of ours."""

    all: dict[str, ObjectStat]
    beside: list[ObjectStat]
    ours: list[ObjectStat]

    def below(self, folder: str) -> Iterator[str]:
        return (stat.path for stat in self.ours if stat.path.startswith(folder))

    def have_logs(self, paths: StreamPaths, versions: Mapping[str, SealedVersion]) -> bool:
        """Whether the log of each version has as many entries as it had, none missing."""
        numbered = filter(None, map(paths.entry_of, self.all))
        entries = Counter(version for version, _ in numbered)
        lengths = {version: entries[version] for version in versions}
        return lengths == {version: known.tail for version, known in versions.items()} and all(
            paths.entry(version, sequence) in self.all for version, tail in lengths.items() for sequence in range(tail)
        )


@dataclass(frozen=True, slots=True)
class _Chain:
    """The versions that seals lead to: those that this vacuum has read, up to the active one, and the ones before."""

    read: list[StreamState]
    past: Mapping[str, SealedVersion]

    @property
    def active(self) -> StreamState:
        return self.read[-1]

    @property
    def sealed(self) -> dict[str, SealedVersion]:
        """All but the active version."""
        read = {state.version: SealedVersion(state.tail, state.manifests) for state in self.read if state.sealed}
        return {**self.past, **read}

    @property
    def tails(self) -> dict[str, int]:
        past = {version: known.tail for version, known in self.past.items()}
        return {**past, **{state.version: state.tail for state in self.read}}


class _Vacuum:
    """The vacuum of one partition stream."""

    def __init__(
        self, catalog: DeltaStreamCatalog, table_id: str, partition: Partition, age_min_s: float, held: Held
    ) -> None:
        self.partition = partition
        self._held = held
        self._now_s = catalog.clock()
        self._store: ObjectStore = catalog.store
        self._log = StreamLog(catalog.store, TablePaths.of(table_id).stream(partition), catalog.log_limits)
        self._paths = self._log.paths
        self._old_s = catalog.clock() - age_min_s
        self._shared_old_s = catalog.clock() - max(age_min_s, VACUUM_AGE_MIN_S)
        self._manifest = lru_cache(maxsize=None)(self._read_manifest)

    def collect(self, dry_run: bool, full: bool) -> VacuumResult:
        """List; read what is reached; refuse a doubtful log; fence dead sessions; delete; leave a mark."""
        mark = None if full else self._mark()
        self._listing = listing = self._listed()
        if mark and mark.is_current(listing.all.values(), self._old_s):
            return self._as_before(mark, dry_run)
        evidence = Evidence.of(self._log, listing.all.values(), mark.records if mark else ())
        chain = self._chain(mark)
        self._refuse(contradictions(self._log, evidence, chain.tails))
        reached = self._reached(chain)
        newest_s = self._newest_s(chain) + _TOLERANCE_S
        self._refuse(self._doubts(chain.active, reached, newest_s))
        protected, fenced = self._fenced_off(chain, dry_run)
        unreached = [stat for stat in listing.ours if stat.path not in reached]
        old = [stat for stat in unreached if self._is_old(stat) and self._paths.session_of(stat.path) not in protected]
        if old:
            held = self._held.paths()
            old = [stat for stat in old if stat.path not in held]
        doubtful = [stat for stat in old if stat.modified_s > newest_s]
        garbage = [
            *(stat for stat in old if stat.modified_s <= newest_s),
            *self._unreached_logs(evidence, chain),
            *self._superseded_checkpoints(evidence, chain.tails.keys()),
        ]
        begun = self._unfinished()
        gone = {stat.path for stat in garbage}
        active = stream_files(chain.active)
        result = VacuumResult(
            self.partition,
            deleted=tuple(garbage),
            fenced=fenced,
            kept=sum(stat.path not in gone for stat in listing.beside),
            waiting=self._waiting(active, gone | {stat.path for stat in doubtful}),
            dead_rows=sum(file.rows - file.live_rows for file in active),
            doubtful=tuple(doubtful),
            unfinished=tuple(begun),
        )
        if not dry_run:
            self._store.delete([stat.path for stat in garbage])
            discard(self._store, begun)
            full_s = mark.full_s if mark and chain.past else self._now_s
            with contextlib.suppress(Exception):  # without it, the next vacuum reads more
                self._put_mark(result, chain, unreached, evidence, full_s)
        return result

    def _mark(self) -> Mark | None:
        try:
            return parsed(self._paths.root, self._store.get(self._paths.vacuum_mark), self._now_s)
        except NotFoundError:
            return None

    def _put_mark(
        self,
        result: VacuumResult,
        chain: _Chain,
        unreached: list[ObjectStat],
        evidence: Evidence,
        full_s: float,
    ) -> None:
        gone = {stat.path for stat in result.deleted}
        settled = gone | {stat.path for stat in result.doubtful}  # doubtful objects wait for an entry, not for an age
        ages = [stat.modified_s for stat in unreached if stat.path not in settled]
        ages += [self._sealed_s(state) for state in self._retained(chain.read) if state.sealed]
        attempts = self._attempts(evidence, chain).values()
        ages += [max(stat.modified_s for stat in log) for log in attempts if not gone.issuperset(_paths(log))]
        mark = Mark(
            digest(stat for stat in self._listing.all.values() if stat.path not in gone),
            min(ages, default=None),
            full_s,
            _paths(result.waiting),
            _paths(result.doubtful),
            result.dead_rows,
            chain.sealed,
            tuple(path for path in evidence.records if path in self._listing.all and path not in gone),
        )
        self._store.put(self._paths.vacuum_mark, mark.encoded(self._paths.root))

    def _as_before(self, mark: Mark, dry_run: bool) -> VacuumResult:
        """The result of a vacuum that finds what the last one left."""
        begun, all_ = self._unfinished(), self._listing.all
        if not dry_run:
            discard(self._store, begun)
        return VacuumResult(
            self.partition,
            deleted=(),
            fenced=(),
            kept=len(self._listing.beside),
            waiting=tuple(all_[path] for path in mark.waiting if path in all_),
            dead_rows=mark.dead_rows,
            doubtful=tuple(all_[path] for path in mark.doubtful if path in all_),
            unfinished=tuple(begun),
        )

    def _listed(self) -> _Listing:
        """All objects of the stream, in one listing."""
        found = [stat for stat in self._store.list(f"{self._paths.root}/") if stat.path.startswith(self._paths.folders)]
        beside = [stat for stat in found if stat.path.startswith(self._paths.rooms)]
        ours = [stat for stat in beside if self._paths.is_ours(stat.path)]
        return _Listing({stat.path: stat for stat in found}, beside, ours)

    def _chain(self, mark: Mark | None) -> _Chain:
        """The chain: every version from the first to the active one, or those that the mark does not know.

        The retained versions are read in any case. If the log of a version that the mark knows is not as it was, the
        whole chain is read, and says what is wrong.
        """
        past = dict(mark.chain) if mark else {}
        if not past or not self._listing.have_logs(self._paths, past):
            return _Chain(list(self._log.chain()), {})
        state = self._log.active(strictly=True)
        read = [state]
        while (parent := state.opened.parent) is not None:
            if parent in past and self._modified_s(self._paths.entry(parent, past[parent].tail - 1)) < self._old_s:
                break
            state = self._log.state(parent)
            if state.sealed is None or state.sealed.successor != read[0].version:
                return _Chain(list(self._log.chain()), {})
            read.insert(0, state)
        return _Chain(read, {version: past[version] for version in past if version != read[-1].version})

    def _modified_s(self, path: str) -> float:
        listed = self._listing.all.get(path)
        return (listed or self._store.stat(path)).modified_s

    def _sealed_s(self, state: StreamState) -> float:
        return self._modified_s(self._paths.entry(state.version, state.tail - 1))

    def _is_old(self, stat: ObjectStat) -> bool:
        return stat.modified_s < self._old_s

    def _read_manifest(self, ref: ObjectRef) -> IndexManifest:
        return read_manifest(self._store, ref)

    def _reached(self, chain: _Chain) -> _Reached:
        """The objects that retained versions need. The bodies of log entries stay for every version in the chain."""
        needed = {path for state in self._retained(chain.read) for path in self._paths_of(state)}
        bodies = {path for known in chain.sealed.values() for path in known.manifests}
        return _Reached(self._store, needed | bodies | set(chain.active.manifests))

    def _waiting(self, active: list[DataFile], old: set[str]) -> tuple[ObjectStat, ...]:
        """Data files that the active version does not need, but that are too young to delete."""
        needed = _Reached(self._store, {file.path for file in active})
        data = [stat for stat in self._listing.ours if self._paths.is_data(stat.path) and stat.path not in old]
        return tuple(stat for stat in data if stat.path not in needed)

    def _fenced_off(self, chain: _Chain, dry_run: bool) -> tuple[set[str], tuple[str, ...]]:
        """The sessions that may still publish, and those that this vacuum has fenced."""
        sessions = self._sessions(self._listing.ours)
        protected = {name for name in sessions if self._may_publish(name, chain)}
        stale = sorted(name for name in protected if all(map(self._is_old, sessions[name])))
        fenced = stale if dry_run else [name for name in stale if self._fence(name, chain.active.version)]
        return protected - set(fenced), tuple(fenced)

    def _refuse(self, reasons: Iterator[str]) -> None:
        """Raise CorruptionError for the first reason, if there is one, not to trust the log."""
        for reason in reasons:
            raise CorruptionError(f"partition {self.partition}: {reason} (nothing was deleted)")

    def _newest_s(self, chain: _Chain) -> float:
        """When the last entry was put that is not a fence: of the active version, or the seal that led to it."""
        last_s = self._modified_s(self._log.last_written(chain.active))
        parent = chain.active.opened.parent
        if parent is None:
            return last_s
        return max(last_s, self._modified_s(self._paths.entry(parent, chain.tails[parent] - 1)))

    def _doubts(self, active: StreamState, reached: _Reached, newest_s: float) -> Iterator[str]:
        """Needed files that are missing, and files that are newer than the log that names them."""
        for path in self._needed(active):
            if not self._is_there(path):  # it may have been committed after the listing
                yield f"{path}, which the active version names, is missing: restore it, or retract its delta"
        for stat in self._listing.ours:
            if stat.modified_s > newest_s and stat.path in reached and not self._paths.is_record(stat.path):
                yield (
                    f"{stat.path} is newer than every entry of the log that names it: entries were removed, or the "
                    "files were copied (then commit something first)"
                )

    def _needed(self, active: StreamState) -> Iterator[str]:
        """The objects that a reader of the active version needs, without files that the table does not own."""
        for file in stream_files(active):
            if file.managed:
                yield file.path
            if file.deletions:
                yield file.deletions.masks_path
        if active.index:
            yield active.index.path
            if self._is_there(active.index.path):
                yield from self._manifest(active.index).paths

    def _is_there(self, path: str) -> bool:
        if path in self._listing.all:
            return True
        try:
            self._store.stat(path)
        except NotFoundError:
            return False
        return True

    def _retained(self, chain: list[StreamState]) -> Iterator[StreamState]:
        """The active version, and versions sealed within the minimum age, which readers may still read."""
        for state in reversed(chain):
            if state.sealed and self._sealed_s(state) < self._old_s:
                return
            yield state

    def _paths_of(self, state: StreamState) -> Iterator[str]:
        """Every object that a reader of this version needs."""
        committed = [file for delta in state.committed for file in delta.files]
        for file in [*committed, *stream_files(state)]:  # readers that began before a retraction still read its files
            yield file.path
            if file.deletions:
                yield file.deletions.masks_path
        for ref in state.indices:
            yield ref.path
            try:
                manifest = self._manifest(ref)
            except NotFoundError:
                continue  # an earlier vacuum with a lower age, or somebody else, deleted it
            yield from manifest.paths
        if state.compacted:
            yield from self._listing.below(self._paths.session(state.compacted.session_id))

    def _sessions(self, listed: list[ObjectStat]) -> dict[str, list[ObjectStat]]:
        sessions: dict[str, list[ObjectStat]] = {}
        for stat in listed:
            if name := self._paths.session_of(stat.path):
                sessions.setdefault(name, []).append(stat)
        return sessions

    def _may_publish(self, name: str, chain: _Chain) -> bool:
        """Whether the session could still seal its base: the base has no seal and no fence for the session."""
        active, plan = chain.active, self._paths.session(name) + "plan.json"
        if plan not in self._listing.all:  # it is put before all else of the session
            return False
        if any(state.compacted and state.compacted.session_id == name for state in chain.read):
            return False  # it has published: its base has a seal
        try:
            record = json.loads(self._store.get(plan))
            base = record["destination_version"]
        except (NotFoundError, ValueError, LookupError, TypeError):
            return False  # a rehash or a writer: they refuse to commit old files themselves
        return bool(base == active.version) and name not in active.fences

    def _fence(self, name: str, base: str) -> bool:
        """Put a fence into the base's log. False: the base was sealed first."""
        decided = [False]

        def decide(state: StreamState) -> Entry | None:
            decided[0] = state.version == base
            if not decided[0] or name in state.fences:
                return None
            return Fence(name)

        self._log.extend(decide)
        return decided[0]

    def _unreached_logs(self, evidence: Evidence, chain: _Chain) -> list[ObjectStat]:
        """Logs of attempts that lost: a seal of their parent names another successor.

        Delete the first entry last: it names the parent, so if this vacuum dies halfway, the next one still finds the
        log.
        """
        sealed = chain.sealed.keys() - {chain.active.version}
        opened_of = self._log.objects.opened
        return [
            stat
            for version, objects in self._attempts(evidence, chain).items()
            if all(map(self._is_old, objects)) and (opened := opened_of(version)) and opened.parent in sealed
            for stat in sorted(objects, key=lambda stat: stat.path, reverse=True)
        ]

    def _attempts(self, evidence: Evidence, chain: _Chain) -> dict[str, list[ObjectStat]]:
        """The logs of versions that no seal leads to."""
        attempts: dict[str, list[ObjectStat]] = {}
        for stat in evidence.entries:
            version, _ = self._paths.entry_of(stat.path) or ("", 0)
            attempts.setdefault(version, []).append(stat)
        return {version: objects for version, objects in attempts.items() if version not in chain.tails}

    def _superseded_checkpoints(self, evidence: Evidence, chain: Collection[str]) -> list[ObjectStat]:
        """All checkpoints but the newest of each version in the chain. Readers can always read the log instead."""
        tails: dict[str, int] = {}
        found = [(self._paths.checkpoint_of(stat.path) or ("", 0), stat) for stat in evidence.checkpoints]
        for (version, tail), _ in found:
            tails[version] = max(tail, tails.get(version, 0))
        return [stat for (version, tail), stat in found if version not in chain or tail < tails[version]]

    def _unfinished(self) -> list[ObjectStat]:
        """Writes that never ended. Where the store cannot tell which table a write is for, the full age counts."""
        root = f"{self._paths.root}/"
        return [
            stat
            for stat in unfinished(self._store, root)
            if stat.modified_s < (self._old_s if self._paths.is_ours(stat.path) else self._shared_old_s)
            and (self._paths.is_ours(stat.path) or not stat.path.startswith(root))
        ]


def _paths(stats: Iterable[ObjectStat]) -> tuple[str, ...]:
    return tuple(stat.path for stat in stats)


class _Reached:
    """The reached objects, by path or by the URI under which a file was appended."""

    def __init__(self, store: ObjectStore, paths: set[str]) -> None:
        self.paths = paths
        self._store = store
        self._referenced = {identity(store, path) for path in paths if is_uri(path)}

    def __contains__(self, path: str) -> bool:
        return path in self.paths or (bool(self._referenced) and identity(self._store, path) in self._referenced)

"""Vacuum: delete unreached objects, but none that a running writer, reader or compactor may still need.

    data/5c…       of the active version, or of one sealed less than the minimum age ago    reached: stays
    data/77…       of a version sealed 4 days ago                                           deleted
    data/s1/0a…    of session s1 on the unsealed base, last written 4 days ago              fence s1, then delete
    data/s2/0b…    of session s2 on the unsealed base, written an hour ago                  stays
    data/9e…       newer than the last log entry                                            doubtful: stays
    stream/…       the log of a version in the chain                                        stays for ever

If somebody removed log entries, the log reaches too little. So vacuum deletes nothing at all where the log contradicts
other objects (contradictions.py), where a needed file is missing, or where one is newer than every log entry. Unreached
objects that are newer than the last log entry are kept and reported: a removed entry may have named them.

Vacuum lists candidates first and reads reachability afterwards, so it sees commits in between as reached. A fence is an
entry in the base's log, and a compactor reads every entry before its seal, so a fenced session cannot publish.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from deltacompact.base import expect
from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.model import DataFile, Partition
from deltacompact.base.partitions import all_done
from deltacompact.catalog.delta_stream.catalog import VACUUM_AGE_MIN_S, DeltaStreamCatalog, stream_files
from deltacompact.catalog.delta_stream.contradictions import Evidence, contradictions
from deltacompact.catalog.delta_stream.log import StreamLog
from deltacompact.catalog.delta_stream.log_entries import Entry, Fence
from deltacompact.catalog.delta_stream.paths import TablePaths
from deltacompact.catalog.delta_stream.state import StreamState
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.storage.objects import ObjectStat, ObjectStore, discard, unfinished
from deltacompact.storage.opening import identity, is_uri

_TOLERANCE_S = 60.0
"""A file is older than the entry that names it, but clocks may differ by this many seconds."""


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """The result for one partition stream. Paths are relative to the catalog's root.

    `waiting` are data files that the active version does not need but that are too young to delete. `dead_rows` are
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
) -> list[VacuumResult]:
    """Delete unreached objects older than `age_min_s` seconds (since the seal that dropped them, or last modified).

    Raises InputError for an age below VACUUM_AGE_MIN_S, which writers and readers rely on, unless `force` says that
    none is running. Raises CorruptionError, and deletes nothing of the partition, where the stored objects contradict
    each other.
    """
    expect.number("age_min_s", age_min_s)
    expect.flag("force", force)
    expect.flag("dry_run", dry_run)
    if age_min_s < VACUUM_AGE_MIN_S and not force:
        raise InputError(
            f"a minimum age of {age_min_s:.0f} s is below {VACUUM_AGE_MIN_S} s: running readers and writers could lose "
            "their files; if none are running, force it (force=True, --force)"
        )
    return all_done(
        catalog.chosen(table_id, partition),
        lambda chosen: _Vacuum(catalog, table_id, chosen, age_min_s).collect(dry_run),
    )


@dataclass(frozen=True, slots=True)
class _Listing:
    """Objects listed before the log is read: evidence about the log, all objects beside it, and those that are ours."""

    evidence: Evidence
    all: list[ObjectStat]
    ours: list[ObjectStat]


class _Vacuum:
    """The vacuum of one partition stream."""

    def __init__(self, catalog: DeltaStreamCatalog, table_id: str, partition: Partition, age_min_s: float) -> None:
        self.partition = partition
        self._store: ObjectStore = catalog.store
        self._log = StreamLog(catalog.store, TablePaths.of(table_id).stream(partition), catalog.log_limits)
        self._paths = self._log.paths
        self._old_s = catalog.clock() - age_min_s
        self._shared_old_s = catalog.clock() - max(age_min_s, VACUUM_AGE_MIN_S)

    def collect(self, dry_run: bool) -> VacuumResult:
        """List, read what is reached, refuse a doubtful log, fence dead sessions, delete."""
        listing = self._listing()
        chain = list(self._log.chain())
        self._refuse(contradictions(self._log, listing.evidence, chain))
        reached = self._reached(chain)
        newest_s = self._newest_s(chain) + _TOLERANCE_S
        self._refuse(self._doubts(listing.ours, chain[-1], reached, newest_s))
        protected, fenced = self._fenced_off(listing.ours, chain, dry_run)
        unreached = list(self._unreached(listing.ours, reached, protected))
        doubtful = [stat for stat in unreached if stat.modified_s > newest_s]
        garbage = [
            *(stat for stat in unreached if stat.modified_s <= newest_s),
            *self._unreached_logs(listing.evidence, chain),
            *self._superseded_checkpoints(listing.evidence, {state.version for state in chain}),
        ]
        begun = self._unfinished()
        if not dry_run:
            self._store.delete([stat.path for stat in garbage])
            discard(self._store, begun)
        gone = {stat.path for stat in garbage}
        active = stream_files(chain[-1])
        return VacuumResult(
            self.partition,
            deleted=tuple(garbage),
            fenced=fenced,
            kept=sum(stat.path not in gone for stat in listing.all),
            waiting=self._waiting(listing.ours, active, gone | {stat.path for stat in doubtful}),
            dead_rows=sum(file.rows - file.live_rows for file in active),
            doubtful=tuple(doubtful),
            unfinished=tuple(begun),
        )

    def _listing(self) -> _Listing:
        evidence = Evidence.of(self._log)
        found = [stat for room in self._paths.rooms for stat in self._store.list(room)]
        return _Listing(evidence, found, [stat for stat in found if self._paths.is_ours(stat.path)])

    def _reached(self, chain: list[StreamState]) -> _Reached:
        """The objects that retained versions need. The bodies of log entries stay for every version in the chain."""
        needed = {path for state in self._retained(chain) for path in self._paths_of(state)}
        manifests = {path for state in chain for path in state.manifests}
        return _Reached(self._store, needed | manifests)

    def _unreached(self, listed: list[ObjectStat], reached: _Reached, protected: set[str]) -> Iterator[ObjectStat]:
        """Objects that are old, unreached, and of no session that may still publish."""
        for stat in listed:
            is_old = stat.modified_s < self._old_s
            if is_old and stat.path not in reached and self._paths.session_of(stat.path) not in protected:
                yield stat

    def _waiting(self, listed: list[ObjectStat], active: list[DataFile], old: set[str]) -> tuple[ObjectStat, ...]:
        """Data files that the active version does not need, but that are too young to delete."""
        needed = _Reached(self._store, {file.path for file in active})
        data = [stat for stat in listed if self._paths.is_data(stat.path) and stat.path not in old]
        return tuple(stat for stat in data if stat.path not in needed)

    def _fenced_off(
        self, listed: list[ObjectStat], chain: list[StreamState], dry_run: bool
    ) -> tuple[set[str], tuple[str, ...]]:
        """The sessions that may still publish, and those that this vacuum has fenced."""
        sessions = self._sessions(listed)
        protected = {name for name in sessions if self._may_publish(name, chain)}
        stale = sorted(name for name in protected if all(stat.modified_s < self._old_s for stat in sessions[name]))
        fenced = stale if dry_run else [name for name in stale if self._fence(name, chain[-1].version)]
        return protected - set(fenced), tuple(fenced)

    def _refuse(self, reasons: Iterator[str]) -> None:
        """Raise CorruptionError for the first reason, if there is one, not to trust the log."""
        for reason in reasons:
            raise CorruptionError(f"partition {self.partition}: {reason} (nothing was deleted)")

    def _newest_s(self, chain: list[StreamState]) -> float:
        """When the last entry was put that is not a fence."""
        sealed = [self._log.sealed_s(state) for state in chain[-2:] if state.sealed]
        return max([self._log.written_s(chain[-1]), *sealed])

    def _doubts(
        self, listed: list[ObjectStat], active: StreamState, reached: _Reached, newest_s: float
    ) -> Iterator[str]:
        """Needed files that are missing, and files that are newer than the log that names them."""
        present = {stat.path for stat in listed}
        for path in self._needed(active):
            if path not in present and not self._is_there(path):  # it may have been committed after the listing
                yield f"{path}, which the active version names, is missing: restore it, or retract its delta"
        for stat in listed:
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
                yield from read_manifest(self._store, active.index).paths

    def _is_there(self, path: str) -> bool:
        try:
            self._store.stat(path)
        except NotFoundError:
            return False
        return True

    def _retained(self, chain: list[StreamState]) -> Iterator[StreamState]:
        """The active version, and versions sealed within the minimum age, which readers may still read."""
        for state in reversed(chain):
            if state.sealed and self._log.sealed_s(state) < self._old_s:
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
                manifest = read_manifest(self._store, ref)
            except NotFoundError:
                continue  # an earlier vacuum with a lower age, or somebody else, deleted it
            yield from manifest.paths
        if state.compacted:
            yield from (stat.path for stat in self._store.list(self._paths.session(state.compacted.session_id)))

    def _sessions(self, listed: list[ObjectStat]) -> dict[str, list[ObjectStat]]:
        sessions: dict[str, list[ObjectStat]] = {}
        for stat in listed:
            if name := self._paths.session_of(stat.path):
                sessions.setdefault(name, []).append(stat)
        return sessions

    def _may_publish(self, name: str, chain: list[StreamState]) -> bool:
        """Whether the session could still seal its base: the base has no seal and no fence for the session."""
        active = chain[-1]
        try:
            record = json.loads(self._store.get(self._paths.session(name) + "plan.json"))
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

    def _unreached_logs(self, evidence: Evidence, chain: list[StreamState]) -> list[ObjectStat]:
        """Logs of attempts that lost: a seal of their parent names another successor.

        Delete the first entry last: it names the parent, so if this vacuum dies halfway, the next one still finds the
        log.
        """
        sealed = {state.version for state in chain if state.sealed}
        attempts: dict[str, list[ObjectStat]] = {}
        for stat in evidence.entries:
            version, _ = self._paths.entry_of(stat.path) or ("", 0)
            attempts.setdefault(version, []).append(stat)
        for state in chain:
            attempts.pop(state.version, None)
        return [
            stat
            for version, objects in attempts.items()
            if all(stat.modified_s < self._old_s for stat in objects)
            and (opened := self._log.opened(version))
            and opened.parent in sealed
            for stat in sorted(objects, key=lambda stat: stat.path, reverse=True)
        ]

    def _superseded_checkpoints(self, evidence: Evidence, chain: set[str]) -> list[ObjectStat]:
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


class _Reached:
    """The reached objects, by path or by the URI under which a file was appended."""

    def __init__(self, store: ObjectStore, paths: set[str]) -> None:
        self.paths = paths
        self._store = store

    def __contains__(self, path: str) -> bool:
        return path in self.paths or (bool(self._referenced) and identity(self._store, path) in self._referenced)

    @cached_property
    def _referenced(self) -> set[str]:
        return {identity(self._store, path) for path in self.paths if is_uri(path)}

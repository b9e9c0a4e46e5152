"""Vacuum: delete what nothing reaches, and never what a running writer, reader or compactor may still need.

    data/5c…       of the active version, or of one sealed less than the minimum age ago    reached: stays
    data/77…       of a version sealed 4 days ago                                           goes
    data/s1/0a…    of session s1 on the unsealed base, last touched 4 days ago              fence s1, then it goes
    data/s2/0b…    of session s2 on the unsealed base, touched an hour ago                  stays
    data/9e…       newer than the last log entry                                            doubtful: stays
    stream/…       the log of a version in the chain                                        stays for ever

A log from which entries were removed reaches too little. So where the log, or what lies beside it, contradicts itself
(see contradictions.py), where a file that is needed is missing, or is newer than every entry, nothing is deleted at
all. And what nothing reaches but is newer than the last entry is kept and reported: it may be of entries that are gone.

Candidates are listed before reachability is read: whatever is committed in between is then seen as reached. A fence is
an entry in the base's log, and a compactor reads every entry before its seal, so a fenced session cannot publish.
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
"""Files are written before the entry that names them; clocks may disagree by so much."""


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """What one partition stream lost. Paths are relative to the catalog's root.

    `waiting` are data files that no reader of today needs and that are too young to go; `dead_rows` are still in files
    of the active version, under deletion vectors. `doubtful` is old and unreached, but newer than the last log entry:
    it stays until something is committed. `unfinished` are writes that were never ended, and were discarded.
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
    """Delete unreached objects older than `age_min_s` seconds (from the seal that dropped them, or last modified).

    Raises InputError for an age below VACUUM_AGE_MIN_S, by which writers and readers go, unless `force` says that none
    is running. Raises CorruptionError, and deletes nothing of the partition, where what is stored contradicts itself.
    """
    expect.number("age_min_s", age_min_s)
    expect.flag("force", force)
    expect.flag("dry_run", dry_run)
    if age_min_s < VACUUM_AGE_MIN_S and not force:
        raise InputError(
            f"a minimum age of {age_min_s:.0f} s is below {VACUUM_AGE_MIN_S} s: running readers and writers could lose "
            "their files; where there are none, force it (force=True, --force)"
        )
    return all_done(
        catalog.chosen(table_id, partition),
        lambda chosen: _Vacuum(catalog, table_id, chosen, age_min_s).collect(dry_run),
    )


@dataclass(frozen=True, slots=True)
class _Listing:
    """What was there before the log was read: the log's own objects, everything beside it, and what of that is ours."""

    evidence: Evidence
    all: list[ObjectStat]
    ours: list[ObjectStat]


class _Vacuum:
    """One partition stream."""

    def __init__(self, catalog: DeltaStreamCatalog, table_id: str, partition: Partition, age_min_s: float) -> None:
        self.partition = partition
        self._store: ObjectStore = catalog.store
        self._log = StreamLog(catalog.store, TablePaths.of(table_id).stream(partition), catalog.log_limits)
        self._paths = self._log.paths
        self._old_s = catalog.clock() - age_min_s
        self._shared_old_s = catalog.clock() - max(age_min_s, VACUUM_AGE_MIN_S)

    def collect(self, dry_run: bool) -> VacuumResult:
        """List, read what is reached, refuse what cannot be believed, fence dead sessions off, delete."""
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
        """What the retained versions need. The manifests of every version are a part of the log, so they stay."""
        needed = {path for state in self._retained(chain) for path in self._paths_of(state)}
        manifests = {path for state in chain for path in state.manifests}
        return _Reached(self._store, needed | manifests)

    def _unreached(self, listed: list[ObjectStat], reached: _Reached, protected: set[str]) -> Iterator[ObjectStat]:
        """What is old, needed by nobody, and of no session that may still publish it."""
        for stat in listed:
            is_old = stat.modified_s < self._old_s
            if is_old and stat.path not in reached and self._paths.session_of(stat.path) not in protected:
                yield stat

    def _waiting(self, listed: list[ObjectStat], active: list[DataFile], old: set[str]) -> tuple[ObjectStat, ...]:
        """Data files that the active version does not need, and that are too young to go."""
        needed = _Reached(self._store, {file.path for file in active})
        data = [stat for stat in listed if self._paths.is_data(stat.path) and stat.path not in old]
        return tuple(stat for stat in data if stat.path not in needed)

    def _fenced_off(
        self, listed: list[ObjectStat], chain: list[StreamState], dry_run: bool
    ) -> tuple[set[str], tuple[str, ...]]:
        """The sessions that may still publish, and those that cannot any more, since a fence was put just now."""
        sessions = self._sessions(listed)
        protected = {name for name in sessions if self._may_publish(name, chain)}
        stale = sorted(name for name in protected if all(stat.modified_s < self._old_s for stat in sessions[name]))
        fenced = stale if dry_run else [name for name in stale if self._fence(name, chain[-1].version)]
        return protected - set(fenced), tuple(fenced)

    def _refuse(self, reasons: Iterator[str]) -> None:
        """Raise CorruptionError for the first reason not to believe the log."""
        for reason in reasons:
            raise CorruptionError(f"partition {self.partition}: {reason} (nothing was deleted)")

    def _newest_s(self, chain: list[StreamState]) -> float:
        """When the last entry was put by somebody else than a vacuum."""
        sealed = [self._log.sealed_s(state) for state in chain[-2:] if state.sealed]
        return max([self._log.written_s(chain[-1]), *sealed])

    def _doubts(
        self, listed: list[ObjectStat], active: StreamState, reached: _Reached, newest_s: float
    ) -> Iterator[str]:
        """Files that are needed and missing, and files that the log names but that came after it."""
        there = {stat.path for stat in listed}
        for path in self._needed(active):
            if path not in there and not self._is_there(path):  # committed since, perhaps
                yield f"{path}, which the active version names, is missing: restore it, or retract its delta"
        for stat in listed:
            if stat.modified_s > newest_s and stat.path in reached and not self._paths.is_record(stat.path):
                yield (
                    f"{stat.path} is newer than every entry of the log that names it: entries were removed, or the "
                    "files were copied (then commit something first)"
                )

    def _needed(self, active: StreamState) -> Iterator[str]:
        """What a reader of the active version cannot do without, but for files of others."""
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
        """The active version, and those that readers may still be at: sealed within the minimum age."""
        for state in reversed(chain):
            if state.sealed and self._log.sealed_s(state) < self._old_s:
                return
            yield state

    def _paths_of(self, state: StreamState) -> Iterator[str]:
        """Every object that a reader of this version needs."""
        committed = [file for delta in state.committed for file in delta.files]
        for file in [*committed, *stream_files(state)]:  # readers from before a retraction read what it took out
            yield file.path
            if file.deletions:
                yield file.deletions.masks_path
        for ref in state.indices:
            yield ref.path
            try:
                manifest = read_manifest(self._store, ref)
            except NotFoundError:
                continue  # of a version that is retained by force only, or vacuumed by another hand
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
        """Whether the session could still seal its base: the base is unsealed, and it is not fenced."""
        active = chain[-1]
        try:
            record = json.loads(self._store.get(self._paths.session(name) + "plan.json"))
            base = record["destination_version"]
        except (NotFoundError, ValueError, LookupError, TypeError):
            return False  # a rehash or a writer of ours: they refuse to commit what is old
        return bool(base == active.version) and name not in active.fences

    def _fence(self, name: str, base: str) -> bool:
        """Whether a fence is in the base's log: it was not sealed first."""
        decided = [False]

        def decide(state: StreamState) -> Entry | None:
            decided[0] = state.version == base
            if not decided[0] or name in state.fences:
                return None
            return Fence(name)

        self._log.extend(decide)
        return decided[0]

    def _unreached_logs(self, evidence: Evidence, chain: list[StreamState]) -> list[ObjectStat]:
        """Logs of attempts that lost: their parent was sealed in favour of another successor, for good.

        The first entry, which names the parent, goes last: a vacuum that dies in between is not the last to see them.
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
        """All but the newest of each version in the chain. A reader that finds one gone reads the log itself."""
        tails: dict[str, int] = {}
        found = [(self._paths.checkpoint_of(stat.path) or ("", 0), stat) for stat in evidence.checkpoints]
        for (version, tail), _ in found:
            tails[version] = max(tail, tails.get(version, 0))
        return [stat for (version, tail), stat in found if version not in chain or tail < tails[version]]

    def _unfinished(self) -> list[ObjectStat]:
        """Writes that were begun and never ended. Those whose table a store cannot tell go by the full age."""
        root = f"{self._paths.root}/"
        return [
            stat
            for stat in unfinished(self._store, root)
            if stat.modified_s < (self._old_s if self._paths.is_ours(stat.path) else self._shared_old_s)
            and (self._paths.is_ours(stat.path) or not stat.path.startswith(root))
        ]


class _Reached:
    """The objects that are reached, by whatever name: a path, or the URI under which a file was appended."""

    def __init__(self, store: ObjectStore, paths: set[str]) -> None:
        self.paths = paths
        self._store = store

    def __contains__(self, path: str) -> bool:
        return path in self.paths or (bool(self._referenced) and identity(self._store, path) in self._referenced)

    @cached_property
    def _referenced(self) -> set[str]:
        return {identity(self._store, path) for path in self.paths if is_uri(path)}

"""Vacuum: delete what nothing reaches, and never what a running writer, reader or compactor may still need.

    data/5c…       of the active version, or of one sealed less than the minimum age ago    reached: stays
    data/77…       of a version sealed 4 days ago                                           goes
    data/s1/0a…    of session s1 on the unsealed base, last touched 4 days ago              fence s1, then it goes
    data/s2/0b…    of session s2 on the unsealed base, touched an hour ago                  stays
    stream/…       the log of a version in the chain                                        stays for ever

Candidates are listed before reachability is read: whatever is committed in between is then seen as reached. A fence is
an entry in the base's log, and a compactor reads every entry before its seal, so a fenced session cannot publish.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deltacompact import expect
from deltacompact.catalog.delta_stream import VACUUM_AGE_MIN_S, DeltaStreamCatalog, stream_files
from deltacompact.catalog.entries import Entry, Fence
from deltacompact.catalog.log import StreamLog
from deltacompact.catalog.paths import TablePaths
from deltacompact.catalog.state import StreamState
from deltacompact.errors import InputError, NotFoundError
from deltacompact.model import Partition
from deltacompact.partitions import all_done
from deltacompact.primary_key_index import read_manifest
from deltacompact.storage import ObjectStat, ObjectStore

_OURS = re.compile(r"[0-9a-f]{32}\.[a-z.]+")
"""Names that `StreamPaths.fresh` makes: nothing that somebody else put into our folders is ever deleted."""


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """What one partition stream lost. Paths are relative to the catalog's root.

    `waiting` are data files that no reader of today needs and that are too young to go; `dead_rows` are still in files
    of the active version, under deletion vectors.
    """

    partition: Partition
    deleted: tuple[ObjectStat, ...]
    fenced: tuple[str, ...]
    kept: int
    waiting: tuple[ObjectStat, ...] = ()
    dead_rows: int = 0

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
    is running.
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
        catalog.chosen(table_id, partition), lambda place: _Vacuum(catalog, table_id, place, age_min_s).run(dry_run)
    )


class _Vacuum:
    """One partition stream."""

    def __init__(self, catalog: DeltaStreamCatalog, table_id: str, partition: Partition, age_min_s: float) -> None:
        self.partition = partition
        self._store: ObjectStore = catalog.store
        self._log = StreamLog(catalog.store, TablePaths.of(table_id).stream(partition))
        self._paths = self._log.paths
        self._old_s = catalog.clock() - age_min_s

    def run(self, dry_run: bool) -> VacuumResult:
        listed = [stat for room in self._paths.rooms for stat in self._store.list(room)]
        chain = list(self._log.chain())
        reached = {path for state in self._retained(chain) for path in self._paths_of(state)}
        reached.update(path for state in chain for path in state.manifests)  # a part of the log, so they stay
        sessions = self._sessions(listed)
        protected = {name for name, objects in sessions.items() if self._may_publish(name, objects, chain)}
        stale = sorted(name for name in protected if all(stat.modified_s < self._old_s for stat in sessions[name]))
        fenced = stale if dry_run else [name for name in stale if self._fence(name, chain[-1].version)]
        protected -= set(fenced)
        garbage = [
            stat
            for stat in listed
            if stat.modified_s < self._old_s
            and stat.path not in reached
            and self._session_of(stat.path) not in protected
            and self._is_ours(stat.path)
        ]
        garbage += self._unreached_logs({state.version for state in chain}, {s.version for s in chain if s.sealed})
        if not dry_run:
            self._store.delete([stat.path for stat in garbage])
        gone = {stat.path for stat in garbage}
        active = stream_files(chain[-1])
        needed = {file.path for file in active}
        waiting = [s for s in listed if self._is_data(s.path) and s.path not in gone and s.path not in needed]
        dead_rows = sum(file.rows - file.live_rows for file in active)
        kept = len(listed) - len(gone)
        return VacuumResult(self.partition, tuple(garbage), tuple(fenced), kept, tuple(waiting), dead_rows)

    def _retained(self, chain: list[StreamState]) -> Iterator[StreamState]:
        """The active version, and those that readers may still be at: sealed within the minimum age."""
        for state in reversed(chain):
            if state.sealed and self._log.sealed_s(state) < self._old_s:
                return
            yield state

    def _paths_of(self, state: StreamState) -> Iterator[str]:
        """Every object that a reader of this version needs."""
        for delta in state.committed:  # readers from before a retraction still read what it took out
            yield from (file.path for file in delta.files)
        for file in stream_files(state):
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
            if name := self._session_of(stat.path):
                sessions.setdefault(name, []).append(stat)
        return sessions

    def _session_of(self, path: str) -> str | None:
        """The session in whose folder an object lies: data/<session>/…, index/<session>/…, sessions/<session>/…"""
        parts = path.removeprefix(self._paths.root + "/").split("/")
        return parts[1] if len(parts) == 3 else None

    def _may_publish(self, name: str, objects: list[ObjectStat], chain: list[StreamState]) -> bool:
        """Whether the session could still seal its base: the base is unsealed, and it is not fenced."""
        active = chain[-1]
        try:
            record = json.loads(self._store.get(self._paths.session(name) + "plan.json"))
        except (NotFoundError, ValueError):
            return False  # a rehash or a writer of ours: they refuse to commit what is old
        return record["destination_version"] == active.version and name not in active.fences

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

    def _is_data(self, path: str) -> bool:
        return path.startswith(f"{self._paths.root}/data/")

    def _is_ours(self, path: str) -> bool:
        parts = path.removeprefix(self._paths.root + "/").split("/")
        return parts[0] == "sessions" or bool(_OURS.fullmatch(parts[-1]))

    def _unreached_logs(self, chain: set[str], sealed: set[str]) -> list[ObjectStat]:
        """Logs of attempts that lost: their parent was sealed in favour of another successor, for good."""
        attempts: dict[str, list[ObjectStat]] = {}
        for stat in self._store.list(f"{self._paths.root}/stream/"):
            version = stat.path.split("/")[-2]
            if version not in chain and version != "stream":
                attempts.setdefault(version, []).append(stat)
        return [
            stat
            for version, objects in attempts.items()
            if all(stat.modified_s < self._old_s for stat in objects) and self._parent(version) in sealed
            for stat in objects
        ]

    def _parent(self, version: str) -> str | None:
        try:
            return self._log.state(version).opened.parent
        except NotFoundError:
            return None

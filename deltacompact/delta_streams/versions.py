"""The versions of a stream: list them, go back to one, and take out one delta.

    0                  sealed 4 days ago   vacuumed: one of its files is missing
    1-50a3…            sealed 3 hours ago  3 files, 9,000 rows      retained: may be read, may be rolled back to
    2-77b1…            active              4 files, 9,500 rows, 2 deltas since

A rollback writes a successor with the contents of the old version and releases it with a seal, like any other version.
It drops the commits in between; commits that arrive while it runs stay on top.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from deltacompact.base import expect
from deltacompact.base.errors import ConflictError, InputError, NotFoundError
from deltacompact.base.model import Partition
from deltacompact.base.wording import counted
from deltacompact.delta_streams.appending.blocking import examined, measuring
from deltacompact.delta_streams.appending.carried import check_carried
from deltacompact.delta_streams.log.entries import Carried, Compacted, Entry, IndexReplaced, Opened, Retracted
from deltacompact.delta_streams.log.log import StreamLog
from deltacompact.delta_streams.log.state import StreamState, replay
from deltacompact.delta_streams.paths import StreamPaths
from deltacompact.delta_streams.streams import VACUUM_AGE_MIN_S, Streams, stream_files
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.storage.certain_put import telling_interrupts
from deltacompact.storage.identity import is_uri
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import open_object


@dataclass(frozen=True, slots=True, repr=False)
class VersionInfo:
    """One version of a stream. `sealed_s`: when it was sealed, by the store's clock; None for the active version.

    `retained`: all its files are there.
    """

    state: StreamState
    sealed_s: float | None
    retained: bool
    partition: Partition

    def __repr__(self) -> str:
        told = "active" if self.sealed_s is None else "retained" if self.retained else "vacuumed"
        return f"version {self.version} of {self.partition}: {told}, {counted(self.rows, 'row')}"

    @property
    def version(self) -> str:
        """Its name: `read` and `rollback` take it, or its number."""
        return self.state.version

    @property
    def rows(self) -> int:
        """Compacted live rows."""
        return self.state.compacted.rows if self.state.compacted else 0


def versions(catalog: Streams, table_id: str, partition: Partition) -> list[VersionInfo]:
    """Every version from the first to the active one."""
    log = catalog.log(table_id, partition)
    chain = list(log.chain())
    files = _StreamFiles(catalog.store, log.paths)
    return [
        VersionInfo(state, log.sealed_s(state) if state.sealed else None, not files.missing_of(state), partition)
        for state in chain
    ]


def state_of_version(catalog: Streams, table_id: str, partition: Partition, version: str) -> StreamState:
    """The state of a version when it was sealed. `version` is its name, its number, or the beginning of its name.

    Raises NotFoundError where no version fits, or several do, or where one of its files is missing.
    """
    chain = list(catalog.log(table_id, partition).chain())
    exact = [state for state in chain if version in (state.version, str(state.opened.number))]
    found = exact or [state for state in chain if state.version.startswith(version)]
    if len(found) != 1:
        many = "several versions begin" if found else "no version begins"
        versions = ", ".join(state.version for state in chain[-4:])
        raise NotFoundError(f"table {table_id!r}, partition {partition}: {many} with {version!r} (newest: {versions})")
    (state,) = found
    if state.sealed and (
        missing := _StreamFiles(catalog.store, catalog.log(table_id, partition).paths).missing_of(state)
    ):
        raise NotFoundError(
            f"table {table_id!r}, partition {partition}: version {state.version} cannot be read any more: "
            f"{missing[0]} is missing{f' and {len(missing) - 1} more' if missing[1:] else ''}; a vacuum may have "
            "deleted it"
        )
    return state


def rollback(
    catalog: Streams, table_id: str, version: str, partition: Mapping[str, Any] | Partition | None = None
) -> StreamState:
    """Go back to the contents of a retained version. Returns the new version that has them.

    Tokens stay known: a producer that sends dropped batches again needs new tokens. Raises ConflictError where a
    compaction or a restatement came first, InputError where the version is active or too old.

    Examples:
        >>> deltacompact.rollback(catalog, "orders", "0").compacted is None
        True
    """
    expect.text("version", version)
    chosen = catalog.partition(table_id, partition)
    log = catalog.log(table_id, chosen)
    base, wanted = log.active(strictly=True), state_of_version(catalog, table_id, chosen, version)
    if wanted.version == base.version:
        raise InputError(f"version {wanted.version} is the active one")
    if base.compacted and base.compacted.source_table_id != table_id:
        raise InputError(f"table {table_id!r} is a destination of {base.compacted.source_table_id!r}: roll that back")
    _refuse_old(catalog, log, wanted)
    now_ms, lineage = int(catalog.clock() * 1000), uuid.uuid4().hex
    opened = Opened(
        base.opened.number + 1, base.version, lineage, log.tokens_inherited(base, now_ms), base.last_position, now_ms
    )
    successor = log.write_version(opened.number, [opened, *_contents(wanted, base)])

    def check(state: StreamState) -> None:
        if state.sealed:
            raise ConflictError(f"table {table_id!r}, partition {chosen}: compacted or restated meanwhile")
        _refuse_old(catalog, log, wanted)  # time has passed since the first check
        if late := state.commits[len(base.commits) :]:
            table = catalog.described(table_id)
            below, measure = examined(catalog, table, wanted).shape, measuring(catalog.store, table.keys)
            check_carried(below, state, late, measure, "rolled back: roll back again")

    with telling_interrupts():
        return log.release(base, successor, check, now_ms)


def retract(
    catalog: Streams, table_id: str, position: int, partition: Mapping[str, Any] | Partition | None = None
) -> StreamState:
    """Take out the delta at a stream position, so that a corrupt one does not block its partition.

    A compaction that is folding it ends in a conflict. Raises InputError where no such delta is waiting; a rollback or
    a restatement takes out compacted rows.

    Examples:
        >>> position = orders.append(pa.table({"id": [5], "status": ["wrong"]})).position
        >>> _ = deltacompact.retract(catalog, "orders", position)
        >>> catalog.read("orders", columns=["id"]).to_pylist()
        [{'id': 2}, {'id': 3}]
    """
    if isinstance(position, bool) or not isinstance(position, int):
        raise InputError(f"position is {position!r}, it must be a whole number")
    chosen = catalog.partition(table_id, partition)

    def decide(state: StreamState) -> Entry | None:
        if position in state.retracted:
            return None
        if position not in {delta.position for delta in state.deltas}:
            raise InputError(
                f"table {table_id!r}, partition {chosen}: no delta at position {position} since the last compaction"
            )
        return Retracted(position)

    with telling_interrupts():
        state = catalog.log(table_id, chosen).extend(decide)
    if position in state.retracted:
        return state
    return replay(state.version, [(Retracted(position), None)], state)


def _contents(wanted: StreamState, base: StreamState) -> list[Entry]:
    """The entries with the contents of the old version. New file numbers begin above all that the chain has used."""
    entries: list[Entry] = []
    if wanted.compacted:
        used = max(state.compacted.next_file_number for state in (wanted, base) if state.compacted)
        entries.append(Compacted(replace(wanted.compacted, next_file_number=used)))
        entries += [IndexReplaced(index) for index in wanted.indices[1:]]
    if wanted.commits:
        entries.append(Carried(wanted.commits))
    return [*entries, *(Retracted(position) for position in sorted(wanted.retracted))]


def _refuse_old(catalog: Streams, log: StreamLog, wanted: StreamState) -> None:
    if wanted.sealed and catalog.clock() - log.sealed_s(wanted) > VACUUM_AGE_MIN_S / 2:
        hours = VACUUM_AGE_MIN_S // 7200
        raise InputError(f"version {wanted.version} was sealed more than {hours} hours ago: a vacuum may delete it")


class _StreamFiles:
    """The files of a stream in the store, listed once for all versions."""

    def __init__(self, store: ObjectStore, paths: StreamPaths) -> None:
        self._store = store
        self._there = {stat.path for room in paths.rooms[:3] for stat in store.list(room)}
        self._elsewhere: dict[str, bool] = {}
        """Files that were appended by reference: whether they exist."""

    def missing_of(self, state: StreamState) -> list[str]:
        """The missing files that a reader of the version, or a compaction on top of it, would need."""
        files = stream_files(state)
        needed = [file.path for file in files] + [file.deletions.masks_path for file in files if file.deletions]
        needed += state.manifests
        if state.index:
            needed.append(state.index.path)
        missing = self._missing(needed)
        if state.index and not missing:
            missing = self._missing(read_manifest(self._store, state.index).paths)
        return missing

    def _missing(self, paths: Iterable[str]) -> list[str]:
        needed = list(dict.fromkeys(paths))
        unknown = [path for path in needed if is_uri(path) and path not in self._elsewhere]
        if unknown:
            with ThreadPoolExecutor(16) as threads:
                self._elsewhere.update(zip(unknown, threads.map(self._is_there, unknown), strict=True))
        return [path for path in needed if not (path in self._there or self._elsewhere.get(path))]

    def _is_there(self, uri: str) -> bool:
        store, name = open_object(self._store, uri)
        try:
            store.stat(name)
        except NotFoundError:
            return False
        return True

"""Versions of a stream by name: which there are, going back to one, and taking out one delta.

    0                  sealed 4 days ago   vacuumed
    1-50a3…            sealed 3 hours ago  3 files, 9,000 rows      retained: may be read, may be rolled back to
    2-77b1…            active              4 files, 9,500 rows, 2 deltas since

A rollback is a successor that says what the old version said, released by a seal like any other: what was committed in
between is dropped, what is committed while it runs stays on top of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deltacompact import expect
from deltacompact.catalog.delta_stream import VACUUM_AGE_MIN_S, DeltaStreamCatalog, stream_files
from deltacompact.catalog.entries import Carried, Compacted, Entry, IndexReplaced, Opened, Retracted
from deltacompact.catalog.log import StreamLog
from deltacompact.catalog.state import StreamState
from deltacompact.errors import ConflictError, InputError, NotFoundError
from deltacompact.model import Partition


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """One version of a stream. `sealed_s` is when it was sealed (store's clock), None of the active one."""

    state: StreamState
    sealed_s: float | None
    retained: bool

    @property
    def rows(self) -> int:
        """Compacted live rows."""
        return self.state.compacted.rows if self.state.compacted else 0


def versions(catalog: DeltaStreamCatalog, table_id: str, partition: Partition) -> list[VersionInfo]:
    """Every version from the first to the active one. Retained: no vacuum may have taken anything of it yet."""
    log = catalog.log(table_id, partition)
    return [_info(catalog, log, state) for state in log.chain()]


def state_of_version(catalog: DeltaStreamCatalog, table_id: str, partition: Partition, version: str) -> StreamState:
    """A version as it was when it was sealed. `version` is its name, its number, or the beginning of its name.

    Raises NotFoundError where there is none, or several.
    """
    chain = list(catalog.log(table_id, partition).chain())
    exact = [state for state in chain if version in (state.version, str(state.opened.number))]
    found = exact or [state for state in chain if state.version.startswith(version)]
    if len(found) != 1:
        many = "several versions begin" if found else "no version begins"
        raise NotFoundError(f"table {table_id!r}, partition {partition}: {many} with {version!r}")
    return found[0]


def rollback(
    catalog: DeltaStreamCatalog, table_id: str, version: str, partition: Mapping[str, Any] | Partition | None = None
) -> StreamState:
    """Make a retained version's contents those of the stream again; the new version.

    Tokens stay known: a producer that sends dropped batches again needs new ones. Raises ConflictError where a
    compaction or a restatement came first, InputError where the version is active or too old.
    """
    expect.text("version", version)
    place = catalog.partition(table_id, partition)
    log = catalog.log(table_id, place)
    base, wanted = log.active(), state_of_version(catalog, table_id, place, version)
    if wanted.version == base.version:
        raise InputError(f"version {wanted.version} is the active one")
    if base.compacted and base.compacted.source_table_id != table_id:
        raise InputError(f"table {table_id!r} is a destination of {base.compacted.source_table_id!r}: roll that back")
    if wanted.sealed and catalog.clock() - log.sealed_s(wanted) > VACUUM_AGE_MIN_S / 2:
        hours = VACUUM_AGE_MIN_S // 7200
        raise InputError(f"version {wanted.version} was sealed more than {hours} hours ago: a vacuum may be taking it")
    now_ms, lineage = int(catalog.clock() * 1000), uuid.uuid4().hex
    opened = Opened(
        base.opened.number + 1, base.version, lineage, base.tokens_inherited(now_ms), base.last_position, now_ms
    )
    successor = log.write_version(opened.number, [opened, *_contents(wanted, base)])

    def check(state: StreamState) -> None:
        if state.sealed:
            raise ConflictError(f"table {table_id!r}, partition {place}: compacted or restated meanwhile")

    return log.release(base, successor, check, now_ms)


def retract(
    catalog: DeltaStreamCatalog, table_id: str, position: int, partition: Mapping[str, Any] | Partition | None = None
) -> StreamState:
    """Take out the delta at a stream position, so that a corrupt one does not block its partition.

    A compaction that is folding it ends in a conflict. Raises InputError where no such delta is waiting: what was
    compacted is taken out by a rollback or a restatement.
    """
    if isinstance(position, bool) or not isinstance(position, int):
        raise InputError(f"position is {position!r}, it must be a whole number")
    place = catalog.partition(table_id, partition)

    def decide(state: StreamState) -> Entry | None:
        if position in state.retracted:
            return None
        if position not in {delta.position for delta in state.deltas}:
            raise InputError(
                f"table {table_id!r}, partition {place}: no delta at position {position} since the last compaction"
            )
        return Retracted(position)

    log = catalog.log(table_id, place)
    log.extend(decide)
    return log.active()


def _contents(wanted: StreamState, base: StreamState) -> list[Entry]:
    """The entries that say what the old version said. File numbers go on above all that the chain has used."""
    entries: list[Entry] = []
    if wanted.compacted:
        used = max(state.compacted.next_file_number for state in (wanted, base) if state.compacted)
        entries.append(Compacted(replace(wanted.compacted, next_file_number=used)))
        entries += [IndexReplaced(index) for index in wanted.indices[1:]]
    if wanted.commits:
        entries.append(Carried(wanted.commits))
    return [*entries, *(Retracted(position) for position in sorted(wanted.retracted))]


def _info(catalog: DeltaStreamCatalog, log: StreamLog, state: StreamState) -> VersionInfo:
    sealed_s = log.sealed_s(state) if state.sealed else None
    young = sealed_s is None or catalog.clock() - sealed_s < VACUUM_AGE_MIN_S
    return VersionInfo(state, sealed_s, young or _is_whole(catalog, state))


def _is_whole(catalog: DeltaStreamCatalog, state: StreamState) -> bool:
    """Whether the files of a version that a vacuum might have taken are there."""
    try:
        for file in stream_files(state):
            if "://" not in file.path:
                catalog.store.stat(file.path)
    except NotFoundError:
        return False
    return True

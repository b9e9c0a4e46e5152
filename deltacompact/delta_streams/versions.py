"""The versions of a stream: lists them, goes back to one of them, and takes out one delta.

    0                  sealed 4 days ago   vacuumed: one of its files is missing
    1-50a3…            sealed 3 hours ago  3 files, 9,000 rows      retained: may be read, may be rolled back to
    2-77b1…            active              4 files, 9,500 rows, 2 deltas since

A rollback writes a successor with the contents of the old version and releases it with a seal, like any other version.
It drops the commits in between; commits that arrive while it runs stay on top.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from deltacompact.base import expect
from deltacompact.base.errors import ConflictError, InputError
from deltacompact.base.model import Partition, PartitionLike
from deltacompact.base.moments import moment_at, moment_of, spelled
from deltacompact.base.user_calls import user_call
from deltacompact.base.wording import counted
from deltacompact.delta_streams.appending.blocking import examined, measuring
from deltacompact.delta_streams.log.entries import Carried, Compacted, Entry, IndexReplaced, Retracted
from deltacompact.delta_streams.log.log import StreamLog
from deltacompact.delta_streams.log.state import StreamState, replay
from deltacompact.delta_streams.retained import StreamFiles, begins, state_of_chain
from deltacompact.delta_streams.streams import VACUUM_AGE_MIN_S, Streams
from deltacompact.storage.certain_put import telling_interrupts


@dataclass(frozen=True, slots=True, repr=False)
class VersionInfo:
    """One version of a stream. `sealed_s`: when it was sealed, by the store's clock. None: it is the active version.

    `retained`: all its files are there.
    """

    state: StreamState
    sealed_s: float | None
    retained: bool
    partition: Partition

    def __repr__(self) -> str:
        status = "active" if self.sealed_s is None else "retained" if self.retained else "vacuumed"
        return f"version {self.version} of {self.partition}: {status}, {counted(self.rows, 'row')}"

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
    files = StreamFiles(catalog.store, log.paths)
    return [
        VersionInfo(state, log.sealed_s(state) if state.sealed else None, not files.missing_of(state), partition)
        for state in chain
    ]


@user_call
def rollback(catalog: Streams, table_id: str, version: str | datetime, partition: PartitionLike = None) -> StreamState:
    """Go back to the contents of a retained version, or of a moment. Returns the new version that has them.

    `catalog` is what open_catalog returned; `table_id`, `partition` and `version` (a name, a number, or a time) say
    what goes back. Tokens stay known: a producer that sends dropped batches again needs new tokens. Raises
    ConflictError where a compaction or a restatement came first, InputError where nothing came since, the version is
    too old, or the time is before the first commit.

    Examples:
        >>> deltacompact.rollback(catalog, "orders", "0").compacted is None
        True
    """
    if not isinstance(version, datetime):
        expect.text("version", version)
    chosen = catalog.partition(table_id, partition)
    log = catalog.log(table_id, chosen)
    log.active(strictly=True)
    chain = log.since(begins(version))  # read once: a commit between two reads would be carried over twice
    base, wanted = chain[-1], state_of_chain(catalog, table_id, chosen, chain, version)
    if moment_of(version) is not None and not (wanted.opened.number or wanted.commits):
        commit = next((commit for state in chain for commit in state.commits), None)
        if commit is not None:  # a mistyped year would empty the table
            before = f"{version} is before its first commit, of {spelled(moment_at(commit.time_ms))}"
            raise InputError(f"table {table_id!r}, partition {chosen}: {before}")
    if wanted.version == base.version and len(wanted.commits) == len(base.commits):
        raise InputError(
            f"version {wanted.version} is the active one, with all that was committed to it: name an older version, or "
            "go back to a moment before the last commit"
        )
    if base.compacted and base.compacted.source_table_id != table_id:
        raise InputError(f"table {table_id!r} is a destination of {base.compacted.source_table_id!r}: roll that back")
    _refuse_old(catalog, log, wanted)
    now_ms = int(catalog.clock() * 1000)
    opened = log.opened_after(base, now_ms, base.last_position)
    successor = log.write_version(opened.number, [opened, *_contents(wanted, base)])

    def check(state: StreamState) -> None:
        if state.sealed:
            raise ConflictError(f"table {table_id!r}, partition {chosen}: compacted or restated meanwhile")
        if wanted.version == base.version and state.retracted & {delta.position for delta in wanted.deltas}:
            raise ConflictError(f"table {table_id!r}, partition {chosen}: a delta was retracted meanwhile; start again")
        _refuse_old(catalog, log, wanted)  # time has passed since the first check
        if late := state.commits[len(base.commits) :]:
            table = catalog.described(table_id)
            below, measure = examined(catalog, table, wanted).shape, measuring(catalog.store, table.keys)
            below.check_carried(state, late, measure, "rolled back: roll back again")

    with telling_interrupts():
        return log.release(base, successor, check, now_ms)


@user_call
def retract(catalog: Streams, table_id: str, position: int, partition: PartitionLike = None) -> StreamState:
    """Take out the delta at a stream position, so that a corrupt one does not block its partition.

    `catalog` is what open_catalog returned; `table_id`, `partition` and `position` (milliseconds, unless a writer chose
    another number) say which. A compaction that is folding it ends in a conflict. Raises InputError where no such delta
    is waiting; a rollback or a restatement takes out compacted rows.

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
    return [*entries, *(Retracted(position) for position in sorted(wanted.retracted_here))]


def _refuse_old(catalog: Streams, log: StreamLog, wanted: StreamState) -> None:
    if wanted.sealed and catalog.clock() - log.sealed_s(wanted) > VACUUM_AGE_MIN_S / 2:
        hours = VACUUM_AGE_MIN_S // 7200
        raise InputError(f"version {wanted.version} was sealed more than {hours} hours ago: a vacuum may delete it")

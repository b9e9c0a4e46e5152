"""One partition of delta streams, behind the engine's ports: it fetches snapshots and does the switch.

    orders into orders      its compacted files and the deltas since
    orders into flat        deltas above flat's watermark; all of orders, if orders itself was compacted beyond it

The switch is the seal of the destination's base version, see log.py.
"""

from __future__ import annotations

import pyarrow as pa

from deltacompact.base.data_file import FarValues
from deltacompact.base.deltas import CompactedDelta
from deltacompact.base.errors import ConflictError, DeltaCompactError
from deltacompact.base.model import Partition, Table
from deltacompact.base.partitions import both
from deltacompact.base.table_keys import TableKeys
from deltacompact.delta_streams.destinations import open_destination
from deltacompact.delta_streams.log.entries import Compacted, Fence
from deltacompact.delta_streams.log.log import StreamLog, genesis_state
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.paths import GENESIS, StreamPaths, TablePaths
from deltacompact.delta_streams.snapshots import NO_OTHER_WORK, OtherWork, choose, coarse_files, may_be_laid_out
from deltacompact.delta_streams.streams import Streams
from deltacompact.storage.certain_put import telling_interrupts
from deltacompact.storage.cold_classes import cold_among
from deltacompact.table.ports import CompactionOutput, Moment, NothingToDo, PartitionSnapshot, Ports, PublishedVersion


class DeltaStreamPartition:
    """Source and destination streams of one partition. Implements SnapshotSource and CommitTarget."""

    def __init__(
        self,
        catalog: Streams,
        source: Table,
        destination_table_id: str,
        partition: Partition,
        keys: TableKeys,
        other: OtherWork = NO_OTHER_WORK,
        attempt: str | None = None,
        as_read: bool = False,
    ) -> None:
        self.partition = partition
        self._catalog = catalog
        self._source = source
        self._destination_id = destination_table_id
        self._keys = keys
        self._other = other
        self._attempt = attempt
        self._as_read = as_read
        self._in_place = source.table_id == destination_table_id
        self.compacted_schema: pa.Schema | None = None
        """The schema of the compacted rows, once a snapshot was fetched."""
        self._states: dict[Moment, tuple[StreamState, StreamState]] = {}

    @property
    def ports(self) -> Ports:
        return Ports(self, self, self.paths, self._catalog.store)

    @property
    def paths(self) -> StreamPaths:
        """Where the destination's objects go."""
        return TablePaths.of(self._destination_id).stream(self.partition)

    # Snapshots

    def fetch(self, moment: Moment | None = None) -> PartitionSnapshot | NothingToDo:
        """Raises NotFoundError, CorruptionError, and InputError if the destination cannot take the source's rows."""
        source, destination = self._now() if moment is None else self._then(moment)
        self.compacted_schema = destination.compacted.schema if destination.compacted else None
        tables = self._source.table_id, self._destination_id, self.partition
        snapshot = choose(*tables, source, destination, self._other, self._cold(source, destination))
        if isinstance(snapshot, PartitionSnapshot):
            self._states[snapshot.moment] = source, destination
        return snapshot

    def _cold(self, source: StreamState, destination: StreamState) -> frozenset[str]:
        """The compacted files that a layout or coarse times could choose, but would have to pay for, or cannot read."""
        chosen = may_be_laid_out(source, destination, self._other.cluster_by)
        if self._other.micros and destination.compacted:
            chosen = [*chosen, *coarse_files(destination.compacted)]
        return cold_among(self._catalog.store, chosen)

    def advised(self, error: DeltaCompactError, snapshot: PartitionSnapshot) -> DeltaCompactError:
        """The error with advice: which delta brought the file that it names, and how to take that delta out."""
        from deltacompact.delta_streams.appending.advice import advised

        source, _ = self._states[snapshot.moment]
        return advised(error, self._catalog, self._source.table_id, self.partition, source, self._keys)

    def _now(self) -> tuple[StreamState, StreamState]:
        known = self._catalog.log(self._source.table_id, self.partition).remembered if self._as_read else None
        source = known or self._catalog.state(self._source.table_id, self.partition, strictly=True)
        if self._in_place:
            return source, source
        # A destination's log begins when its first version is complete.
        return source, self._log.active(strictly=True) if self._log.exists() else genesis_state()

    def _then(self, moment: Moment) -> tuple[StreamState, StreamState]:
        source_log = self._catalog.log(self._source.table_id, self.partition)
        source = source_log.state_at(moment.source_version, moment.source_tail)
        if not self._log.exists():
            return source, genesis_state()
        return source, self._log.state_at(moment.destination_version, moment.destination_tail)

    # The switch

    def check(self, snapshot: PartitionSnapshot, session: str) -> None:
        base = snapshot.moment.destination_version
        if base != GENESIS or self._log.exists():  # a new destination has no log before it is published
            self._check(snapshot, session, self._log.state(base))

    def publish(self, snapshot: PartitionSnapshot, session: str, result: CompactionOutput) -> PublishedVersion:
        """Write the successor in full, then seal the base in its favour."""
        source, base = self._states[snapshot.moment]
        compacted = CompactedDelta(
            result.files,
            result.index,
            snapshot.watermark,
            result.next_file_number,
            snapshot.source_table_id,
            source.lineage,
            session,
            result.schema,
            self._far(snapshot, result.keys),
            result.account,
        )
        now_ms = int(self._catalog.clock() * 1000)
        positions = [position for position in (base.last_position, snapshot.watermark) if position is not None]
        opened = self._log.opened_after(base, now_ms, max(positions), base.lineage)

        def prepare() -> None:
            self._catalog.refuse_another(self._source)
            # Two first compactions with different keys cannot both pass, nor one into a table that others append to.
            self.check(snapshot, session)
            if self._in_place:
                self._catalog.declare_keys(self._source.table_id, result.keys)
            else:
                table = self._catalog.described(self._source.table_id)
                open_destination(self._catalog, table, result.keys, self._destination_id, self.partition)

        def write() -> str:
            return self._log.write_version(opened.number, [opened, Compacted(compacted)], session)

        # A refused session leaves no trace in a table that it would have begun.
        _, successor = both(prepare, write, self._catalog.at_once if self._in_place else 1)
        state = self._log.release(base, successor, lambda state: self._check(snapshot, session, state), now_ms, session)
        return PublishedVersion(state.version, compacted)

    def _far(self, snapshot: PartitionSnapshot, keys: TableKeys) -> FarValues | None:
        """The far values of all rows that the session has folded. None: those of the base or of a delta are unknown."""
        from deltacompact.delta_streams.appending.far import all_far

        source, base = self._states[snapshot.moment]
        folded = (base if snapshot.owned else source).compacted if snapshot.base else None
        return all_far(folded, snapshot.deltas, keys)

    def _check(self, snapshot: PartitionSnapshot, session: str, state: StreamState) -> None:
        where = f"table {self._destination_id!r}, partition {self.partition}"
        if state.sealed:
            raise ConflictError(f"{where}: another compaction or restatement came first ({state.sealed.successor})")
        if self._in_place and (taken := {delta.position for delta in snapshot.deltas} & state.retracted):
            raise ConflictError(f"{where}: the delta at position {min(taken)} was retracted; start again")
        if session in state.fences:
            raise ConflictError(f"{where}: a vacuum fenced session {session}; start it again")
        if self._attempt in state.fences:
            raise ConflictError(f"{where}: attempt {self._attempt} was fenced: another one has taken over")
        _, base = self._states[snapshot.moment]
        if not self._in_place and len(state.commits) > len(base.commits):
            raise ConflictError(f"{where}: deltas were appended to a destination table")

    # Attempts

    def fence_attempt(self, attempt: str) -> None:
        """After this, an attempt that has already taken its snapshot publishes nothing: it meets the fence, or a seal.
        An attempt that takes its snapshot later would not notice the fence: the caller has to stop it by other means.
        """
        if not self._log.exists():  # a destination that was never published
            open_destination(self._catalog, self._source, self._keys, self._destination_id, self.partition)
        with telling_interrupts():
            self._log.extend(lambda state: None if attempt in state.fences else Fence(attempt))

    def published_by(self, session: str) -> PublishedVersion | None:
        """The version that a session has published. None: it has published none.

        No version before its base is read, unless a vacuum has deleted its plan.
        """
        from deltacompact.session.records import base_of

        if not self._log.exists():
            return None
        base = base_of(self._catalog.store, self.paths, session)

        def is_its(state: StreamState) -> bool:
            return state.compacted is not None and state.compacted.session_id == session

        chain = self._log.since(lambda state: state.version == base or is_its(state), strictly=True)
        found = next(filter(is_its, chain), None)
        return PublishedVersion(found.version, found.compacted) if found and found.compacted else None

    @property
    def _log(self) -> StreamLog:
        return self._catalog.log(self._destination_id, self.partition)

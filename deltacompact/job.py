"""One run of compact() over a table of delta streams: every partition in its own session.

for all partitions, many at a time where the store is behind a network
    fetch      ->  a snapshot: base files and deltas       (or: nothing to do, and why)
    lane       ->  in this process, or on the cluster
    plan       ->  CompactionPlan                          (bad input is refused here, before any work)
for as many partitions at a time as the plans admit
    session    ->  rounds, materialize, switch
one result for each partition; if one session fails, the others still publish
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltacompact.base import expect
from deltacompact.base.errors import DeltaCompactError, InputError, NotFoundError
from deltacompact.base.events import EventSink, fan_out, logger
from deltacompact.base.model import INT64_MAX, ContentType, OperationType, Partition, Readers, SortKey, Table, TableKeys
from deltacompact.base.partitions import side_by_side
from deltacompact.base.settings import DEFAULTS, Options
from deltacompact.base.wording import one_line
from deltacompact.delta_streams.clustering import check_clustering, schemas_of
from deltacompact.delta_streams.destinations import check_destination
from deltacompact.delta_streams.idle_streams import idle_streams, keep_listing
from deltacompact.delta_streams.partition import DeltaStreamPartition
from deltacompact.delta_streams.streams import Streams
from deltacompact.delta_streams.table_documents import check_keys, clustering_of, no_keys_yet
from deltacompact.executors.choose import capacities, executors_for, share_slots
from deltacompact.executors.executor import Executor
from deltacompact.planning.lanes import Claim, Lane, lanes, rooms, sessions_at_once
from deltacompact.planning.marking import marking
from deltacompact.planning.plan import Capacity, CompactionPlan
from deltacompact.results import CompactionResult, SessionResult, failed, finished, result_of
from deltacompact.session import attempts
from deltacompact.session.attempts import SessionTerms
from deltacompact.session.side_by_side import ClaimedRun, run_side_by_side
from deltacompact.sinks.environment import sinks_asked_for
from deltacompact.storage.certain_put import telling_interrupts
from deltacompact.table.ports import NothingToDo, PartitionSnapshot
from deltacompact.tabular.allocator import session_memory

if TYPE_CHECKING:  # importing PyIceberg takes a second
    from deltacompact.publication.publication import PublicationResult


@dataclass(frozen=True, slots=True)
class Request:
    """One call of compact(): table, partitions (None: all), keys (None: the table's), destination (None: in place).

    `attempt` names the call, so that it can be fenced.
    """

    source_table_id: str
    primary_keys: Iterable[str] | None = None
    sort_keys: Sequence[SortKey | str | Sequence[str]] | None = None
    destination_table_id: str | None = None
    partitions: Sequence[Mapping[str, Any]] | None = None
    options: Options = DEFAULTS
    attempt: str | None = None


def compact_job(catalog: Streams, request: Request, sinks: Sequence[EventSink] = ()) -> CompactionResult:
    """Run a request: each partition in its own session, events to the sinks."""
    job = prepare(catalog, request)
    emit = fan_out([*sinks, *sinks_asked_for(catalog.store.uri)])
    with telling_interrupts(), session_memory(request.options.memory_bytes):
        results = _sessions(job, emit)
        publication = _shown(catalog, job)
    keep_listing(catalog, job.destination_table_id, [work.partition for work in job.work])
    done = CompactionResult(job.source_table_id, job.destination_table_id, tuple(results), publication)
    if done.errors and len(done.errors) == len(results):
        error = done.errors[0]
        error.result = done  # type: ignore[attr-defined]
        raise error
    return done


def _shown(catalog: Streams, job: CompactionJob) -> PublicationResult | None:
    """Let the table that the destination is published to show what it has now; None: it is not published."""
    if job.publication is None:
        return None
    from deltacompact.publication.publication import show_compacted

    partitions = [work.partition for work in job.work]
    result = show_compacted(catalog, job.destination_table_id, job.publication, partitions)
    if result.error is not None:
        logger.warning(
            "table %s is compacted, but %s does not show it yet: %s",
            job.destination_table_id,
            job.publication,
            one_line(result.error),
        )
    return result


def _sessions(job: CompactionJob, emit: EventSink) -> list[SessionResult]:
    """Plan all sessions, then run as many at a time as the plans admit. The results are in the partitions' order."""
    options, lane_of = job.terms.options, job.lanes
    sessions = Counter(lane_of.values())
    at_once = {lane: min(count, sessions_at_once(lane, options, job.waits)) for lane, count in sessions.items()}
    executors = executors_for(options, at_once, job.waits)
    room_of = rooms(capacities(options, executors), at_once)

    def planned(work: PartitionWork) -> CompactionPlan | NothingToDo | Exception:
        if not isinstance(work.found, PartitionSnapshot):
            return work.found
        try:
            return plan_work(job, work, work.found, executors[lane_of[work.partition]].capacity)
        except Exception as error:
            return error

    def run(work: PartitionWork, decided: CompactionPlan | NothingToDo | Exception) -> SessionResult:
        if isinstance(decided, NothingToDo):
            return SessionResult(dict(work.partition.values), nothing_to_do=decided.reason)
        if isinstance(decided, Exception):
            result = failed(work.partition, decided)
        else:
            result = run_session(job, work, decided, executors[lane_of[work.partition]], emit)
        snapshot = work.found if isinstance(work.found, PartitionSnapshot) else None
        emit(finished(job.source_table_id, result, work.partition, snapshot))
        return result

    def stop() -> None:
        for executor in executors.values():
            executor.stop()

    plans = side_by_side(job.work, planned, job.at_once)
    share_slots(
        executors,
        [
            decided.task_places
            for work, decided in zip(job.work, plans, strict=True)
            if isinstance(decided, CompactionPlan) and lane_of[work.partition] is Lane.POOL
        ],
    )
    runs = [
        ClaimedRun(
            Claim.of(lane_of[work.partition], decided) if isinstance(decided, CompactionPlan) else None,
            functools.partial(run, work, decided),
        )
        for work, decided in zip(job.work, plans, strict=True)
    ]
    return run_side_by_side(runs, room_of, stop, options.partitions_at_once)


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """One partition of a job: its snapshot, why there is nothing to do, or the error of reading it."""

    stream: DeltaStreamPartition
    found: PartitionSnapshot | NothingToDo | Exception

    @property
    def partition(self) -> Partition:
        return self.stream.partition

    @property
    def schemas(self) -> list[pa.Schema]:
        """Of the rows, as far as they are known."""
        if isinstance(self.found, PartitionSnapshot):
            return list(schemas_of(self.found))
        return [] if self.stream.compacted_schema is None else [self.stream.compacted_schema]


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """A prepared compaction job run: its work by partition, of which so many are read at a time.

    `waits`: the store is behind a network. `publication`: the other table that shows the destination's rows.
    """

    source_table_id: str
    destination_table_id: str
    terms: SessionTerms
    work: tuple[PartitionWork, ...]
    waits: bool
    at_once: int
    publication: str | None = None

    @property
    def snapshots(self) -> list[PartitionSnapshot]:
        return [work.found for work in self.work if isinstance(work.found, PartitionSnapshot)]

    @property
    def lanes(self) -> dict[Partition, Lane]:
        """Where the session of each partition runs that needs one."""
        chosen = lanes(self.snapshots, self.terms.options, self.waits)
        return {snapshot.partition: lane for snapshot, lane in zip(self.snapshots, chosen, strict=True)}


def prepare(catalog: Streams, request: Request) -> CompactionJob:
    """Resolve tables, keys and partitions. Writes nothing.

    Raises NotFoundError for an unknown table or partition, InputError for an unknown column, keys other than the
    table's, or a table that cannot be the destination.
    """
    source_table_id, options = request.source_table_id, request.options
    destination = request.destination_table_id or source_table_id
    publication, readers, declared = _shown_to(catalog, destination, destination == source_table_id)
    source = (catalog.declared if destination == source_table_id else catalog.present)(source_table_id)
    by = clustering_of(declared or "" if options.cluster_by is None else options.cluster_by, source.partition_keys)
    options = marking(replace(options, cluster_by=by), readers)
    if publication is not None:
        options = _for_publication(options, destination)
    chosen = _partitions(catalog, source_table_id, request.partitions)
    keys = _keys(source, request.primary_keys, request.sort_keys)
    if destination != source_table_id:
        check_destination(catalog, source, keys, destination)
    terms = SessionTerms(keys, source.partition_keys, options, source.tombstone_retention)
    in_place = destination == source_table_id
    idle = idle_streams(catalog, source_table_id, chosen, options.purge, by) if in_place else {}

    def work(partition: Partition) -> PartitionWork:
        work = options.purge, request.attempt, by, options.write_amplification_max
        stream = DeltaStreamPartition(catalog, source, destination, partition, keys, *work)
        return PartitionWork(stream, idle.get(partition) or _found(stream, source, keys))

    found = side_by_side(chosen, work, catalog.at_once)
    check_clustering(source, by, (schema for work in found for schema in work.schemas))
    return CompactionJob(
        source_table_id, destination, terms, tuple(found), catalog.is_remote, catalog.at_once, publication
    )


def _shown_to(catalog: Streams, table_id: str, in_place: bool) -> tuple[str | None, Readers | None, str | None]:
    """The table that shows the rows of a table, who reads its files, and by what they are laid out.

    A destination may not exist yet.
    """
    try:
        publication, table = catalog.publication(table_id), catalog.remembered_table(table_id)
    except NotFoundError:
        if in_place:
            raise
        return None, None, None
    return publication, table.readers, table.cluster_by


def _for_publication(options: Options, table_id: str) -> Options:
    """The options for a table that is published. Delta files never stay: their columns may have foreign field ids."""
    if options.content_type is not ContentType.PARQUET:
        raise InputError(
            f"table {table_id!r} is published: compacted files must be Parquet, not {options.content_type.name}"
        )
    return replace(options, limits=replace(options.limits, delta_kept_bytes_min=INT64_MAX))


def _found(stream: DeltaStreamPartition, source: Table, keys: TableKeys) -> PartitionSnapshot | NothingToDo | Exception:
    try:
        found = stream.fetch()
        if source.keys is None and isinstance(found, PartitionSnapshot):
            _check_columns(keys, source, found)
        return found
    except Exception as error:  # a bad partition must not end the job of the others
        return error


def plan_work(
    job: CompactionJob, work: PartitionWork, snapshot: PartitionSnapshot, capacity: Capacity
) -> CompactionPlan:
    """The plan of a partition's compaction. Raises SchemaError, with advice, before any work."""
    try:
        return attempts.plan_session(work.stream.ports, snapshot, job.terms, capacity)
    except DeltaCompactError as error:
        raise work.stream.advised(error, snapshot) from error


def run_session(
    job: CompactionJob, work: PartitionWork, plan: CompactionPlan, executor: Executor, emit: EventSink
) -> SessionResult:
    """Compact one partition stream: begin a session, or resume an interrupted one.

    Any exception becomes the error of the result, because a bad partition must not end the job of the others.
    """
    try:
        spilled_before = executor.spilled_bytes()
        session, published = attempts.resume_or_begin(work.stream.ports, plan, job.terms, executor, emit)
        spilled = executor.spilled_bytes()
        if spilled is not None:
            spilled -= spilled_before or 0
        return result_of(session, published, executor, spilled)
    except DeltaCompactError as error:
        return failed(work.partition, work.stream.advised(error, plan.input))
    except Exception as error:
        return failed(work.partition, error)


def _keys(
    table: Table,
    primary_keys: Iterable[str] | None,
    sort_keys: Sequence[SortKey | str | Sequence[str]] | None,
) -> TableKeys:
    """The keys to compact by: the table's own, if it has some."""
    if primary_keys is None:
        if table.keys is None:
            raise no_keys_yet(table)
        primary_keys = table.keys.primary
    keys = TableKeys.of(primary_keys, sort_keys)
    check_keys(table, keys)
    return table.keys or keys


def _check_columns(keys: TableKeys, table: Table, snapshot: PartitionSnapshot) -> None:
    """Refuse a mistyped key, because keys are in force for ever. (A declared sort column may be in no file yet.)"""
    files = [file for delta in snapshot.deltas if delta.operation is OperationType.UPSERT for file in delta.files]
    if not files:
        return
    known = {name for file in files for name in file.schema.names} | set(table.partition_keys)
    if snapshot.base:
        known |= set(snapshot.base.schema.names)
    for name in keys.columns:
        if name not in known:
            columns = ", ".join(sorted(known))
            raise InputError(f"table {table.table_id!r} has no column {name!r} (columns: {columns})")


def _partitions(catalog: Streams, table_id: str, named: Sequence[Mapping[str, Any]] | None) -> list[Partition]:
    if named is None:
        return catalog.partitions(table_id)
    return list(dict.fromkeys(catalog.partition(table_id, values) for values in expect.several("partitions", named)))

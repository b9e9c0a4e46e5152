"""compact(): compacts every partition of a table, each in its own session.

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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, overload

from deltacompact.base import expect
from deltacompact.base.errors import DeltaCompactError, InputError, NotFoundError
from deltacompact.base.events import EventSink, SessionFinished, fan_out, logger
from deltacompact.base.model import INT64_MAX, ContentType, OperationType, Partition, SortKey, Table, TableKeys
from deltacompact.base.partitions import side_by_side
from deltacompact.base.settings import DEFAULTS, Options, Settings, at_least
from deltacompact.base.wording import one_line
from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog
from deltacompact.catalog.delta_stream.certain_put import telling_interrupts
from deltacompact.catalog.delta_stream.destinations import check_destination
from deltacompact.catalog.delta_stream.listing import idle_streams, keep_listing
from deltacompact.catalog.delta_stream.partition import DeltaStreamPartition
from deltacompact.catalog.delta_stream.table_documents import check_keys
from deltacompact.catalog.opening import is_iceberg_catalog, open_catalog
from deltacompact.executors.choose import capacities, executors_for, share_slots
from deltacompact.executors.executor import Executor
from deltacompact.planning.decisions import DecidedFile, counted_reasons
from deltacompact.planning.lanes import Claim, Lane, lanes, rooms, sessions_at_once
from deltacompact.planning.plan import Capacity, CompactionPlan
from deltacompact.session import attempts
from deltacompact.session.attempts import Terms
from deltacompact.session.driver import Published, Session
from deltacompact.session.side_by_side import Run, run_side_by_side
from deltacompact.table.ports import NothingToDo, Snapshot
from deltacompact.tabular.allocator import session_memory
from deltacompact.tabular.formats import suffix_of

if TYPE_CHECKING:  # importing PyIceberg takes a second
    from deltacompact.catalog.iceberg.catalog import IcebergCatalog
    from deltacompact.catalog.iceberg.convert.convert import ConvertResult
    from deltacompact.catalog.iceberg.rewrite.result import RewriteResult
    from deltacompact.catalog.iceberg.upsert.upsert import UpsertResult
    from deltacompact.catalog.publication.publication import PublicationResult

REWRITE = "rewrite"
"""The mode in which files of an Iceberg table are written anew, without their deletes."""
CONVERT = "convert"
"""The mode in which equality deletes of an Iceberg table become deletes by position."""
UPSERT = "upsert"
"""The mode in which all rows of an Iceberg table are marked as dead but the newest of each key."""


@dataclass(frozen=True, slots=True)
class SessionResult:
    """The result of one partition stream: rows_in = live + superseded + deleted.

    `rows_in` counts the live rows of the base and the upserts of the deltas, `delete_rows` the rows of deletes.
    `files_marked` counts files that stay with a deletion vector, `rows_copied` rows of new files that were neither
    decoded nor encoded. Bytes are sizes of stored files. `spilled_bytes` is what Ray's object store wrote to disk
    meanwhile (None: unknown), and `measured_peak_bytes` the peak of a process; both include sessions that ran at the
    same time. `decisions` has an action and a reason for every file. `error` is None on success, and `nothing_to_do`
    says why no session was needed.
    """

    partition: dict[str, str | None]
    rows_in: int = 0
    live: int = 0
    superseded: int = 0
    deleted: int = 0
    delete_rows: int = 0
    files_kept: int = 0
    files_rewritten: int = 0
    files_marked: int = 0
    files_new: int = 0
    rows_copied: int = 0
    files_before: int = 0
    files_after: int = 0
    rounds: int = 0
    rounds_resumed: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    hash_bucket_count: int = 0
    executor: str = ""
    version: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    scheduling_share: float = 0.0
    planned_peak_bytes: int = 0
    measured_peak_bytes: int = 0
    spilled_bytes: int | None = None
    decisions: tuple[DecidedFile, ...] = ()
    nothing_to_do: str | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """One SessionResult for each partition. `publication`: what became of it in the Iceberg table that shows the rows.

    An error in `publication` is no error of the compaction: the next run repairs it.
    """

    source_table_id: str
    destination_table_id: str
    sessions: tuple[SessionResult, ...]
    publication: PublicationResult | None = None

    @property
    def errors(self) -> tuple[Exception, ...]:
        return tuple(session.error for session in self.sessions if session.error)


@overload
def compact(
    source_table_id: str,
    *,
    delta_catalog_client: IcebergCatalog,
    mode: Literal["rewrite"] = "rewrite",
    options: Mapping[str, Any] | None = None,
    branch: str = "main",
    settings: Settings | None = None,
    event_sinks: Sequence[EventSink] = (),
    attempt: str | None = None,
) -> RewriteResult: ...


@overload
def compact(
    source_table_id: str,
    *,
    delta_catalog_client: IcebergCatalog,
    mode: Literal["convert"],
    options: Mapping[str, Any] | None = None,
    branch: str = "main",
    settings: Settings | None = None,
    attempt: str | None = None,
) -> ConvertResult: ...


@overload
def compact(
    source_table_id: str,
    *,
    delta_catalog_client: IcebergCatalog,
    mode: Literal["upsert"],
    options: Mapping[str, Any] | None = None,
    branch: str = "main",
    settings: Settings | None = None,
    attempt: str | None = None,
) -> UpsertResult: ...


@overload
def compact(
    source_table_id: str,
    primary_keys: Iterable[str] | None = None,
    sort_keys: Sequence[SortKey | str | Sequence[str]] | None = None,
    desired_sla: int | None = None,
    delta_catalog_client: DeltaStreamCatalog | None = None,
    destination_compacted_table_id: str | None = None,
    rows_per_primary_key_index_file: int = DEFAULTS.rows_per_primary_key_index_file,
    rows_per_compacted_file: int = DEFAULTS.rows_per_compacted_file,
    hash_bucket_count: int | None = DEFAULTS.hash_bucket_count,
    sns_event_topic_arn: str | None = None,
    compacted_file_content_type: ContentType | str = DEFAULTS.content_type,
    *,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    settings: Settings | None = None,
    purge: bool = DEFAULTS.purge,
    event_sinks: Sequence[EventSink] = (),
    attempt: str | None = None,
) -> CompactionResult: ...


def compact(
    source_table_id: str,
    primary_keys: Iterable[str] | None = None,
    sort_keys: Sequence[SortKey | str | Sequence[str]] | None = None,
    desired_sla: int | None = None,
    delta_catalog_client: DeltaStreamCatalog | IcebergCatalog | None = None,
    destination_compacted_table_id: str | None = None,
    rows_per_primary_key_index_file: int = DEFAULTS.rows_per_primary_key_index_file,
    rows_per_compacted_file: int = DEFAULTS.rows_per_compacted_file,
    hash_bucket_count: int | None = DEFAULTS.hash_bucket_count,
    sns_event_topic_arn: str | None = None,
    compacted_file_content_type: ContentType | str = DEFAULTS.content_type,
    *,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    settings: Settings | None = None,
    purge: bool = DEFAULTS.purge,
    event_sinks: Sequence[EventSink] = (),
    attempt: str | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    branch: str = "main",
) -> CompactionResult | RewriteResult | ConvertResult | UpsertResult:
    """Fold the deltas of a table into compacted files with one live row per primary key (paper, compaction job runs).

    Keys may be omitted where the table declares them or was compacted before. `desired_sla` in seconds goes into the
    events. `partitions` is a list of dicts, default all. `purge` rewrites every file that has dead rows. `attempt`
    names this call, with a slash in the name ("run-1/3"): a scheduler that gave the call up can fence it by that name;
    it then ends in a ConflictError and publishes nothing. A session's error is in its result; if every session fails,
    the first error is raised. Raises InputError for bad arguments, before any work.

    A table of an Iceberg catalog ("namespace.table") has `mode` "rewrite" (default), "convert" or "upsert",
    `options` of that mode, and a `branch`; of the others, only `settings`, `event_sinks` and `attempt` apply to it.
    There the name of an attempt ends in numbers ("run-1/3/2"): it is in the summary of each snapshot, and once a later
    attempt has committed, it commits no more.
    """
    if (attempt := expect.text_or_none("attempt", attempt)) is not None and "/" not in attempt:
        raise InputError(f"attempt {attempt!r} has no slash in it: a session's own name looks like that")
    catalog = open_catalog() if delta_catalog_client is None else delta_catalog_client
    if is_iceberg_catalog(catalog):
        from deltacompact.catalog.iceberg.commit.attempts import attempt_named

        with attempt_named(attempt):
            return _compact_iceberg(catalog, source_table_id, mode, options, branch, settings, event_sinks)
    if mode is not None or options is not None or branch != "main":
        raise InputError("mode, options and branch are for tables of Iceberg catalogs")
    settings = Settings() if settings is None else expect.instance("settings", settings, Settings)
    if desired_sla is not None:
        at_least("desired_sla", desired_sla, 1)
    expect.text_or_none("destination_compacted_table_id", destination_compacted_table_id)
    sinks = [expect.callable_("event_sinks", sink) for sink in expect.several("event_sinks", event_sinks)]
    catalog = expect.instance("delta_catalog_client", catalog, DeltaStreamCatalog)
    chosen = Options.of(
        settings,
        rows_per_primary_key_index_file=rows_per_primary_key_index_file,
        rows_per_compacted_file=rows_per_compacted_file,
        hash_bucket_count=hash_bucket_count,
        content_type=content_type(compacted_file_content_type),
        purge=purge,
    )
    request = Request(
        source_table_id, primary_keys, sort_keys, destination_compacted_table_id, partitions, chosen, attempt
    )
    return compact_job(catalog, request, [*sinks, *topic_sinks(sns_event_topic_arn, desired_sla)])


def _compact_iceberg(
    catalog: IcebergCatalog,
    table_id: str,
    mode: str | None,
    options: Mapping[str, Any] | None,
    branch: str,
    settings: Settings | None,
    event_sinks: Sequence[EventSink],
) -> RewriteResult | ConvertResult | UpsertResult:
    if mode not in (None, REWRITE, CONVERT, UPSERT):
        raise InputError(f"mode {mode!r} is none of: {REWRITE}, {CONVERT}, {UPSERT}")
    settings = Settings() if settings is None else expect.instance("settings", settings, Settings)
    emit = fan_out([expect.callable_("event_sinks", sink) for sink in expect.several("event_sinks", event_sinks)])
    if mode == CONVERT:
        return catalog.convert(table_id, options, branch, settings, emit=emit)
    if mode == UPSERT:
        return catalog.upsert(table_id, options, branch, settings, emit=emit)
    return catalog.rewrite(table_id, options, branch, settings, emit=emit)


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


def topic_sinks(topic_arn: str | None, desired_sla: int | None) -> list[EventSink]:
    """The sink that sends events to an SNS topic; none without a topic."""
    if topic_arn is None:
        return []
    from deltacompact.sinks.sns import sns_sink

    return [sns_sink(topic_arn, desired_sla)]


def compact_job(catalog: DeltaStreamCatalog, request: Request, sinks: Sequence[EventSink] = ()) -> CompactionResult:
    """Run a request: each partition in its own session, events to the sinks."""
    job = prepare(catalog, request)
    emit = fan_out(list(sinks))
    with telling_interrupts(), session_memory():
        results = _sessions(job, emit)
        publication = _shown(catalog, job)
    keep_listing(catalog, job.destination_table_id, [work.partition for work in job.work])
    done = CompactionResult(job.source_table_id, job.destination_table_id, tuple(results), publication)
    if done.errors and len(done.errors) == len(results):
        error = done.errors[0]
        error.result = done  # type: ignore[attr-defined]
        raise error
    return done


def _shown(catalog: DeltaStreamCatalog, job: Job) -> PublicationResult | None:
    """Let the Iceberg table that the destination is published to show what it has now; None: it is not published."""
    if job.publication is None:
        return None
    from deltacompact.catalog.publication.publication import show_compacted

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


def _sessions(job: Job, emit: EventSink) -> list[SessionResult]:
    """Plan all sessions, then run as many at a time as the plans admit. The results are in the partitions' order."""
    options, lane_of = job.terms.options, job.lanes
    sessions = Counter(lane_of.values())
    at_once = {lane: min(count, sessions_at_once(lane, options, job.waits)) for lane, count in sessions.items()}
    executors = executors_for(options, at_once, job.waits)
    room_of = rooms(capacities(options, executors), at_once)

    def planned(work: Work) -> CompactionPlan | NothingToDo | Exception:
        if not isinstance(work.found, Snapshot):
            return work.found
        try:
            return plan_work(job, work, work.found, executors[lane_of[work.partition]].capacity)
        except Exception as error:
            return error

    def run(work: Work, own: CompactionPlan | NothingToDo | Exception) -> SessionResult:
        if isinstance(own, NothingToDo):
            return SessionResult(dict(work.partition.values), nothing_to_do=own.reason)
        if isinstance(own, Exception):
            result = _failed(work.partition, own)
        else:
            result = run_session(job, work, own, executors[lane_of[work.partition]], emit)
        emit(_finished(job, work, result))
        return result

    def stop() -> None:
        for executor in executors.values():
            executor.stop()

    plans = side_by_side(job.work, planned, job.at_once)
    share_slots(
        executors,
        [
            own.task_places
            for work, own in zip(job.work, plans, strict=True)
            if isinstance(own, CompactionPlan) and lane_of[work.partition] is Lane.POOL
        ],
    )
    runs = [
        Run(
            Claim.of(lane_of[work.partition], own) if isinstance(own, CompactionPlan) else None,
            functools.partial(run, work, own),
        )
        for work, own in zip(job.work, plans, strict=True)
    ]
    return run_side_by_side(runs, room_of, stop, options.partitions_at_once)


@dataclass(frozen=True, slots=True)
class Work:
    """One partition of a job: its snapshot, why there is nothing to do, or the error of reading it."""

    stream: DeltaStreamPartition
    found: Snapshot | NothingToDo | Exception

    @property
    def partition(self) -> Partition:
        return self.stream.partition


@dataclass(frozen=True, slots=True)
class Job:
    """A prepared compaction job run: its work by partition, of which so many are read at a time.

    `waits`: the store is behind a network. `publication`: the Iceberg table that shows the destination's rows.
    """

    source_table_id: str
    destination_table_id: str
    terms: Terms
    work: tuple[Work, ...]
    waits: bool
    at_once: int
    publication: str | None = None

    @property
    def snapshots(self) -> list[Snapshot]:
        return [work.found for work in self.work if isinstance(work.found, Snapshot)]

    @property
    def lanes(self) -> dict[Partition, Lane]:
        """Where the session of each partition runs that needs one."""
        chosen = lanes(self.snapshots, self.terms.options, self.waits)
        return {snapshot.partition: lane for snapshot, lane in zip(self.snapshots, chosen, strict=True)}


def prepare(catalog: DeltaStreamCatalog, request: Request) -> Job:
    """Resolve tables, keys and partitions. Writes nothing.

    Raises NotFoundError for an unknown table or partition, InputError for an unknown column, keys other than the
    table's, or a table that cannot be the destination.
    """
    source_table_id, options = request.source_table_id, request.options
    destination = request.destination_table_id or source_table_id
    publication = _publication(catalog, destination, destination == source_table_id)
    if publication is not None:
        options = _for_iceberg(options, destination)
    source = catalog.declared(source_table_id)
    chosen = _partitions(catalog, source_table_id, request.partitions)
    keys = _keys(source, request.primary_keys, request.sort_keys)
    if destination != source_table_id:
        check_destination(catalog, source, keys, destination)
    terms = Terms(keys, source.partition_keys, options, source.tombstone_retention)
    in_place = destination == source_table_id
    idle = idle_streams(catalog, source_table_id, chosen, options.purge) if in_place else {}

    def work(partition: Partition) -> Work:
        stream = DeltaStreamPartition(catalog, source, destination, partition, keys, options.purge, request.attempt)
        return Work(stream, idle.get(partition) or _found(stream, source, keys))

    found = side_by_side(chosen, work, catalog.at_once)
    return Job(source_table_id, destination, terms, tuple(found), catalog.is_remote, catalog.at_once, publication)


def _publication(catalog: DeltaStreamCatalog, table_id: str, in_place: bool) -> str | None:
    """The Iceberg table that shows the rows of a table. A destination may not exist yet."""
    try:
        return catalog.publication(table_id)
    except NotFoundError:
        if in_place:
            raise
        return None


def _for_iceberg(options: Options, table_id: str) -> Options:
    """The options for a table that is published. Delta files never stay: their columns may have foreign field ids."""
    if options.content_type is not ContentType.PARQUET:
        raise InputError(
            f"table {table_id!r} is published as Iceberg: compacted files must be Parquet, "
            f"not {options.content_type.name}"
        )
    return replace(options, limits=replace(options.limits, delta_kept_bytes_min=INT64_MAX))


def _found(stream: DeltaStreamPartition, source: Table, keys: TableKeys) -> Snapshot | NothingToDo | Exception:
    try:
        found = stream.fetch()
        if source.keys is None and isinstance(found, Snapshot):
            _check_columns(keys, source, found)
        return found
    except Exception as error:  # a bad partition must not end the job of the others
        return error


def plan_work(job: Job, work: Work, snapshot: Snapshot, capacity: Capacity) -> CompactionPlan:
    """The plan of a partition's compaction. Raises SchemaError, with advice, before any work."""
    try:
        return attempts.plan_session(work.stream.ports, snapshot, job.terms, capacity)
    except DeltaCompactError as error:
        raise work.stream.advised(error, snapshot) from error


def run_session(job: Job, work: Work, own: CompactionPlan, executor: Executor, emit: EventSink) -> SessionResult:
    """Compact one partition stream: begin a session, or resume an interrupted one.

    Any exception becomes the error of the result, because a bad partition must not end the job of the others.
    """
    try:
        spilled_before = executor.spilled_bytes()
        session, published = attempts.resume_or_begin(work.stream.ports, own, job.terms, executor, emit)
        spilled = executor.spilled_bytes()
        if spilled is not None:
            spilled -= spilled_before or 0
        return _result(session, published, executor, spilled)
    except DeltaCompactError as error:
        return _failed(work.partition, work.stream.advised(error, own.input))
    except Exception as error:
        return _failed(work.partition, error)


def _failed(partition: Partition, error: Exception) -> SessionResult:
    """The result of a failed session. Log an unexpected exception with its traceback."""
    if not isinstance(error, DeltaCompactError):
        logger.error("partition %s failed: %s", partition, one_line(error), exc_info=error)
    return SessionResult(dict(partition.values), error=error)


def _finished(job: Job, work: Work, result: SessionResult) -> SessionFinished:
    error = result.error
    if error is None:
        files = counted_reasons(result.decisions)
        return SessionFinished(job.source_table_id, work.partition, None, result.live, files=files)
    named = _named_in(str(error), work.found) if isinstance(work.found, Snapshot) else []
    where = ": " + ", ".join(named) if named else ""
    return SessionFinished(job.source_table_id, work.partition, one_line(error), 0, type(error).__name__ + where)


def _named_in(message: str, snapshot: Snapshot) -> list[str]:
    """The files and columns that an error names. Nothing else of its text is surely not a row value."""
    base, deltas = snapshot.base, snapshot.deltas
    files = [*(base.files if base else ()), *(file for delta in deltas for file in delta.files)]
    columns = dict.fromkeys(name for file in files for name in file.schema.names)
    return [
        *(file.path for file in files if file.path in message),
        *(f"column {name!r}" for name in columns if repr(name) in message),
    ]


def content_type(name: ContentType | str) -> ContentType:
    """Accept ContentType.ORC, "application/orc" and "orc". Raises InputError for a format that cannot be written."""
    try:
        found = ContentType(name)
    except ValueError:
        try:
            found = ContentType[str(name).upper()]
        except KeyError:
            known = ", ".join(known_type.name.lower() for known_type in ContentType)
            raise InputError(f"content type {name!r} is none of {known}") from None
    suffix_of(found)
    return found


def _keys(
    table: Table,
    primary_keys: Iterable[str] | None,
    sort_keys: Sequence[SortKey | str | Sequence[str]] | None,
) -> TableKeys:
    """The keys to compact by: the table's own, if it has some."""
    if primary_keys is None:
        if table.keys is None:
            raise InputError(f"table {table.table_id!r} has no primary keys yet: name them")
        primary_keys = table.keys.primary
    keys = TableKeys.of(primary_keys, sort_keys)
    check_keys(table, keys)
    return table.keys or keys


def _check_columns(keys: TableKeys, table: Table, snapshot: Snapshot) -> None:
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


def _partitions(
    catalog: DeltaStreamCatalog, table_id: str, named: Sequence[Mapping[str, Any]] | None
) -> list[Partition]:
    if named is None:
        return catalog.partitions(table_id)
    return list(dict.fromkeys(catalog.partition(table_id, values) for values in expect.several("partitions", named)))


def _result(session: Session, published: Published, executor: Executor, spilled_bytes: int | None) -> SessionResult:
    decided, counts, outputs = session.plan, published.counts, published.outputs
    snapshot, measured = decided.input, session.measured
    base_files = len(snapshot.base.files) if snapshot.base and snapshot.owned else 0
    seconds = sum(measured.seconds.values())
    return SessionResult(
        partition=dict(snapshot.partition.values),
        rows_in=counts.upserts + (snapshot.base.rows if snapshot.base else 0),
        live=counts.live,
        superseded=counts.superseded,
        deleted=counts.deleted,
        delete_rows=counts.deletes,
        files_kept=len(outputs.kept),
        files_rewritten=base_files - len(outputs.marked) - sum(source.in_base for source in outputs.kept),
        files_marked=len(outputs.marked),
        files_new=len(outputs.outputs),
        rows_copied=measured.rows_copied,
        files_before=len(decided.sources),
        files_after=len(published.compacted.files),
        rounds=len(decided.rounds),
        rounds_resumed=session.rounds_resumed,
        bytes_in=snapshot.bytes,
        bytes_out=published.compacted.bytes,
        hash_bucket_count=decided.hash_bucket_count,
        executor=executor.name,
        version=published.version,
        seconds={stage: round(value, 3) for stage, value in measured.seconds.items()},
        scheduling_share=measured.scheduling_seconds / seconds if seconds else 0.0,
        planned_peak_bytes=decided.planned_process_bytes(executor.tasks_per_process),
        measured_peak_bytes=measured.peak_task_bytes,
        spilled_bytes=spilled_bytes,
        decisions=tuple(
            DecidedFile(decided.sources[file.ordinal].file.path, file.action, file.reason)
            for file in outputs.decision.files
        ),
    )

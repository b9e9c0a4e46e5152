"""One call of compact() over a table of delta streams, prepared: what the session of each partition has to do.

Nothing is written here.

for all partitions, many at a time where the store is behind a network
    fetch      ->  a snapshot: base files and deltas       (or: nothing to do, and why)
    lane       ->  in this process, or on the cluster
    plan       ->  CompactionPlan                          (bad input is refused here, before any work)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from deltacompact.base import expect
from deltacompact.base.errors import DeltaCompactError, InputError, NotFoundError
from deltacompact.base.model import INT64_MAX, ContentType, OperationType, Partition, Table
from deltacompact.base.partitions import side_by_side
from deltacompact.base.settings import DEFAULTS, Options
from deltacompact.base.table_keys import SortKey, TableKeys
from deltacompact.delta_streams.clustering import check_clustering, schemas_of
from deltacompact.delta_streams.destinations import check_destination
from deltacompact.delta_streams.idle_streams import idle_streams
from deltacompact.delta_streams.partition import DeltaStreamPartition
from deltacompact.delta_streams.snapshots import OtherWork
from deltacompact.delta_streams.streams import Streams
from deltacompact.delta_streams.table_documents import check_keys, check_sort_keys, clustering_of, no_keys_yet
from deltacompact.planning.lanes import Lane, lanes
from deltacompact.planning.marking import marking
from deltacompact.planning.plan import Capacity, CompactionPlan
from deltacompact.planning.terms import SessionTerms
from deltacompact.session.planned import plan_session
from deltacompact.table.ports import NothingToDo, PartitionSnapshot
from deltacompact.tabular.coarse_times import needs_micros


@dataclass(frozen=True, slots=True)
class Request:
    """One call of compact(): table, partitions (None: all), keys (None: the table's), destination (None: in place).

    Partitions that the catalog has named are not looked for again. `attempt` names the call, so that it can be fenced.
    `as_read`: a forecast of the streams as the catalog has just read them, without another look.
    """

    source_table_id: str
    primary_keys: Iterable[str] | None = None
    sort_keys: Sequence[SortKey | str | Sequence[str]] | None = None
    destination_table_id: str | None = None
    partitions: Sequence[Mapping[str, Any] | Partition] | None = None
    options: Options = DEFAULTS
    attempt: str | None = None
    as_read: bool = False


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
        chosen = lanes(self.snapshots, self.terms.options)
        return {snapshot.partition: lane for snapshot, lane in zip(self.snapshots, chosen, strict=True)}


def prepare(catalog: Streams, request: Request) -> CompactionJob:
    """Resolve tables, keys and partitions. Writes nothing.

    Raises NotFoundError for an unknown table or partition, InputError for an unknown column, keys other than the
    table's, or a table that cannot be the destination.
    """
    source_table_id, options = request.source_table_id, request.options
    destination = request.destination_table_id or source_table_id
    in_place = destination == source_table_id
    source = catalog.current_table(source_table_id)
    into = source if in_place else _destination(catalog, destination)
    declared = into.cluster_by or "" if options.cluster_by is None else options.cluster_by
    by = clustering_of(declared, source.partition_keys)
    options = marking(replace(options, cluster_by=by), into.readers)
    if into.publication is not None:
        options = _for_publication(options, destination)
    chosen = _partitions(catalog, source_table_id, request.partitions)
    keys = _keys(source, request.primary_keys, request.sort_keys)
    if not in_place:
        check_destination(catalog, source, keys, destination)
    micros = needs_micros(into.publication)
    terms = SessionTerms(keys, source.partition_keys, options, source.tombstone_retention, micros)
    look = in_place and not request.as_read and not (micros and options.purge)  # no listing knows the files' times
    idle = idle_streams(catalog, source_table_id, chosen, options.purge, by) if look else {}

    other = OtherWork(options.purge, micros, by, options.write_amplification_max)

    def work(partition: Partition) -> PartitionWork:
        stream = DeltaStreamPartition(
            catalog, source, destination, partition, keys, other, request.attempt, request.as_read
        )
        return PartitionWork(stream, idle.get(partition) or _found(stream, source, keys))

    found = side_by_side(chosen, work, catalog.at_once)
    # Rows of other partitions may have a column, and a table may be declared before rows bring it.
    is_all = request.options.cluster_by is not None and request.partitions is None and not idle
    is_all = is_all and not any(isinstance(work.found, Exception) for work in found)
    check_clustering(source, by, (schema for work in found for schema in work.schemas), is_all=is_all)
    return CompactionJob(
        source_table_id, destination, terms, tuple(found), catalog.is_remote, catalog.at_once, into.publication
    )


def _destination(catalog: Streams, table_id: str) -> Table:
    """The table that takes the rows. If it does not exist yet, nothing is declared about it."""
    try:
        return catalog.current_table(table_id)
    except NotFoundError:
        return Table(table_id)


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
        return plan_session(work.stream.ports, snapshot, job.terms, capacity)
    except DeltaCompactError as error:
        raise work.stream.advised(error, snapshot) from error


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
    if table.keys is None:
        check_sort_keys(keys, table.partition_keys)
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


def _partitions(
    catalog: Streams, table_id: str, named: Sequence[Mapping[str, Any] | Partition] | None
) -> list[Partition]:
    if named is None:
        return catalog.chosen(table_id, None)
    several = [{} if values is None else values for values in expect.several("partitions", named)]
    return list(dict.fromkeys(partition for values in several for partition in catalog.chosen(table_id, values)))

"""Statistics of partitions, from their logs: the only part of planning that reads a table of delta streams.

For each partition this reads the log and the index manifest (one request). It reads the footers of some files, because
their key ranges tell which base files the deltas touch. It reads a column only if the log lacks the longest value of a
string sort column. The engine's own planner turns all this into numbers, so a partition that cannot be folded is found
here, before anything is launched.

    1 partition, 12 deltas, 400 base files        the footers of all deltas and of 52 base files
    100 partitions, 12 deltas and 4 files each    the footers of 1 delta and 1 file of each
    1,000 partitions                              no footers: rates know what earlier sessions on the table touched
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import NotFoundError
from deltacompact.base.model import Partition
from deltacompact.base.partitions import side_by_side
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.job import CompactionJob, PartitionWork, Request, plan_work, prepare
from deltacompact.planning.plan import Capacity, CompactionPlan
from deltacompact.planning.sizing.index_sizes import FIGURE_MEMORY_BYTES
from deltacompact.planning.statistics import PartitionStatistics, statistics_of
from deltacompact.planning.touched import UNKNOWN, Touched, touched
from deltacompact.storage.objects import ObjectStore
from deltacompact.table.ports import NothingToDo
from deltacompact.tabular.key_ranges import KeyedGroup, keyed_groups
from sessions.base.settings import READ_AT_ONCE

FOOTERS = 256
"""Footers to read for a job run, for all partitions together: at 30 ms and many at a time, less than a second."""
_FOOTERS_OF_A_PARTITION = 64
_FOOTERS_AT_ONCE = 8

_ANY_CAPACITY = Capacity(1, FIGURE_MEMORY_BYTES, FIGURE_MEMORY_BYTES)
"""The engine needs some machine to plan for. The statistics do not depend on it."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """One partition: its statistics, or why there is nothing to do, or its error."""

    partition: dict[str, str | None]
    statistics: PartitionStatistics | None = None
    nothing_to_do: str | None = None
    error: Exception | None = None


def gather(catalog: DeltaStreamCatalog, request: Request) -> tuple[Gathered, ...]:
    """Gather every partition of the request. Raises InputError and NotFoundError for faults of the whole table."""
    names = catalog.described(request.source_table_id).partition_keys
    if request.partitions is None:
        chosen = catalog.partitions(request.source_table_id)
    else:
        chosen = list(dict.fromkeys(Partition.of(names, values) for values in request.partitions))

    footers = min(_FOOTERS_OF_A_PARTITION, FOOTERS // max(1, len(chosen)))

    def look(partition: Partition) -> Gathered:
        values = dict(partition.values)
        try:
            job = prepare(catalog, replace(request, partitions=[values]))
        except NotFoundError as error:
            return Gathered(values, error=error)
        return _gathered(job, job.work[0], footers)

    return tuple(side_by_side(chosen, look, READ_AT_ONCE))


def _gathered(job: CompactionJob, work: PartitionWork, footers: int) -> Gathered:
    partition = dict(work.partition.values)
    if isinstance(work.found, NothingToDo):
        return Gathered(partition, nothing_to_do=work.found.reason)
    if isinstance(work.found, Exception):
        return Gathered(partition, error=work.found)
    try:
        plan = plan_work(job, work, work.found, _ANY_CAPACITY)
        return Gathered(
            partition, replace(statistics_of(plan), touched=_touched(work.stream.ports.store, plan, footers))
        )
    except Exception as error:  # one bad partition does not end the planning of all
        return Gathered(partition, error=error)


def _touched(store: ObjectStore, plan: CompactionPlan, footers: int) -> Touched:
    """What the deltas touch, by up to `footers` footers: half of them for deltas."""
    deltas, base = ([source.file for source in plan.sources if source.in_base is is_base] for is_base in (False, True))
    read = min(len(deltas), footers // 2)
    some_deltas, some_base = _evenly(deltas, read), _evenly(base, footers - read)
    if not footers:
        return UNKNOWN

    def groups(file: DataFile) -> tuple[KeyedGroup, ...]:
        return keyed_groups(store, file, plan.keys.primary)

    found = side_by_side([*some_base, *some_deltas], groups, _FOOTERS_AT_ONCE)
    of_base, of_deltas = found[: len(some_base)], found[len(some_base) :]
    base_rows = sum(file.rows for file in base)
    share = sum(file.rows for file in some_base) / base_rows if base_rows else 1.0
    outdated = {source.file.path for source in plan.sources if source.in_base and plan.is_outdated(source)}
    merged = [
        place for place, file in enumerate(some_base) if plan.is_small(file.rows, file.bytes) or file.path in outdated
    ]
    return touched(of_base, [group for file in of_deltas for group in file], plan.input.delta_rows, share, merged)


def _evenly(files: Sequence[DataFile], count: int) -> list[DataFile]:
    """`count` of the files, spread evenly."""
    return [files[place * len(files) // count] for place in range(count)] if count < len(files) else list(files)

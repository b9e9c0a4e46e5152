"""Statistics of partitions, from their logs: the only part of planning that reads a table.

For each partition the log is read, and the index manifest (one request). Data files are opened only where the log
does not say how long the values of a string sort column are. The engine's own planner turns that into numbers, so a
partition that cannot be folded says so here, before anything is launched.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from deltacompact.base.errors import NotFoundError
from deltacompact.base.model import Partition
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.job import CompactionJob, PartitionWork, Request, plan_work, prepare
from deltacompact.planning.plan import Capacity
from deltacompact.planning.sizing import FIGURE_MEMORY_BYTES
from deltacompact.planning.statistics import PartitionStatistics, statistics_of
from deltacompact.table.ports import NothingToDo

READERS = 16
"""Partitions that are looked at at a time: their logs are small objects, and waiting for them is all it takes."""

_ANY_CAPACITY = Capacity(1, FIGURE_MEMORY_BYTES, FIGURE_MEMORY_BYTES)
"""The engine plans for some machine; what is taken from its plan does not depend on which."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """One of three for each partition: its statistics, why nothing is to be done, or what is wrong with it."""

    partition: dict[str, str | None]
    statistics: PartitionStatistics | None = None
    nothing_to_do: str | None = None
    error: Exception | None = None


def gather(catalog: DeltaStreamCatalog, request: Request) -> tuple[Gathered, ...]:
    """Look at every partition that is asked for.

    Raises InputError and NotFoundError for what concerns the whole table.
    """
    names = catalog.table(request.source_table_id).partition_keys
    if request.partitions is None:
        chosen = catalog.partitions(request.source_table_id)
    else:
        chosen = list(dict.fromkeys(Partition.of(names, values) for values in request.partitions))

    def look(partition: Partition) -> Gathered:
        values = dict(partition.values)
        try:
            job = prepare(catalog, replace(request, partitions=[values]))
        except NotFoundError as error:
            return Gathered(values, error=error)
        return _gathered(job, *job.work)

    with ThreadPoolExecutor(READERS) as threads:
        return tuple(threads.map(look, chosen))


def _gathered(job: CompactionJob, work: PartitionWork) -> Gathered:
    partition = dict(work.partition.values)
    if isinstance(work.found, NothingToDo):
        return Gathered(partition, nothing_to_do=work.found.reason)
    if isinstance(work.found, Exception):
        return Gathered(partition, error=work.found)
    try:
        return Gathered(partition, statistics_of(plan_work(job, work, work.found, _ANY_CAPACITY)))
    except Exception as error:  # one bad partition does not end the planning of all
        return Gathered(partition, error=error)

"""What processes do to the table "t". Each task is repeated until it succeeds despite the store and other processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from columns import bag
from oracle import Row

from deltacompact import ConflictError, DeltaStreamCatalog, NotFoundError, PositionError, Settings, StoreError, compact
from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.model import OperationType
from deltacompact.executors.local import LocalExecutor
from deltacompact.maintenance.check import rehash_table
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.tabular.row_groups import WriteOptions
from deltacompact.tabular.writing import write_table

from .world import ALL, Batch, World

HOURS = 3600
DAYS = 24 * HOURS
LOCAL = Settings(executor="local", local_threads=1)

Task = Callable[[DeltaStreamCatalog], Any]


@dataclass
class Role:
    """A list of tasks, done in order. If a process dies, the next process of the role does the remaining tasks."""

    name: str
    tasks: list[Task]
    is_bound_to_time: bool = True
    """The vacuum's age bounds a task: if it takes longer, its files are refused or its reads may fail."""

    def work(self, catalog: DeltaStreamCatalog) -> None:
        while self.tasks:
            try:
                self.tasks[0](catalog)
            except (StoreError, ConflictError):
                continue  # the outcome is unknown, or another process was faster: repeat the task
            self.tasks.pop(0)


def append(world: World, batch: Batch, position: int | None) -> Task:
    """Commit a batch until it is acknowledged."""

    def task(catalog: DeltaStreamCatalog) -> None:
        try:
            acknowledge(catalog, position)
        except PositionError:
            acknowledge(catalog, None)

    def acknowledge(catalog: DeltaStreamCatalog, position: int | None) -> None:
        tables = [(OperationType(operation), as_table(list(rows))) for operation, rows in batch.deltas]
        if len(tables) == 1:
            (operation, table) = tables[0]
            delta = catalog.append("t", table, None, operation, position, batch.token)
        else:
            begun_s = catalog.clock()
            paths = catalog.log("t", ALL).paths
            files = [
                (kind, [write_table(catalog.store, paths.fresh("data", ".parquet"), table, WriteOptions())])
                for kind, table in tables
            ]
            delta = catalog.commit("t", ALL, files, position, batch.token, begun_s)[-1]
        world.acknowledged[batch.token] = delta.position

    world.batches[batch.token] = batch
    return task


def as_table(rows: list[Row]) -> pa.Table:
    columns = {"k": pa.int64(), "s": pa.int64(), "v": pa.string()}
    return pa.table({name: pa.array([row[name] for row in rows], type_) for name, type_ in columns.items()})


def restate(world: World, rows: list[Row]) -> Task:
    """Replace all rows. Each restatement has another number of rows, by which the log tells them apart."""
    world.restated[len(rows)] = tuple(rows)
    return lambda catalog: world.lineages.append(catalog.restate("t", as_table(rows)).lineage)


def compaction(world: World, **arguments: Any) -> Task:
    def task(catalog: DeltaStreamCatalog) -> str | None:
        begun_s = catalog.clock()
        try:
            result = compact("t", delta_catalog_client=catalog, **arguments)
        except (StoreError, ConflictError):
            raise
        except DeltaCompactError as error:
            # The compaction took longer than the vacuum's age, and the vacuum deleted its base.
            assert isinstance(error, NotFoundError) and catalog.clock() - begun_s > 3 * DAYS, error
            raise ConflictError(str(error)) from error
        if result.destination_table_id == "t":
            world.published += [session.version for session in result.sessions if session.version]
        return "nothing to do" if all(session.nothing_to_do for session in result.sessions) else None

    return task


def compaction_into_another_table(world: World, **arguments: Any) -> Task:
    into_d = compaction(world, destination_compacted_table_id="d", **arguments)

    def task(catalog: DeltaStreamCatalog) -> None:
        first = world.acknowledged_events(world.history())
        into_d(catalog)
        world.in_destination = max(world.in_destination, first)

    return task


def read_destination(world: World) -> Task:
    """A destination holds a prefix of its source's events: at least those acknowledged before its last compaction."""

    def task(catalog: DeltaStreamCatalog) -> None:
        begun_s, first = catalog.clock(), world.in_destination
        try:
            rows = catalog.read("d").to_pylist()
        except NotFoundError as error:
            if catalog.clock() - begun_s > 3 * DAYS:
                raise ConflictError("too slow a reader") from error
            assert first == 0, error
            return
        world.reads.append((first, len(world.history()), bag(rows)))

    return task


def rehash(buckets: int) -> Task:
    def task(catalog: DeltaStreamCatalog) -> None:
        rehash_table(catalog, "t", buckets, LocalExecutor(LOCAL))

    return task


def cleaning() -> Task:
    def task(catalog: DeltaStreamCatalog) -> None:
        for table_id in catalog.tables():
            vacuum(catalog, table_id)

    return task


def read(world: World) -> Task:
    """Read the table. The rows must be a prefix of the events, with all that were acknowledged before the read."""

    def task(catalog: DeltaStreamCatalog) -> None:
        begun_s = catalog.clock()
        first = world.acknowledged_events(world.history())
        try:
            rows = catalog.read("t").to_pylist()
        except NotFoundError as error:
            assert catalog.clock() - begun_s > 3 * DAYS, error
            raise ConflictError("too slow a reader") from error
        world.reads.append((first, len(world.history()), bag(rows)))

    return task

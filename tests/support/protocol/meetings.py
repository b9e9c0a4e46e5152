"""Runs a second process from start to end between any two operations of a first process.

first    compaction     . . . . . | . . .
second   writer                   append        once for every place of the bar
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from simulation import Actor, Simulation, at_the_log

from deltacompact import DeltaStreamCatalog
from deltacompact.base.tokens import Token
from deltacompact.delta_streams.log.objects import LOG_LIMITS, LogLimits
from deltacompact.maintenance.vacuum.vacuum import vacuum

from .tasks import DAYS, LOCAL, Task, append, compaction, rehash, restate
from .world import Batch, World


def two_rows_to_fold(log_limits: LogLimits = LOG_LIMITS) -> World:
    """A compacted row and a delta on top of it."""
    world = World([], None, Simulation(log_limits))
    catalog = world.simulation.catalog()
    catalog.create_table("t", primary_keys=["k"])
    for number in range(2):
        upsert = ("upsert", ({"k": 1, "s": 0, "v": f"w{number}"}, {"k": 2 + number, "s": 0, "v": f"w{number}"}))
        append(world, Batch(Token("w", number), (upsert,)), number)(catalog)
        if number == 0:
            compaction(world, settings=LOCAL)(catalog)
    return world


def each_meeting(
    first: Callable[[World], Task],
    second: Callable[[World], Task],
    where: Callable[[World, Actor], bool] = lambda world, first: True,
    stops: Callable[[str, str], bool] = at_the_log,
) -> Iterator[tuple[World, Actor, Actor]]:
    """Run `second` from start to end between any two operations of `first`. `stops` says which operations count."""
    at = 0
    while True:
        world = two_rows_to_fold()
        a = world.simulation.start(first(world), "first", stops)
        for _ in range(at):
            if not a.done:
                a.step()
        if a.done:
            assert at > 5
            return
        at += 1
        if not where(world, a):
            world.simulation.end()
            continue
        b = world.simulation.start(second(world), "second", at_the_log)
        while not b.done:
            b.step()
        while not a.done:
            a.step()
        yield world, a, b


def one_batch(world: World) -> Task:
    return append(world, Batch(Token("late"), (("delete", ({"k": 1, "s": None, "v": None},)),)), None)


def folding(world: World) -> Task:
    return compaction(world, settings=LOCAL)


def folding_otherwise(world: World) -> Task:
    return compaction(world, settings=LOCAL, hash_bucket_count=2, rows_per_compacted_file=1)


def rehashing(world: World) -> Task:
    return rehash(3)


def restating(world: World) -> Task:
    return restate(world, [{"k": 7, "s": 0, "v": "restated"}])


def cleaning_days_later(world: World) -> Task:
    def task(catalog: DeltaStreamCatalog) -> None:
        world.simulation.now_s += 4 * DAYS
        vacuum(catalog, "t")

    return task

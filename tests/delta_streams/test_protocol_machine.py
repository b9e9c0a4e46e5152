"""The commit protocol under concurrency: seeded schedules over real processes that stop before each store operation.

Writers, compactors, rehashes, restatements, vacuums and readers share one table. Their operations interleave, fail,
lose their replies, are answered wrongly or carried out once more much later, clocks are set ahead and back, and the
processes die and are started again. Afterwards the log tells in which order everything took effect, and every
acknowledgement, every read and the final table are held against that order.
"""

from __future__ import annotations

import random
import uuid

import pytest
from budgets import examples
from protocol.meetings import folding, one_batch, two_rows_to_fold
from protocol.schedule import Schedule, destination_roles_of, roles_of
from protocol.tasks import DAYS, cleaning, compaction, compaction_into_another_table, read_destination, rehash
from protocol.world import ALL, World, assert_index_is_sound
from simulation import Simulation

from deltacompact.delta_streams.log.entries import Fence
from deltacompact.delta_streams.log.objects import LOG_LIMITS, LogLimits

SHORT_ENTRIES = LogLimits(entry_bytes_max=1000, entries_between_checkpoints=3)
"""Bodies of entries and checkpoints, which a small log would never have."""


def explore(seed: int, with_vacuum: bool, with_destination: bool = False, log_limits: LogLimits = LOG_LIMITS) -> None:
    random_ = random.Random(seed)
    names = random.Random(seed)
    sort_keys = random_.choice([[], [("s", "ascending")], [("s", "descending")]])
    retention = random_.choice([None, None, 0, 20]) if sort_keys else None
    world = World(sort_keys, retention, Simulation(log_limits, remote=seed % 2 == 0))
    world.simulation.catalog().create_table(
        "t", primary_keys=["k"], sort_keys=sort_keys, tombstone_retention=world.retention
    )
    roles = roles_of(world, random_, with_vacuum)
    if with_destination:
        roles += destination_roles_of(world, random_)
    faults, jumps = random_.choice([0, 3, 10]), 12 if with_vacuum else 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=names.getrandbits(128), version=4))
        run(world, Schedule(world, roles, random_, faults, jumps, clocks=faults), with_vacuum, with_destination)


def run(world: World, schedule: Schedule, with_vacuum: bool, with_destination: bool) -> None:
    try:
        schedule.run()
        world.assert_sound()
        assert world.acknowledged.keys() == world.batches.keys()
        compaction(world)(world.simulation.catalog())
        if with_destination:
            compaction_into_another_table(world)(world.simulation.catalog())
        if with_vacuum:
            world.simulation.now_s += 4 * DAYS
            cleaning()(world.simulation.catalog())
        if with_destination:
            read_destination(world)(world.simulation.catalog())
            assert world.reads[-1][0] == len(world.history())
            assert_index_is_sound(world, "d")
        world.assert_sound()
    except BaseException as error:
        error.add_note("\n".join(world.trace))
        raise


@pytest.mark.parametrize("seed", range(examples(60)))
@pytest.mark.slow
def test_in_any_schedule_nothing_acknowledged_is_lost_and_every_read_is_a_prefix(seed: int) -> None:
    explore(seed, with_vacuum=False)


@pytest.mark.parametrize("seed", range(1000, 1000 + examples(60)))
@pytest.mark.slow
def test_in_any_schedule_a_vacuum_deletes_nothing_that_is_needed(seed: int) -> None:
    explore(seed, with_vacuum=True)


@pytest.mark.parametrize("seed", range(3000, 3000 + examples(50)))
@pytest.mark.slow
def test_in_any_schedule_a_destination_holds_a_prefix_of_its_source(seed: int) -> None:
    explore(seed, with_vacuum=seed % 2 == 0, with_destination=True)


@pytest.mark.parametrize("seed", range(2000, 2000 + examples(60)))
@pytest.mark.slow
def test_in_any_schedule_bodies_and_checkpoints_say_what_the_log_says(seed: int) -> None:
    explore(seed, with_vacuum=seed % 2 == 0, log_limits=SHORT_ENTRIES)


def test_a_checkpoint_says_what_the_log_says() -> None:
    world = two_rows_to_fold(SHORT_ENTRIES)
    folding(world)(world.simulation.catalog())
    log = world.simulation.catalog().log("t", ALL)
    for number in range(6):
        one_batch(world)(world.simulation.catalog())
        log.extend(lambda _, number=number: Fence(f"session {number}"))
        rehash(number + 2)(world.simulation.catalog())
        fresh = world.simulation.catalog().log("t", ALL)
        state = fresh.state(log.active().version)
        assert state == fresh.state_at(state.version, state.tail)
        assert len(state.fences) == number + 1
    assert len(list(world.simulation.store.list("t/checkpoints/"))) > 2
    world.assert_sound()

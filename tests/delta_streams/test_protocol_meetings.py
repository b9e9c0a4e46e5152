"""Every way in which two processes can meet: one runs from end to end between any two operations of the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from protocol.meetings import (
    cleaning_days_later,
    each_meeting,
    folding,
    folding_otherwise,
    one_batch,
    rehashing,
    restating,
    two_rows_to_fold,
)
from protocol.tasks import DAYS, Task, read
from protocol.world import ALL, World
from simulation import Actor, at_the_log, everywhere

from deltacompact import ConflictError, DeltaStreamCatalog
from deltacompact.base.tokens import Token
from deltacompact.delta_streams.log.objects import LogLimits
from deltacompact.maintenance.vacuum.vacuum import vacuum


@pytest.mark.slow
@pytest.mark.parametrize("compacting", [folding, folding_otherwise])
def test_a_writer_may_commit_between_any_two_operations_of_a_compaction(compacting: Callable[[World], Task]) -> None:
    for world, compactor, writer in each_meeting(compacting, one_batch):
        assert compactor.error is None and writer.error is None
        assert len(world.published) == 2
        world.assert_sound()


def test_a_compaction_may_publish_between_any_two_operations_of_a_writer() -> None:
    for world, writer, compactor in each_meeting(one_batch, folding):
        assert compactor.error is None and writer.error is None
        assert Token("late") in world.acknowledged and len(world.published) == 2
        world.assert_sound()


@pytest.mark.slow
@pytest.mark.parametrize("other", [folding, folding_otherwise], ids=["same arguments", "other arguments"])
def test_of_two_compactions_that_meet_anywhere_exactly_one_publishes(other: Callable[[World], Task]) -> None:
    conflicts = 0
    for world, overtaken, overtaking in each_meeting(folding, other):
        assert overtaking.error is None
        assert len(world.published) == 2
        if overtaken.error is not None:
            assert isinstance(overtaken.error, ConflictError)
            conflicts += 1
        else:  # one of them came before the other had looked
            assert "nothing to do" in (overtaken.result, overtaking.result)
        world.assert_sound()
    assert conflicts > 5


@pytest.mark.parametrize("pace", [1, 2, 3])
@pytest.mark.slow
def test_of_two_compactions_that_run_side_by_side_exactly_one_publishes(pace: int) -> None:
    for lead in range(0, 30, 3):
        world = two_rows_to_fold()
        a = world.simulation.start(folding(world), stops=at_the_log)
        b = world.simulation.start(folding(world), stops=at_the_log)
        steps = [a] * lead + ([b] * pace + [a]) * 60
        for actor in [*steps, *[a] * 60, *[b] * 60]:
            if not actor.done:
                actor.step()
        errors = [actor.error for actor in (a, b) if actor.error is not None]
        assert [type(error) for error in errors] in ([ConflictError], []), errors
        assert errors or "nothing to do" in (a.result, b.result)
        assert len(world.published) == 2
        world.assert_sound()


@pytest.mark.slow
@pytest.mark.parametrize("compacting", [folding, folding_otherwise])
def test_an_index_may_be_rehashed_between_any_two_operations_of_a_compaction(
    compacting: Callable[[World], Task],
) -> None:
    for world, compactor, rehasher in each_meeting(compacting, rehashing):
        assert compactor.error is None and rehasher.error is None
        world.assert_sound()


def test_a_compaction_may_publish_between_any_two_operations_of_a_rehash() -> None:
    for world, rehasher, compactor in each_meeting(rehashing, folding):
        assert compactor.error is None
        assert rehasher.error is None or isinstance(rehasher.error, ConflictError)
        world.assert_sound()


@pytest.mark.slow
@pytest.mark.parametrize("compacting", [folding, folding_otherwise])
def test_a_restatement_that_meets_a_compaction_anywhere_wins_or_loses_whole(
    compacting: Callable[[World], Task],
) -> None:
    for pair in ((compacting, restating), (restating, compacting)):
        for world, overtaken, overtaking in each_meeting(*pair):
            assert overtaking.error is None
            assert overtaken.error is None or isinstance(overtaken.error, ConflictError)
            world.assert_sound()


@pytest.mark.slow
@pytest.mark.parametrize("compacting", [folding, folding_otherwise])
def test_a_vacuum_days_later_between_any_two_operations_of_a_compaction_loses_nothing(
    compacting: Callable[[World], Task],
) -> None:
    for world, compactor, vacuuming in each_meeting(compacting, cleaning_days_later):
        assert vacuuming.error is None
        assert compactor.error is None or isinstance(compactor.error, ConflictError), compactor.error
        world.assert_sound()
        vacuum(world.simulation.catalog(), "t")
        folding(world)(world.simulation.catalog())
        world.assert_sound()


@pytest.mark.parametrize("work", [one_batch, rehashing, restating])
@pytest.mark.slow
def test_a_vacuum_days_later_between_any_two_operations_of_a_writer_loses_nothing(
    work: Callable[[World], Task],
) -> None:
    refused = 0
    # Everywhere: a writer reads nothing between its data and its put.
    for world, late, vacuuming in each_meeting(work, cleaning_days_later, unless_it_commits_now, everywhere):
        assert vacuuming.error is None
        assert late.error is None or isinstance(late.error, ConflictError), late.error
        refused += late.error is not None
        world.assert_sound()
    assert refused


@pytest.mark.slow
def test_a_compaction_and_a_vacuum_between_any_two_operations_of_a_reader_leave_it_its_files() -> None:
    def a_year_later(world: World) -> Task:
        world.simulation.now_s += 365 * DAYS
        return read(world)

    def fold_and_clean(world: World) -> Task:
        def task(catalog: DeltaStreamCatalog) -> None:
            folding_otherwise(world)(catalog)
            world.simulation.now_s += 60
            vacuum(catalog, "t")

        return task

    for world, reader, other in each_meeting(a_year_later, fold_and_clean, stops=everywhere):
        assert reader.error is None and other.error is None
        world.assert_sound()


def unless_it_commits_now(world: World, writer: Actor) -> bool:
    """A writer looks at the age of its files before it commits: that one put may not take days."""
    active = world.simulation.catalog().state("t", ALL).version
    assert writer.pending is not None
    return writer.pending[0] != "put_if_absent" or f"/stream/{active}/" not in writer.pending[1]


@pytest.mark.parametrize("arguments", [folding, folding_otherwise])
def test_a_vacuum_that_spares_a_live_session_spares_what_an_older_attempt_at_it_has_written(
    arguments: Callable[[World], Task],
) -> None:
    world = two_rows_to_fold(LogLimits(entry_bytes_max=100))  # every attempt writes bodies of its own
    old = world.simulation.start(arguments(world))
    old.run_to("put_if_absent", f"t/stream/{world.simulation.catalog().state('t', ALL).version}/")  # its seal
    world.simulation.now_s += 4 * DAYS
    young = world.simulation.start(arguments(world))
    young.run_to("put_if_absent", f"t/stream/{world.simulation.catalog().state('t', ALL).version}/")
    vacuum(world.simulation.catalog(), "t")
    for attempt in (old, young):
        while not attempt.done:
            attempt.step()
    assert (old.error is None) != (young.error is None)
    world.assert_sound()
    folding(world)(world.simulation.catalog())
    world.assert_sound()

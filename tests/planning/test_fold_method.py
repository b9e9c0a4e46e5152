"""How a round folds: decided from the plan and what is known of the index, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_made import CAPACITY, MIB, file, index_of, planned, upsert

from deltacompact.base.settings import Options
from deltacompact.planning.fold_method import FoldMethod, KnownIndex, fold_method
from deltacompact.planning.plan import CompactionPlan

NARROW = replace(CAPACITY, object_store_bytes=1)
"""Nothing fits this object store."""


def three_rounds(capacity=CAPACITY) -> CompactionPlan:
    """A table of 100 rows, and three rounds of 10."""
    deltas = [upsert(file(10, MIB), position=position) for position in (80, 90, 100)]
    arguments = Options(rows_per_round=10)
    plan = planned([file(100, 300 * MIB, 14)], deltas, capacity=capacity, options=arguments)
    assert len(plan.rounds) == 3
    return plan


def test_a_small_change_of_one_round_adds_a_run_to_the_tables_index() -> None:
    plan = planned([file(100_000, 300 * MIB, 14)], [upsert(file(10, MIB))])
    assert plan.changes_only
    assert fold_method(plan, plan.rounds[0], KnownIndex(100_000, (100_000,))) is FoldMethod.CHANGES


def test_a_first_compaction_holds_its_entries_where_they_fit() -> None:
    plan = planned([], [upsert(file(1000))])
    assert fold_method(plan, plan.rounds[0], KnownIndex(0, (0,))) is FoldMethod.HOLD
    plan = planned([], [upsert(file(1000))], capacity=NARROW)
    assert fold_method(plan, plan.rounds[0], KnownIndex(0, (0,))) is FoldMethod.MERGE


def test_the_first_round_of_several_translates_the_tables_index() -> None:
    plan = three_rounds()
    assert fold_method(plan, plan.rounds[0], KnownIndex(100, (100,))) is FoldMethod.MERGE


@pytest.mark.parametrize(
    ("runs", "method"),
    [
        ((110,), FoldMethod.ADD_RUN),
        ((110, 60, 40), FoldMethod.ADD_RUN),
        ((110, 60, 41), FoldMethod.MERGE),  # 101 and the round's 10 are more than the first run
        ((9,), FoldMethod.MERGE),
        ((110, *[1] * 7), FoldMethod.MERGE),  # eight runs are enough
    ],
)
def test_a_round_between_adds_a_run_while_runs_are_few_and_small(runs: tuple[int, ...], method: FoldMethod) -> None:
    plan = three_rounds()
    assert fold_method(plan, plan.rounds[1], KnownIndex(sum(runs), runs)) is method


def test_the_last_round_holds_what_fits_and_folds_like_the_others_otherwise() -> None:
    before = KnownIndex(120, (110, 10))
    plan = three_rounds()
    assert fold_method(plan, plan.rounds[2], before) is FoldMethod.HOLD
    plan = three_rounds(NARROW)
    assert fold_method(plan, plan.rounds[2], before) is FoldMethod.ADD_RUN
    assert fold_method(plan, plan.rounds[2], KnownIndex(9, (9,))) is FoldMethod.MERGE


def test_what_is_known_of_an_index() -> None:
    assert KnownIndex.of(index_of(100, 7, 3)) == KnownIndex(100, (100, 7, 3))


def test_what_a_method_says_of_itself() -> None:
    assert {method for method in FoldMethod if method.tells_changes} == {FoldMethod.ADD_RUN, FoldMethod.CHANGES}
    assert {method for method in FoldMethod if method.hands_over} == {FoldMethod.HOLD, FoldMethod.CHANGES}

"""May a group be committed onto another head? Made by hand: what other writers may have done since the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from budgets import examples
from hand_made_tables import BY_DAY, data, equality, positions, state, vector
from hypothesis import given, settings
from hypothesis import strategies as st

from deltacompact.iceberg.deletes.matching import DeleteIndex
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.iceberg_modes.rewrite.plan import plan_rewrite
from deltacompact.iceberg_modes.rewrite.validation import RewriteHead, RewriteProblem

A = data("a", 3, ids=(10, 19))
APPLIED = (equality("e", 5), positions("p", 5, of=["a"]))


def problem(*head, planned=(A, *APPLIED), **options):
    """What keeps the planned rewrite of all files from being committed onto a head with these files."""
    plan = plan_rewrite(state(*planned), rewrite_options({"rewrite-all": True} | options, {}))
    (group,) = plan.groups
    return next(RewriteHead(state(*head), plan, [group]).problems_of(group, {(group.spec_id, group.partition)}), None)


def test_an_append_changes_nothing():
    assert problem(A, *APPLIED, data("b", 6)) is None


def test_rule_06_a_later_equality_delete_keeps_applying_to_the_output():
    assert problem(A, *APPLIED, equality("later", 6)) is None


def test_rule_06_a_later_position_delete_or_vector_on_an_input_refuses_the_group():
    assert problem(A, *APPLIED, positions("q", 6, of=["a"])) is RewriteProblem.NEW_POSITION_DELETE
    assert problem(A, *APPLIED, positions("q", 6)) is RewriteProblem.NEW_POSITION_DELETE
    assert problem(A, *APPLIED, vector("v", 6, of="a")) is RewriteProblem.NEW_POSITION_DELETE


def test_a_position_delete_on_another_file_is_no_concern():
    assert problem(A, *APPLIED, data("b", 6), positions("q", 7, of=["b"])) is None


def test_rule_05_without_the_starting_sequence_number_a_later_equality_delete_refuses_the_group():
    options = {"use-starting-sequence-number": "false"}
    assert problem(A, *APPLIED, **options) is None
    assert problem(A, *APPLIED, equality("later", 6), **options) is RewriteProblem.NEW_EQUALITY_DELETE
    assert problem(A, *APPLIED, equality("elsewhere", 6, ids=(30, 31)), **options) is None


def test_an_equality_delete_that_appears_at_or_below_the_planned_snapshot_refuses_the_group():
    assert problem(A, *APPLIED, equality("old", 5)) is RewriteProblem.NEW_EQUALITY_DELETE


def test_an_input_that_is_gone_refuses_the_group():
    assert problem(*APPLIED) is RewriteProblem.INPUT_GONE
    assert problem(replace(A, sequence_number=4), *APPLIED) is RewriteProblem.INPUT_GONE


@pytest.mark.parametrize("gone", APPLIED)
def test_a_rollback_that_took_an_applied_delete_away_refuses_the_group(gone):
    assert problem(A, *(delete for delete in APPLIED if delete is not gone)) is RewriteProblem.DELETE_GONE


def test_rule_23_a_replace_that_turned_an_equality_delete_into_positions_is_seen():
    """Planned at 5. E (6) lands, then a converter replaces it by P on our input: E is gone, P is new."""
    assert problem(A, *APPLIED, positions("converted", 7, of=["a"])) is RewriteProblem.NEW_POSITION_DELETE


def test_rule_07_the_planned_snapshot_is_not_needed_any_more():
    plan = plan_rewrite(state(A, *APPLIED), rewrite_options({"rewrite-all": True}, {}))
    head = state(A, *APPLIED, data("b", 9))
    assert plan.snapshot_id not in head.metadata.snapshots
    assert plan.sequence_number == 5
    assert not [*RewriteHead(head, plan, plan.groups).problems_of(plan.groups[0], {(0, ())})]


days, sequences = st.sampled_from([None, 1, 2, 3]), st.integers(4, 8)
deletes = st.lists(st.tuples(sequences, days, st.sampled_from([(10, 12), (30, 31)])), max_size=5)


@settings(max_examples=examples(200))
@given(deletes, st.sets(st.sampled_from([1, 2, 3]), min_size=1))
def test_rule_17_rows_that_move_are_hit_by_the_same_later_deletes(chosen, targets):
    source = data("a", 3, day=1, ids=(10, 19))
    made = [equality(f"e{number}", *of) for number, of in enumerate(chosen)]
    plan = plan_rewrite(
        state(source, *(delete for delete in made if delete.sequence <= 5), sequence=5),
        rewrite_options({"rewrite-all": True}, {}),
    )
    head = state(source, *made)
    index = DeleteIndex(head)

    def later(day):
        moved = replace(source, sequence_number=5, file=replace(source.file, partition=(day,)))
        return {delete.file.path for delete in index.applying_to(moved).equality}

    problems = RewriteHead(head, plan, plan.groups).problems_of(plan.groups[0], {(BY_DAY, (day,)) for day in targets})
    assert (RewriteProblem.NEW_EQUALITY_DELETE in problems) == any(later(day) != later(1) for day in targets)

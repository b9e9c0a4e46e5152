"""What becomes of each file: plans made by hand, live rows by hand, no store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from budgets import examples
from calls import calls
from hand_made import LARGE, MIB, SCHEMA, delete, file, planned, upsert
from hypothesis import given, settings
from hypothesis import strategies as st

from deltacompact.base.data_file import DeletionVector
from deltacompact.base.model import ContentType, OperationType
from deltacompact.base.settings import Options
from deltacompact.planning.decisions import (
    FileAction,
    FileDecision,
    FileReason,
    counted_reasons,
    decide_files,
    forecast,
)
from deltacompact.planning.outputs import Output, OutputDecision, decide_outputs, follow, plan_outputs
from deltacompact.planning.plan import CompactionPlan, SourceFile
from deltacompact.planning.pointer_map import KEPT, NOWHERE

KEEP, MARK, REWRITE, DROP = FileAction


def decided(plan: CompactionPlan, *live: int) -> list[tuple[FileAction, FileReason]]:
    return [(choice.action, choice.reason) for choice in decide_files(plan, np.array(live))]


def test_base_files_stay_until_a_row_dies() -> None:
    plan = planned([file(4, LARGE, number) for number in (14, 15, 16)], [delete(file(5, MIB))])
    assert decided(plan, 4, 3, 0, 0) == [
        (KEEP, FileReason.NO_ROW_DIED),
        (REWRITE, FileReason.ROWS_DIED),
        (DROP, FileReason.ALL_ROWS_DEAD),
        (DROP, FileReason.DELETES),
    ]


def test_few_dead_rows_get_a_deletion_vector() -> None:
    base = [file(100, LARGE, 14), file(100, LARGE, 15), file(100, LARGE, 16, dead=9)]
    plan = planned(base, [delete(file(30, MIB))], options=Options(rewrite_dead_fraction=0.1))
    assert decided(plan, 91, 90, 90, 0)[:3] == [
        (MARK, FileReason.FEW_ROWS_DIED),
        (REWRITE, FileReason.ROWS_DIED),
        (REWRITE, FileReason.ROWS_DIED),
    ]
    assert decided(plan, 100, 100, 91, 0)[2] == (KEEP, FileReason.NO_ROW_DIED)


def test_a_purge_rewrites_what_has_dead_rows_and_marks_nothing() -> None:
    base = [file(100, LARGE, 14), file(100, LARGE, 15, dead=1), file(100, LARGE, 16)]
    plan = planned(base, [delete(file(1, MIB))], options=Options(rewrite_dead_fraction=0.1, purge=True))
    assert decided(plan, 99, 99, 100, 0)[:3] == [
        (REWRITE, FileReason.ROWS_DIED),
        (REWRITE, FileReason.PURGE),
        (KEEP, FileReason.NO_ROW_DIED),
    ]


def test_a_base_file_is_written_again_once_a_column_without_values_has_a_type() -> None:
    untyped = pa.schema([SCHEMA.field("k"), ("v", pa.null())])
    base = [file(4, LARGE, 14, schema=untyped), file(4, LARGE, 15), file(4, LARGE, 16, schema=untyped, dead=1)]
    deltas = [upsert(file(1, MIB))]
    options = Options(rewrite_dead_fraction=0.9)
    plan = planned(base, deltas, options=options)
    assert decided(plan, 4, 4, 3, 1)[:3] == [
        (REWRITE, FileReason.OTHER_SCHEMA),
        (KEEP, FileReason.NO_ROW_DIED),
        (REWRITE, FileReason.OTHER_SCHEMA),
    ]
    cold = planned(base, deltas, options=options, cold=frozenset({base[0].path}))
    assert decided(cold, 4, 4, 3, 1)[0] == (KEEP, FileReason.NO_ROW_DIED)
    lacking = [replace(base_file, schema=pa.schema([SCHEMA.field("k")])) for base_file in base]
    assert decided(planned(lacking, deltas, options=options), 4, 4, 3, 1)[0] == (KEEP, FileReason.NO_ROW_DIED)


def test_small_base_files_are_merged_where_there_are_two_pieces() -> None:
    small = file(4, MIB, 14)
    assert decided(planned([small, file(4, LARGE, 15)], [delete(file(1, MIB))]), 4, 4, 0)[0] == (
        KEEP,
        FileReason.NO_ROW_DIED,
    )
    two = planned([small, file(4, MIB, 15)], [delete(file(1, MIB))])
    assert decided(two, 4, 4, 0)[:2] == [(REWRITE, FileReason.SMALL)] * 2
    beside_a_small_rest = planned([small], [upsert(file(1, MIB))])
    assert decided(beside_a_small_rest, 4, 1) == [(REWRITE, FileReason.SMALL)] * 2
    beside_a_large_rest = planned([small], [upsert(file(4, 130 * MIB, content_type=ContentType.ORC))])
    assert decided(beside_a_large_rest, 4, 4) == [(KEEP, FileReason.NO_ROW_DIED), (REWRITE, FileReason.OTHER_FORMAT)]


OTHER_SCHEMA = pa.schema([("k", pa.int64())])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, FileReason.LARGE_AND_WHOLE),
        ({"content_type": ContentType.FEATHER}, FileReason.OTHER_FORMAT),
        ({"schema": OTHER_SCHEMA}, FileReason.OTHER_SCHEMA),
        ({"path": "s3://elsewhere/0.parquet", "managed": False}, FileReason.NOT_OWNED),
        ({"bytes": 600 * MIB}, FileReason.TOO_LARGE),
        ({"rows": 5_000_000}, FileReason.TOO_LARGE),
        ({"bytes": 20 * MIB}, FileReason.SMALL),
        ({"rows": 0}, FileReason.NO_ROWS),
    ],
)
def test_a_delta_file_stays_where_it_is_as_an_output_would_be(changed: dict[str, Any], reason: FileReason) -> None:
    of_the_schema = file(3_000_000, LARGE, 1)
    changed_file = replace(file(3_000_000, LARGE), **changed)
    plan = planned([], [upsert(of_the_schema, changed_file)])
    assert plan.schema.equals(SCHEMA)
    first, second = decided(plan, 3_000_000, changed_file.rows)
    assert first == (KEEP, FileReason.LARGE_AND_WHOLE)
    assert second[1] is reason
    expected = {FileReason.LARGE_AND_WHOLE: KEEP, FileReason.NO_ROWS: DROP}.get(reason, REWRITE)
    assert second[0] is expected


def test_a_large_delta_file_is_rewritten_for_a_codec_or_a_dead_row() -> None:
    plan = planned([], [upsert(file(3_000_000, LARGE))])
    assert decided(plan, 2_999_999) == [(REWRITE, FileReason.ROWS_DIED)]
    plan = planned([], [upsert(file(3_000_000, LARGE))], options=Options(compression="zstd"))
    assert decided(plan, 3_000_000) == [(REWRITE, FileReason.OTHER_CODEC)]


def test_a_destination_owns_no_file_of_its_source() -> None:
    rebuilt = planned([file(4, LARGE, 14)], [upsert(file(3_000_000, LARGE))], owned=False, destination_table_id="d")
    assert decided(rebuilt, 4, 3_000_000) == [(REWRITE, FileReason.NOT_OWNED)] * 2
    followed = planned([file(4, LARGE, 14)], [upsert(file(3_000_000, LARGE))], destination_table_id="d")
    assert decided(followed, 4, 3_000_000) == [(KEEP, FileReason.NO_ROW_DIED), (REWRITE, FileReason.NOT_OWNED)]


def test_a_forecast_says_what_a_dead_row_would_change() -> None:
    base = [file(100, LARGE, 14), file(100, MIB, 15)]
    plan = planned(base, [upsert(file(3, MIB)), delete(file(1, MIB))], options=Options(rewrite_dead_fraction=0.1))
    kept, merged, new, deletes = forecast(plan)
    assert (kept.unhurt.action, kept.unhurt.reason) == (KEEP, FileReason.NO_ROW_DIED)
    assert kept.hurt is not None and (kept.hurt.action, kept.hurt.reason) == (MARK, FileReason.FEW_ROWS_DIED)
    assert (merged.unhurt.action, merged.unhurt.reason) == (REWRITE, FileReason.SMALL)
    assert merged.hurt is not None and merged.hurt.action is MARK
    assert (new.unhurt.action, new.unhurt.reason, new.hurt) == (REWRITE, FileReason.SMALL, None)
    assert (deletes.unhurt.action, deletes.unhurt.reason, deletes.hurt) == (DROP, FileReason.DELETES, None)


def test_without_delta_rows_nothing_dies() -> None:
    plan = planned([file(100, LARGE, 14), file(100, LARGE, 15, dead=3)], options=Options(purge=True))
    assert [(choice.unhurt.reason, choice.hurt) for choice in forecast(plan)] == [
        (FileReason.NO_ROW_DIED, None),
        (FileReason.PURGE, None),
    ]


def test_a_forecast_of_twice_the_deltas_costs_twice_the_calls() -> None:
    few, many = (planned([], [upsert(file(3, MIB)) for _ in range(deltas)]) for deltas in (200, 400))
    assert calls(lambda: forecast(many)) < 2.1 * calls(lambda: forecast(few))


def test_reasons_are_counted() -> None:
    plan = planned([file(4, LARGE, number) for number in (14, 15, 16)], [delete(file(5, MIB))])
    decisions = decide_files(plan, np.array([4, 4, 3, 0]))
    assert counted_reasons(decisions) == (
        ("keep", "no_row_died", 2),
        ("rewrite", "rows_died", 1),
        ("drop", "deletes", 1),
    )


def outputs_of_three() -> tuple[CompactionPlan, np.ndarray]:
    """The files of outputs.py's story."""
    plan = planned(
        [file(4, LARGE, 14), file(4, LARGE, 15)], [upsert(file(6, MIB))], options=Options(rows_per_compacted_file=4)
    )
    return plan, np.array([4, 3, 5])


def test_ranks_run_through_the_rewritten_files_in_fold_order() -> None:
    plan, live = outputs_of_three()
    outputs = plan_outputs(plan, live)
    assert [source.file.number for source in outputs.kept] == [14]
    assert [(source.ordinal, rank) for source, rank in outputs.rewritten] == [(1, 0), (2, 3)]
    assert outputs.outputs == (Output(101, 0, 4), Output(102, 4, 8))  # 100 is the number of the delta file
    assert outputs.rows_rewritten == 8
    assert outputs.pointers.group_of.tolist() == [KEPT, 0, 0]
    assert outputs.pointers.number_of.tolist() == [14, 0, 0]


def test_marked_files_are_ranked_apart_and_dropped_ones_not_at_all() -> None:
    base = [file(100, LARGE, 14), file(4, LARGE, 15)]
    plan = planned(base, [delete(file(5, MIB))], options=Options(rewrite_dead_fraction=0.1))
    outputs = plan_outputs(plan, np.array([99, 0, 0]))
    assert [source.file.number for source in outputs.marked] == [14]
    assert (outputs.outputs, outputs.pointers.marked_from, len(outputs.groups)) == ((), 0, 1)
    assert outputs.pointers.group_of.tolist() == [0, NOWHERE, NOWHERE]


def test_a_recorded_decision_is_followed_as_it_was_recorded() -> None:
    plan, live = outputs_of_three()
    decision = decide_outputs(plan, live)
    assert OutputDecision.from_json(decision.to_json()) == decision
    other = replace(
        decision, files=(FileDecision(decision.files[0].ordinal, REWRITE, FileReason.SMALL), *decision.files[1:])
    )
    followed = follow(OutputDecision.from_json(other.to_json()), plan, live)
    assert followed.kept == () and followed.rows_rewritten == 12


@pytest.mark.parametrize(
    "files",
    [[], [[0, "keep", "no_row_died"]], [[0, "keep", "no_row_died"], [2, "drop", "deletes"], [1, "drop", "deletes"]]],
)
def test_a_decision_about_other_files_is_refused(files: list[Any]) -> None:
    plan, live = outputs_of_three()
    decision = OutputDecision.from_json({"files": files, "first_output_number": 101, "rows_per_output": 4})
    with pytest.raises(ValueError, match="other files"):
        follow(decision, plan, live)


@pytest.mark.parametrize("values", [[0, "keep"], [0, "eat", "small"], [0, "keep", "hungry"], ["x", "keep", "small"]])
def test_what_is_no_decision_is_refused(values: list[Any]) -> None:
    with pytest.raises(ValueError):
        FileDecision.from_json(values)


SIZES = st.sampled_from([1, MIB, 40 * MIB, 140 * MIB, LARGE, 600 * MIB])


@st.composite
def plans_and_live_rows(draw: st.DrawFn) -> tuple[CompactionPlan, list[int]]:
    """A plan of a few base and delta files, and how many of their rows live."""
    rows = st.integers(1, 20)
    base = [file(count, draw(SIZES), 14 + number) for number, count in enumerate(draw(st.lists(rows, max_size=4)))]
    marked = [replace(whole, deletions=DeletionVector(1, "m", 0)) if draw(st.booleans()) else whole for whole in base]
    deltas = [
        draw(st.sampled_from([upsert, delete]))(file(draw(st.integers(0, 20)), draw(SIZES)), position=80 + number)
        for number in range(draw(st.integers(0, 4)))
    ]
    arguments = Options(
        rows_per_compacted_file=draw(st.sampled_from([1, 4, 4_000_000])),
        rewrite_dead_fraction=draw(st.sampled_from([0.0, 0.3, 1.0])),
        purge=draw(st.booleans()),
    )
    left = [whole for whole in marked if whole.live_rows]
    plan = planned(left, deltas, options=arguments, owned=draw(st.booleans()))
    return plan, [draw(live_rows_of(plan, source)) for source in plan.sources]


def live_rows_of(plan: CompactionPlan, source: SourceFile) -> st.SearchStrategy[int]:
    if source.operation is OperationType.DELETE:
        return st.just(0)
    rows = source.file.live_rows
    return st.integers(0, rows) if plan.input.delta_rows else st.just(rows)


@given(plans_and_live_rows())
@settings(max_examples=examples(300), deadline=None)
def test_every_live_row_has_one_place_whatever_dies(drawn: tuple[CompactionPlan, list[int]]) -> None:
    plan, live = drawn
    outputs = plan_outputs(plan, np.array(live, np.int64))
    for decision, source, count in zip(outputs.decision.files, plan.sources, live, strict=True):
        assert (decision.action is DROP) == (count == 0)
        if decision.action is KEEP:
            assert count == source.file.live_rows
        if decision.action is MARK:
            assert source.in_base and count < source.file.live_rows
    staying = sum(live[source.ordinal] for source in (*outputs.kept, *outputs.marked))
    assert staying + outputs.rows_rewritten == sum(live)
    ends = [0, *(output.stop for output in outputs.outputs)]
    assert [output.first for output in outputs.outputs] == ends[:-1] and ends == sorted(set(ends))
    assert all(output.rows <= plan.options.rows_per_compacted_file for output in outputs.outputs)


@given(plans_and_live_rows())
@settings(max_examples=examples(300), deadline=None)
def test_a_forecast_holds_for_files_that_are_alone(drawn: tuple[CompactionPlan, list[int]]) -> None:
    """Merging depends on the other files; all else comes as it was said."""
    plan, live = drawn
    for expected, decision, source in zip(
        forecast(plan), decide_files(plan, np.array(live, np.int64)), plan.sources, strict=True
    ):
        if decision.action is DROP or FileReason.SMALL in (decision.reason, expected.unhurt.reason):
            continue
        unhurt = live[source.ordinal] == source.file.live_rows
        said = expected.unhurt if unhurt or expected.hurt is None else expected.hurt
        more_died = said.action is MARK and decision.action is REWRITE
        assert decision.action is said.action or more_died


def test_every_reason_has_words() -> None:
    assert FileReason.NO_ROW_DIED.words == "no row died"
    assert len({reason.words for reason in FileReason}) == len(FileReason)

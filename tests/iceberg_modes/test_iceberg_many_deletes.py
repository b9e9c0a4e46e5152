"""Thousands of data files x thousands of deletes: what is done grows with their sum, never with their product.

While a commit is attempted the head must stand still, so a check that takes minutes never ends beside live writers.
Calls are counted, not time: they are the same on every machine.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from calls import calls
from hand_made_tables import data, equality, positions, state
from plan_json import plan_to_json

from deltacompact.base.numbers import Ordinal
from deltacompact.iceberg.deletes.matching import DeleteIndex
from deltacompact.iceberg.differing import differing
from deltacompact.iceberg.live_rows import LiveReader
from deltacompact.iceberg_modes.convert.options import ConvertOptions
from deltacompact.iceberg_modes.convert.plan import plan_conversion
from deltacompact.iceberg_modes.convert.proposals import Converted, ProposeConversion
from deltacompact.iceberg_modes.expected import expected
from deltacompact.iceberg_modes.journal import resume
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.iceberg_modes.rewrite.plan import plan_rewrite
from deltacompact.iceberg_modes.rewrite.plan_document import plan_document, plan_from_json
from deltacompact.iceberg_modes.rewrite.proposals import ProposeRewrite, Rewritten
from deltacompact.iceberg_modes.upsert.comparing import ComparedFile
from deltacompact.iceberg_modes.upsert.options import Reach, UpsertOptions
from deltacompact.iceberg_modes.upsert.plan import plan_upsert
from deltacompact.iceberg_modes.upsert.validation import UpsertHead, compared_spaces
from deltacompact.maintenance.iceberg_health import health_of_branch
from deltacompact.planning.plan import Capacity

FILES, DELETES = 600, 400
CALLS_A_FILE = 120
"""Of Python and C functions, for each data file and each delete. There are 240 deletes for each data file."""
ID = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])


def by_key(number):
    return equality(f"e{number}", 10 + number, ids=(0, 10))


def by_position(number):
    return positions(f"p{number}", 10 + number, of=["d0", "d99"])


def table(*more, delete=by_key):
    """All deletes may apply to all data files."""
    files = [data(f"d{number}", 1 + number % 7, ids=(0, 10)) for number in range(FILES)]
    made = state(*files, *map(delete, range(DELETES)), *more)
    return replace(made, metadata=replace(made.metadata, schema=ID, schema_json='{"identifier-field-ids": [1]}'))


def head():
    """Others appended, and deleted by key."""
    later = [equality(f"later{number}", 1000 + number, ids=(0, 10)) for number in range(20)]
    return table(data("appended", 1001), *later)


def rewriting(plan):
    return ProposeRewrite(plan, [Rewritten(group, (), 0, 0) for group in plan.groups])


def rewrite_plan(before):
    options = {"rewrite-all": True, "max-file-group-input-files": 50}
    return plan_rewrite(before, rewrite_options(options, {}))


def within(count: int) -> bool:
    return count < CALLS_A_FILE * (FILES + DELETES)


def test_a_rewrite_of_many_files_with_many_deletes_can_be_committed_before_the_head_moves():
    attempt, now = rewriting(rewrite_plan(table())), head()
    assert within(calls(lambda: attempt(now)))
    assert not attempt(now).outcome.refused


def test_a_delete_that_is_gone_or_new_costs_no_more():
    attempt = rewriting(rewrite_plan(table()))
    now = table(positions("p", 1000, of=["d7"]))
    now = replace(now, deletes=tuple(entry for entry in now.deletes if entry.file.path != "e7"))
    assert within(calls(lambda: attempt(now)))
    assert len(attempt(now).outcome.refused) == FILES // 50


@pytest.mark.parametrize("settled", [0, FILES // 2, FILES])
def test_a_conversion_of_many_deletes_can_be_committed_before_the_head_moves(settled):
    plan, now = plan_conversion(table(), ConvertOptions()), head()
    attempt = ProposeConversion(plan.delete_paths, Converted(plan.inputs[:settled], ()))
    assert within(calls(lambda: attempt(now)))
    assert attempt(now).outcome.removed == (DELETES if settled == FILES else 0)


def test_a_delete_that_a_conversion_was_to_replace_and_that_is_gone_costs_no_more():
    plan, now = plan_conversion(table(), ConvertOptions()), table()
    now = replace(now, deletes=tuple(entry for entry in now.deletes if entry.file.path != f"e{DELETES - 1}"))
    attempt = ProposeConversion(plan.delete_paths, Converted(plan.inputs, ()))
    assert within(calls(lambda: attempt(now)))
    assert len(attempt(now).outcome.touched) == FILES


def test_many_deletes_by_position_of_one_partition_cost_no_more():
    before, now = table(delete=by_position), table(data("appended", 1001), delete=by_position)
    for plan in (rewrite_plan, lambda before: plan_upsert(before, UpsertOptions())):
        assert within(calls(lambda plan=plan: plan(before)))
    rewrite = rewriting(rewrite_plan(before))
    assert within(calls(lambda: rewrite(now)))
    assert not rewrite(now).outcome.refused
    plan = plan_conversion(table(by_key(DELETES), delete=by_position), ConvertOptions())
    conversion = ProposeConversion(plan.delete_paths, Converted(plan.inputs, ()))
    assert within(calls(lambda: conversion(now)))
    assert within(calls(lambda: plan_document(rewrite.plan)))
    assert within(calls(lambda: health_of_branch(before)))


def test_deletes_of_one_data_file_each_beside_those_of_many_cost_no_more():
    """With its own in one tuple with the others, each data file would have all of them by itself, in memory too."""
    own = [positions(f"own{number}", 500 + number, of=[f"d{number}"]) for number in range(100)]
    before, now = (table(*own, *more, delete=by_position) for more in ((), [data("appended", 1001)]))
    rewrite = rewriting(rewrite_plan(before))
    assert within(calls(lambda: rewrite(now)))
    assert not rewrite(now).outcome.refused
    upsert = plan_upsert(before, UpsertOptions())
    files = [ComparedFile(Ordinal(number), 8, 1, 1, True, None) for number in range(len(upsert.inputs))]
    (space,) = compared_spaces(upsert, files)
    assert within(calls(lambda: UpsertHead(now, upsert).problem_of(space)))
    assert UpsertHead(now, upsert).problem_of(space) is None
    plan = plan_conversion(table(by_key(DELETES), *own, delete=by_position), ConvertOptions())
    conversion = ProposeConversion(plan.delete_paths, Converted(plan.inputs, ()))
    assert within(calls(lambda: conversion(now)))
    assert within(calls(lambda: differing(before, now)))
    assert within(calls(lambda: plan_document(rewrite.plan)))
    assert plan_from_json(plan_to_json(rewrite.plan), before) == rewrite.plan
    assert within(calls(lambda: health_of_branch(before)))


@pytest.mark.parametrize("newer", [(), range(FILES)])
def test_rows_that_move_to_many_partitions_can_be_committed_before_the_head_moves(newer):
    files = [data(f"d{number}", 1 + number % 7, day=number, ids=(0, 10)) for number in range(FILES)]
    plan = plan_rewrite(state(*files), rewrite_options({"rewrite-all": True}, {}))
    inputs = tuple(source for group in plan.groups for source in group.inputs)
    group = replace(plan.groups[0], inputs=inputs)
    outputs = tuple(data(f"y{number}", 7, day=number).file for number in range(DELETES))
    attempt = ProposeRewrite(replace(plan, groups=(group,)), [Rewritten(group, outputs, 0, 0)])
    now = state(*files, *(equality(f"e{number}", 10, day=number, ids=(0, 10)) for number in newer), equality("all", 9))
    assert within(calls(lambda: attempt(now)))
    assert len(attempt(now).outcome.refused) == (1 if newer else 0)


def test_key_spaces_are_compared_with_files_that_came_back_once():
    before = state(*(data(f"d{number}", 1, day=number, ids=(0, 10)) for number in range(FILES)))
    before = replace(before, metadata=replace(before.metadata, schema=ID, schema_json='{"identifier-field-ids": [1]}'))
    plan = plan_upsert(before, UpsertOptions(reach=Reach.PARTITION))
    files = [ComparedFile(Ordinal(number), 8, 1, 1, True, 1) for number in range(len(plan.inputs))]
    old = [data(f"old{number}", 1, day=FILES + number) for number in range(DELETES)]
    head = UpsertHead(replace(before, data=(*before.data, *old)), plan)
    assert within(calls(lambda: [head.problem_of(space) for space in compared_spaces(plan, files)]))


def test_marks_are_looked_for_once():
    marked = table(delete=lambda number: positions(f"p{number}", 10 + number, of=["d30", "d300"]))
    names = frozenset(entry.file.path for entry in marked.deletes)
    assert within(calls(lambda: resume._marked(marked, names)))
    assert {identity.rpartition("/")[2] for identity in resume._marked(marked, names)} == {"d30", "d300"}


def test_deletes_that_files_share_are_checked_once_before_rows_are_read(monkeypatch):
    monkeypatch.setattr(LiveReader, "_bits", lambda self, asked: [None] * len(asked))
    before = table()
    index = DeleteIndex(before)
    tasks = [index.task(entry) for entry in before.data]
    assert within(calls(lambda: LiveReader(None, before.metadata).files(tasks)))
    plan, capacity = plan_conversion(before, ConvertOptions()), Capacity(1, 1, 1)
    assert within(calls(lambda: expected(plan, capacity)))


def test_an_upsert_beside_many_deletes_can_be_committed_before_the_head_moves():
    plan, now = plan_upsert(table(), UpsertOptions()), head()
    files = [ComparedFile(Ordinal(number), 8, 1, 1, True, None) for number in range(len(plan.inputs))]
    (space,) = compared_spaces(plan, files)
    assert within(calls(lambda: UpsertHead(now, plan).problem_of(space)))
    assert UpsertHead(now, plan).problem_of(space) is None


@pytest.mark.parametrize(
    "plan",
    [rewrite_plan, lambda before: plan_conversion(before, ConvertOptions()), lambda b: plan_upsert(b, UpsertOptions())],
)
def test_plans_grow_with_the_sum_too(plan):
    before = table()
    assert within(calls(lambda: plan(before)))


def test_documents_of_plans_grow_with_the_sum_too():
    before = table()
    plan = rewrite_plan(before)
    text = plan_to_json(plan)
    assert within(calls(lambda: plan_document(plan)) + calls(lambda: plan_from_json(text, before)))
    assert plan_from_json(text, before) == plan

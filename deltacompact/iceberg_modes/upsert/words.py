"""What plan and compact print of an upsert.

plan       compare 12 files with 1,000 rows by key id; operation op D; scope table
           12 files (2 came since, 10 may share keys), 3.9 KiB, 1,000 rows
           settled: 30 files, compared by an earlier upsert
compact    1,000 rows of 12 files = 700 keys + 280 superseded + 20 deleting rows
           marked in 9 files: 9 delete files, snapshot 8123
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltacompact.base.wording import counted, reasons_in_words, size
from deltacompact.iceberg_modes.words import group_lines, snapshots_of, whole_result

if TYPE_CHECKING:
    from deltacompact.iceberg_modes.upsert.plan import SpaceGroup, UpsertPlan
    from deltacompact.iceberg_modes.upsert.result import UpsertResult


def plan_lines(plan: UpsertPlan, groups_max: int | None) -> list[str]:
    lines = [f"compare {counted(len(plan.inputs), 'file')} with {counted(plan.rows, 'row')} by {plan.words}"]
    if len(plan.key_spaces) > 1:
        lines.append(f"in {counted(len(plan.key_spaces), 'partition')}, each by itself")
    lines += group_lines(plan.groups, _group_line, groups_max)
    if plan.settled_files:
        lines.append(f"settled: {counted(plan.settled_files, 'file')}, compared by an earlier upsert")
    return lines


def _group_line(group: SpaceGroup) -> str:
    where = "" if group.key_space is None else f"partition {group.key_space[1]}: "
    why = reasons_in_words(source.reason for source in group.inputs)
    return f"{where}{counted(len(group.inputs), 'file')} ({why}), {size(group.bytes)}, {counted(group.rows, 'row')}"


def result_lines(result: UpsertResult) -> list[str]:
    parts = f"{counted(result.keys, 'key')} + {result.rows_superseded:,} superseded + {result.rows_deleting:,} deleting"
    added = counted(result.delete_files_added, "delete file")
    lines = [
        f"{counted(result.rows_compared, 'row')} of {counted(result.files, 'file')} = {parts} rows",
        f"marked in {counted(result.files_marked, 'file')}: {added}, snapshot {snapshots_of(result)}",
    ]
    if result.delete_files_removed:
        lines.append(f"superseded: {counted(result.delete_files_removed, 'delete file')}")
    return whole_result(result, lines, "not marked")

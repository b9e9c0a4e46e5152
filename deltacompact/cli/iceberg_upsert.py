"""What plan and compact print of an upsert.

plan       compare 12 files with 1,000 rows by key id; operation op D; scope table
           settled: 30 files, compared by an earlier upsert
compact    1,000 rows of 12 files = 700 keys + 280 superseded + 20 deleting rows
           marked in 9 files: 9 delete files, snapshot 8123
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltacompact.base.wording import counted

if TYPE_CHECKING:
    from deltacompact.catalog.iceberg.upsert.plan import UpsertPlan
    from deltacompact.catalog.iceberg.upsert.upsert import UpsertResult


def plan_lines(plan: UpsertPlan) -> list[str]:
    if plan.nothing_to_do:
        return [f"nothing to do: {plan.nothing_to_do}"]
    lines = [f"compare {counted(len(plan.inputs), 'file')} with {counted(plan.rows, 'row')} by {plan.words}"]
    if len(plan.key_spaces) > 1:
        lines.append(f"in {counted(len(plan.key_spaces), 'partition')}, each by itself")
    if plan.settled_files:
        lines.append(f"settled: {counted(plan.settled_files, 'file')}, compared by an earlier upsert")
    return lines


def result_lines(result: UpsertResult) -> list[str]:
    if result.nothing_to_do:
        return [f"nothing to do: {result.nothing_to_do}", *result.notes]
    parts = f"{counted(result.keys, 'key')} + {result.rows_superseded:,} superseded + {result.rows_deleting:,} deleting"
    added = counted(result.delete_files_added, "delete file")
    snapshots = ", ".join(str(number) for number in result.snapshots)
    lines = [
        f"{counted(result.rows_compared, 'row')} of {counted(result.files, 'file')} = {parts} rows",
        f"marked in {counted(result.files_marked, 'file')}: {added}, snapshot {snapshots}",
    ]
    if result.delete_files_removed:
        lines.append(f"superseded: {counted(result.delete_files_removed, 'delete file')}")
    return [*lines, *result.notes, *(f"not marked: {line}" for line in result.refused)]

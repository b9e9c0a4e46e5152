"""What plan and compact print of a rewrite.

plan       240 files (240 too small), 937.5 KiB, 24,000 rows -> 20 files, in 20 groups
           partition (3,): 12 files (12 too small), 46.9 KiB, 1,200 rows -> 1 file
           clustered by day*3, customer
           stay: 3 files, right size
compact    12 files -> 1 file, 46.9 KiB -> 30.3 KiB, snapshot 8123
           1,200 rows = 1,150 live + 30 deleted by position + 20 deleted by key; 4 delete files removed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltacompact.base.wording import counted, reasons_in_words, size
from deltacompact.iceberg_modes.rewrite.options import Strategy
from deltacompact.iceberg_modes.words import group_lines, snapshots_of, stay_lines, whole_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltacompact.iceberg_modes.rewrite.plan import FileGroup, RewritePlan, RewriteTask
    from deltacompact.iceberg_modes.rewrite.result import RewriteResult


def plan_lines(plan: RewritePlan, groups_max: int | None) -> list[str]:
    total = []
    if len(plan.groups) > 1:
        files = sum(group.output_files for group in plan.groups)
        into = f"{counted(files, 'file')}, in {counted(len(plan.groups), 'group')}"
        total.append(f"{_read(plan.inputs, plan.bytes, plan.rows)} -> {into}")
    if plan.groups and plan.options.cluster_by:
        total.append(f"clustered by {', '.join(map(str, plan.options.cluster_by))}")
    if plan.groups and plan.options.strategy is Strategy.SORT:
        total.append(f"sorted by {plan.options.sort_order or 'the order of the table'}")
    return [*total, *group_lines(plan.groups, _group_line, groups_max), *stay_lines(plan.stays, "file")]


def _group_line(group: FileGroup) -> str:
    where = f"partition {group.partition}: " if group.partition else ""
    into = counted(group.output_files, "file")
    if group.partition is None:
        into += f" or more, divided by partition spec {group.spec_id}"
    return f"{where}{_read(group.inputs, group.bytes, group.rows)} -> {into}"


def _read(inputs: Sequence[RewriteTask], bytes_in: int, rows: int) -> str:
    why = reasons_in_words(source.reason for source in inputs)
    return f"{counted(len(inputs), 'file')} ({why}), {size(bytes_in)}, {counted(rows, 'row')}"


def result_lines(result: RewriteResult) -> list[str]:
    files = f"{counted(result.files_in, 'file')} -> {counted(result.files_out, 'file')}"
    dead = f"{result.dead_by_position:,} deleted by position + {result.dead_by_key:,} deleted by key"
    removed = counted(result.delete_files_removed, "delete file")
    lines = [
        f"{files}, {size(result.bytes_in)} -> {size(result.bytes_out)}, snapshot {snapshots_of(result)}",
        f"{counted(result.rows_in, 'row')} = {result.rows_out:,} live + {dead}; {removed} removed",
    ]
    if result.dead_meanwhile:
        lines.append(f"{counted(result.dead_meanwhile, 'row')} that others deleted meanwhile: marked in the new files")
    return whole_result(result, lines, "not rewritten")

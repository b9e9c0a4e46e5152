"""What plan and compact print of a rewrite.

plan       partition (3,): 12 files (12 too small), 48,000 bytes, 1,200 rows -> 1 file
           stay: 3 files, right size
compact    12 files -> 1 file, 48,000 -> 31,000 bytes, snapshot 8123
           1,200 rows = 1,150 live + 30 deleted by position + 20 deleted by key; 4 delete files removed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltacompact.base.wording import counted, reasons_in_words
from deltacompact.iceberg_modes.words import snapshots_of, stay_lines, whole_result

if TYPE_CHECKING:
    from deltacompact.iceberg_modes.rewrite.plan import RewritePlan
    from deltacompact.iceberg_modes.rewrite.result import RewriteResult


def plan_lines(plan: RewritePlan) -> list[str]:
    lines = []
    for group in plan.groups:
        why = reasons_in_words(source.reason for source in group.inputs)
        where = f"partition {group.partition}: " if group.partition else ""
        size = f"{group.bytes:,} bytes, {counted(group.rows, 'row')}"
        into = counted(group.output_files, "file")
        if group.partition is None:
            into += f" or more, divided by partition spec {group.spec_id}"
        lines.append(f"{where}{counted(len(group.inputs), 'file')} ({why}), {size} -> {into}")
    return [*lines, *stay_lines(plan.stays, "file")]


def result_lines(result: RewriteResult) -> list[str]:
    files = f"{counted(result.files_in, 'file')} -> {counted(result.files_out, 'file')}"
    dead = f"{result.dead_by_position:,} deleted by position + {result.dead_by_key:,} deleted by key"
    removed = counted(result.delete_files_removed, "delete file")
    lines = [
        f"{files}, {result.bytes_in:,} -> {result.bytes_out:,} bytes, snapshot {snapshots_of(result)}",
        f"{counted(result.rows_in, 'row')} = {result.rows_out:,} live + {dead}; {removed} removed",
    ]
    return whole_result(result, lines, "not rewritten")

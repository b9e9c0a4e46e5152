"""What plan and compact print of a rewrite.

plan       partition (3,): 12 files (12 too small), 48,000 bytes, 1,200 rows -> 1 file
           stay: 3 files, right size
compact    12 files -> 1 file, 48,000 -> 31,000 bytes, snapshot 8123
           1,200 rows = 1,150 live + 30 deleted by position + 20 deleted by key; 4 delete files removed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltacompact.base.wording import counted, reasons_in_words

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
    return [
        *lines,
        *(f"stay: {counted(count, 'file')}, {reason.value.replace('_', ' ')}" for reason, count in plan.stays),
    ]


def result_lines(result: RewriteResult) -> list[str]:
    if result.nothing_to_do:
        return [f"nothing to do: {result.nothing_to_do}", *result.notes]
    snapshots = ", ".join(str(number) for number in result.snapshots)
    files = f"{counted(result.files_in, 'file')} -> {counted(result.files_out, 'file')}"
    dead = f"{result.dead_by_position:,} deleted by position + {result.dead_by_key:,} deleted by key"
    removed = counted(result.delete_files_removed, "delete file")
    return [
        f"{files}, {result.bytes_in:,} -> {result.bytes_out:,} bytes, snapshot {snapshots}",
        f"{counted(result.rows_in, 'row')} = {result.rows_out:,} live + {dead}; {removed} removed",
        *([f"{counted(result.resumed, 'group')} written by an earlier run"] if result.resumed else []),
        *(f"not rewritten: {line}" for line in result.refused),
        *result.notes,
    ]

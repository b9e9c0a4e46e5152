"""What plan and compact print of a conversion.

plan       585 equality-delete files with 17 rows: may apply to 4 data files with 4,000,000 rows
           commit 1 of 2: 2 data files with 2,000,000 rows, 15.3 MiB of keys
           not opened: 42 data files
compact    585 equality-delete files -> 4 delete files with 17 rows, snapshot 8123
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltacompact.base.wording import counted, size
from deltacompact.iceberg_modes.words import group_lines, snapshots_of, stay_lines, whole_result

if TYPE_CHECKING:
    from deltacompact.iceberg_modes.convert.plan import AskedGroup, ConvertPlan
    from deltacompact.iceberg_modes.convert.result import ConvertResult

_DELETES = "equality-delete file"


def plan_lines(plan: ConvertPlan, groups_max: int | None) -> list[str]:
    applying = [conversion for conversion in plan.conversions if conversion.data_files]
    lines = []
    if applying:
        keys = counted(sum(conversion.entry.file.rows for conversion in applying), "row")
        rows = counted(sum(conversion.entry.file.rows for conversion in plan.inputs), "row")
        files = counted(len(plan.inputs), "data file")
        lines.append(f"{counted(len(applying), _DELETES)} with {keys}: may apply to {files} with {rows}")
    if useless := len(plan.conversions) - len(applying):
        lines.append(f"{counted(useless, _DELETES)}: no data file can have such keys")
    if plan.inputs and len(plan.groups) > 1:
        lines += group_lines(plan.groups, lambda group: _commit_line(group, len(plan.groups)), groups_max)
    if plan.not_opened:
        lines.append(f"not opened: {counted(plan.not_opened, 'data file')}")
    return [*lines, *stay_lines(plan.stays, _DELETES)]


def _commit_line(group: AskedGroup, commits: int) -> str:
    keys = f"{counted(group.rows, 'row')}, {size(group.bytes)} of keys"
    return f"commit {group.number + 1} of {commits}: {counted(len(group.inputs), 'data file')} with {keys}"


def result_lines(result: ConvertResult) -> list[str]:
    removed = counted(result.equality_deletes_removed, _DELETES)
    written = counted(result.delete_files_written, "delete file")
    files = counted(result.data_files_asked, "data file")
    lines = [
        f"{removed} -> {written} with {counted(result.rows_marked, 'row')}, snapshot {snapshots_of(result)}",
        f"keys of {files} with {counted(result.rows_asked, 'row')} were looked up",
    ]
    if result.delete_files_superseded:
        lines.append(f"superseded: {counted(result.delete_files_superseded, 'delete file')}")
    if result.equality_deletes_left:
        lines.append(f"stay: {counted(result.equality_deletes_left, _DELETES)}, other commits came meanwhile")
    return whole_result(result, lines, "not converted")

"""What plan and compact print of a conversion.

plan       585 equality-delete files with 17 rows: may apply to 4 data files with 4,000,000 rows
           not opened: 42 data files
compact    585 equality-delete files -> 4 delete files with 17 rows, snapshot 8123
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltacompact.base.wording import counted

if TYPE_CHECKING:
    from deltacompact.catalog.iceberg.convert.convert import ConvertResult
    from deltacompact.catalog.iceberg.convert.plan import ConvertPlan

_DELETES = "equality-delete file"


def plan_lines(plan: ConvertPlan) -> list[str]:
    if plan.nothing_to_do:
        return [f"nothing to do: {plan.nothing_to_do}"]
    applying = [conversion for conversion in plan.conversions if conversion.data_files]
    lines = []
    if applying:
        keys = counted(sum(conversion.entry.file.rows for conversion in applying), "row")
        rows = counted(sum(conversion.entry.file.rows for conversion in plan.asked), "row")
        files = counted(len(plan.asked), "data file")
        lines.append(f"{counted(len(applying), _DELETES)} with {keys}: may apply to {files} with {rows}")
    if useless := len(plan.conversions) - len(applying):
        lines.append(f"{counted(useless, _DELETES)}: no data file can have such keys")
    lines.append(f"not opened: {counted(plan.not_opened, 'data file')}")
    stay = [f"stay: {counted(count, _DELETES)}, {reason.value.replace('_', ' ')}" for reason, count in plan.stays]
    return [*lines, *stay]


def result_lines(result: ConvertResult) -> list[str]:
    if result.nothing_to_do:
        return [f"nothing to do: {result.nothing_to_do}"]
    snapshots = ", ".join(str(number) for number in result.snapshots) or "none"
    removed = counted(result.equality_deletes_removed, _DELETES)
    written = counted(result.delete_files_written, "delete file")
    how = "asked for" if result.notes else "read"  # a key index has most of them
    lines = [
        f"{removed} -> {written} with {counted(result.rows_marked, 'row')}, snapshot {snapshots}",
        f"keys of {counted(result.data_files_asked, 'data file')} with {counted(result.rows_asked, 'row')} were {how}",
    ]
    if result.delete_files_superseded:
        lines.append(f"superseded: {counted(result.delete_files_superseded, 'delete file')}")
    if result.equality_deletes_left:
        lines.append(f"stay: {counted(result.equality_deletes_left, _DELETES)}, other commits came meanwhile")
    return [*lines, *result.notes, *(f"not converted: {line}" for line in result.refused)]

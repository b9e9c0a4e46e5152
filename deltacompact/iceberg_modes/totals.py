"""Totals of a branch, before a plan is carried out and about afterwards: files, bytes, delete files. Pure.

before    12 data files, 48,000 bytes, 10 delete files
after      1 data file,  31,000 bytes,  0 delete files
"""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.base.wording import counted, size
from deltacompact.iceberg.table.table_state import TableState


@dataclass(frozen=True, slots=True)
class BranchTotals:
    """Of a branch. Delete files are of equality or of positions, or deletion vectors."""

    data_files: int
    data_bytes: int
    delete_files: int


def totals_of(state: TableState) -> BranchTotals:
    return BranchTotals(
        len(state.data), sum(entry.file.file_bytes for entry in state.data), len({e.file.key for e in state.deletes})
    )


def totals_line(before: BranchTotals, after: BranchTotals) -> str:
    """Files and bytes; and delete files, where there are any."""
    data = f"{counted(before.data_files, 'data file')} -> {after.data_files:,}"
    stored = f"{size(before.data_bytes)} -> about {size(after.data_bytes)}"
    deletes = f"{counted(before.delete_files, 'delete file')} -> about {after.delete_files:,}"
    return ", ".join([data, stored, *([deletes] if before.delete_files or after.delete_files else [])])

"""Totals of a branch, before a plan is carried out and about afterwards: files, bytes, delete files. Pure.

before    12 data files, 48,000 bytes, 10 delete files
after      1 data file,  31,000 bytes,  0 delete files
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deltacompact.base.wording import counted, size
from deltacompact.iceberg.deletes.matching import FileScanTask, each_delete
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


def totals_marked(state: TableState, asked: Sequence[FileScanTask], removed: int = 0) -> BranchTotals:
    """The most that the branch can have once dead rows of these data files are marked.

    Each file gets one mark, which replaces the marks that it has alone. `removed`: how many deletes by key go.
    """
    before = totals_of(state)
    deletes = each_delete(source.deletes for source in asked)
    superseded = {entry.file.key for entry in deletes if not entry.file.is_equality_delete}
    return replace(before, delete_files=max(0, before.delete_files - removed - len(superseded) + len(asked)))


def totals_line(before: BranchTotals, after: BranchTotals) -> str:
    """Files and bytes; and delete files, where there are any."""
    data = f"{counted(before.data_files, 'data file')} -> {after.data_files:,}"
    stored = f"{size(before.data_bytes)} -> about {size(after.data_bytes)}"
    deletes = f"{counted(before.delete_files, 'delete file')} -> about {after.delete_files:,}"
    return ", ".join([data, stored, *([deletes] if before.delete_files or after.delete_files else [])])

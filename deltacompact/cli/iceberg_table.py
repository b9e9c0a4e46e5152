"""show for a table of an Iceberg catalog: what a branch is made of.

db.orders: format version 2; branches and tags: main
branch main: snapshot 7757497569257380734, 2 manifests
  6 data files, 7,176 bytes, 6 rows
  3 delete files: 2 of equality, 1 of positions; 0 deletion vectors; 20 rows in all of them
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltacompact.base.wording import counted

if TYPE_CHECKING:
    from deltacompact.iceberg.table.table_state import TableState


@dataclass(frozen=True, slots=True)
class BranchContents:
    """Counts of a branch. `delete_rows`: rows of delete files; an equality delete is one, whatever it deletes."""

    table_id: str
    format_version: int
    branches_and_tags: tuple[str, ...]
    branch: str
    snapshot_id: int | None
    manifests: int
    data_files: int
    data_bytes: int
    data_rows: int
    equality_delete_files: int
    position_delete_files: int
    deletion_vectors: int
    delete_rows: int


def branch_contents(state: TableState) -> BranchContents:
    from deltacompact.iceberg.table.content_files import Content

    data, deletes = [entry.file for entry in state.data], [entry.file for entry in state.deletes]
    equality = sum(file.content is Content.EQUALITY_DELETES for file in deletes)
    vectors = sum(file.is_deletion_vector for file in deletes)
    return BranchContents(
        state.metadata.table_id,
        state.metadata.format_version,
        tuple(sorted(state.metadata.refs)),
        state.branch,
        state.snapshot_id,
        len(state.manifests),
        len(data),
        sum(file.file_bytes for file in data),
        sum(file.rows for file in data),
        equality,
        len(deletes) - equality - vectors,
        vectors,
        sum(file.rows for file in deletes),
    )


def lines(found: BranchContents) -> list[str]:
    delete_files = found.equality_delete_files + found.position_delete_files
    kinds = f"{found.equality_delete_files:,} of equality, {found.position_delete_files:,} of positions"
    marks = f"{counted(found.deletion_vectors, 'deletion vector')}; {counted(found.delete_rows, 'row')} in all of them"
    return [
        f"{found.table_id}: format version {found.format_version}; "
        f"branches and tags: {', '.join(found.branches_and_tags) or 'none'}",
        f"branch {found.branch}: snapshot {found.snapshot_id or 'none'}, {counted(found.manifests, 'manifest')}",
        f"  {counted(found.data_files, 'data file')}, {found.data_bytes:,} bytes, {counted(found.data_rows, 'row')}",
        f"  {counted(delete_files, 'delete file')}: {kinds}; {marks}",
    ]

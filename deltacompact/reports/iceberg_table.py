"""show for a table of an Iceberg catalog: what a branch is made of, its snapshots, its files. What compact changed.

db.orders: format version 2; branches and tags: main
branch main: snapshot 7757497569257380734, 2 manifests
  6 data files, 7.0 KiB, 6 rows
  3 delete files with 20 rows: 2 of equality, 1 of positions; compact --mode convert replaces those of equality
  last compaction 2026-11-22 00:56 UTC; last commit 2026-11-22 01:10 UTC
  a compaction would take 0.4 s with start-up on 2 slots, 0.1 core-seconds
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltacompact.base.errors import DeltaCompactError, InputError
from deltacompact.base.notebooks import html_table
from deltacompact.base.wording import counted, error_document, size
from deltacompact.reports.words import depth_lines, minute, moment

if TYPE_CHECKING:
    from deltacompact.base.expected import Expected
    from deltacompact.iceberg.table.content_files import ManifestEntry
    from deltacompact.iceberg.table.table_state import TableState


@dataclass(frozen=True, slots=True)
class BranchContents:
    """Counts of a branch. `delete_rows`: rows of delete files; an equality delete is one, whatever it deletes.

    `depth`: by column by which the table is clustered, how many files hold a value on average.
    """

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
    committed_s: float | None = None
    compacted_s: float | None = None
    depth: Mapping[str, float] = field(default_factory=dict)


def branch_contents(state: TableState) -> BranchContents:
    from deltacompact.iceberg_modes.compacted import compacted_s

    data, deletes = [entry.file for entry in state.data], [entry.file for entry in state.deletes]
    equality = sum(file.is_equality_delete for file in deletes)
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
        state.snapshot.timestamp_ms / 1000 if state.snapshot else None,
        compacted_s(state.metadata, state.snapshot),
        _depth(state),
    )


def _depth(state: TableState) -> dict[str, float]:
    """How many files hold a value of the columns by which the table is clustered, on average; nothing without any."""
    from deltacompact.iceberg.boxes import boxes_of_files
    from deltacompact.iceberg_modes.rewrite.options import CLUSTER_PROPERTY
    from deltacompact.layout.cluster_by import cluster_columns
    from deltacompact.layout.depth import mean_depths

    try:
        by = cluster_columns(CLUSTER_PROPERTY, state.metadata.properties.get(CLUSTER_PROPERTY, ""))
        return mean_depths(boxes_of_files(state.metadata, state.data, [column.name for column in by]))
    except InputError:  # a rewrite says what is wrong with the property
        return {}


def lines(found: BranchContents) -> list[str]:
    return [
        f"{found.table_id}: format version {found.format_version}; "
        f"branches and tags: {', '.join(found.branches_and_tags) or 'none'}",
        f"branch {found.branch}: snapshot {found.snapshot_id or 'none'}, {counted(found.manifests, 'manifest')}",
        f"  {counted(found.data_files, 'data file')}, {size(found.data_bytes)}, {counted(found.data_rows, 'row')}",
        f"  {_deletes(found)}",
        *(f"  {line}" for line in depth_lines(found.depth)),
        f"  last compaction {_moment(found.compacted_s)}; last commit {_moment(found.committed_s)}",
    ]


def expected(
    foreseen: Callable[[], tuple[Expected, str | None]], usd_per_core_hour: float | None = None
) -> tuple[dict[str, Any], str]:
    """What a rewrite is expected to take, or why there is none; as JSON values and in words."""
    try:
        found, why = foreseen()
    except DeltaCompactError as error:  # such as a publication, or a format of which nothing is written
        return {"error": error_document(error)}, f"  a compaction cannot be planned: {error}"
    said = f"has nothing to do: {why}" if why else f"would take {found.words(usd_per_core_hour)}"
    return found.document(usd_per_core_hour), f"  a compaction {said}"


def _deletes(found: BranchContents) -> str:
    kinds = {
        "of equality": found.equality_delete_files,
        "of positions": found.position_delete_files,
        "deletion vectors": found.deletion_vectors,
    }
    if not any(kinds.values()):
        return "no delete files"
    there = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
    # A rewrite, of which the next line tells, may have nothing to do: files do not go for these deletes alone.
    instead = "; compact --mode convert replaces those of equality" if found.equality_delete_files else ""
    return f"{counted(sum(kinds.values()), 'delete file')} with {counted(found.delete_rows, 'row')}: {there}{instead}"


def contents_as_html(found: BranchContents) -> str:
    """A branch in the columns in which `show` lists tables: for notebooks."""
    deletes = found.equality_delete_files + found.position_delete_files + found.deletion_vectors
    head = ("data files", "rows", "bytes", "delete files", "committed (UTC)", "compacted (UTC)", "branch")
    counts = (f"{found.data_files:,}", f"{found.data_rows:,}", size(found.data_bytes), f"{deletes:,}")
    times = ("-" if seconds is None else minute(seconds) for seconds in (found.committed_s, found.compacted_s))
    return html_table(
        f"{found.table_id}: format version {found.format_version}", head, [(*counts, *times, found.branch)]
    )


def _moment(seconds: float | None) -> str:
    return "none" if seconds is None else moment(seconds)


SNAPSHOTS_SHOWN = 20
_FACTS = {
    "added-data-files": ("data file added", "data files added"),
    "deleted-data-files": ("data file removed", "data files removed"),
    "added-delete-files": ("delete file added", "delete files added"),
    "removed-delete-files": ("delete file removed", "delete files removed"),
    "total-records": ("row in all", "rows in all"),
}
"""What is shown of a snapshot's summary, if its writer has said it."""


def snapshots(state: TableState) -> list[dict[str, Any]]:
    """The snapshots of a branch, the newest first, as far as they have not been expired."""
    refs = state.metadata.refs
    return [
        {
            "snapshot_id": snapshot.snapshot_id,
            "committed_s": snapshot.timestamp_ms / 1000,
            "sequence_number": snapshot.sequence_number,
            "operation": snapshot.summary.get("operation"),
            "by_deltacompact": snapshot.is_ours,
            "refs": sorted(name for name, ref in refs.items() if ref.snapshot_id == snapshot.snapshot_id),
            "summary": dict(snapshot.summary),
        }
        for snapshot in state.metadata.ancestors(state.snapshot)
    ]


def snapshot_lines(shown: Sequence[dict[str, Any]], count: int) -> list[str]:
    """A line for each of them, and how many older ones there are."""
    if not shown:
        return ["no snapshots: nothing was committed yet"]
    more = [f"and {counted(count - len(shown), 'older snapshot')}: --verbose prints all"] if len(shown) < count else []
    return [*map(_snapshot_line, shown), *more]


def _snapshot_line(snapshot: dict[str, Any]) -> str:
    summary = snapshot["summary"]
    facts = ", ".join(
        counted(int(summary[name]), *words) for name, words in _FACTS.items() if summary.get(name, "").isdecimal()
    )
    ours = ", by deltacompact" if snapshot["by_deltacompact"] else ""
    refs = f" ({', '.join(snapshot['refs'])})" if snapshot["refs"] else ""
    operation = snapshot["operation"] or "unknown operation"
    return (
        f"{snapshot['snapshot_id']}  {moment(snapshot['committed_s'])}  {operation}{ours}{refs}: {facts or 'no counts'}"
    )


def files(state: TableState) -> list[dict[str, Any]]:
    """The live files of a branch. `deletes`: how many delete files may apply to a data file."""
    from deltacompact.iceberg.deletes.matching import DeleteIndex

    index = DeleteIndex(state)
    data = [{**_file(entry), "deletes": len(index.applying_to(entry))} for entry in state.data]
    return data + [_file(entry) for entry in state.deletes]


def _file(entry: ManifestEntry) -> dict[str, Any]:
    file = entry.file
    kind = "deletion vector" if file.is_deletion_vector else file.content.name.lower().replace("_", " ")
    return {
        "path": file.path,
        "content": kind,
        "rows": file.rows,
        "bytes": file.file_bytes,
        "sequence_number": entry.sequence,
        "partition": str(file.partition) if file.partition else None,
    }


def changed_files(entries: Iterable[ManifestEntry]) -> list[dict[str, Any]]:
    """What snapshots added and removed. `of`: the data file that a deletion vector or position-delete file is about."""
    return [
        {
            "change": "removed" if entry.status.name == "DELETED" else "added",
            **_file(entry),
            "of": entry.file.referenced_data_file,
        }
        for entry in entries
    ]


def changed_lines(files: Iterable[dict[str, Any]]) -> list[str]:
    return [
        f"  {file['change']} {file['content']} {file['path']}  {counted(file['rows'], 'row')}, {size(file['bytes'])}"
        + (f", of {file['of']}" if file["of"] else "")
        for file in files
    ]


def file_lines(files: Iterable[dict[str, Any]]) -> list[str]:
    return [
        f"  {file['content']} {file['path']}  {counted(file['rows'], 'row')}, {size(file['bytes'])}"
        + (f", {counted(file['deletes'], 'delete file')} may apply" if file.get("deletes") else "")
        for file in files
    ]

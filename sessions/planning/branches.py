"""Statistics of a branch of an Iceberg table, from its manifests: no data file is opened.

rewrite    the plan of the rewrite: files that are written anew, and the deletes that apply to them
convert    data files that an equality delete may hit: their keys are read, nothing of them is written
upsert     every data file: the same
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltacompact.base.model import INT64_MAX
from deltacompact.base.modes import CONVERT, REWRITE
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.iceberg.deletes.matching import DeleteIndex, Deletes
from deltacompact.iceberg.table.content_files import Content, ContentFile, Entry
from deltacompact.iceberg_modes.rewrite.plan import Reason
from sessions.documents.instruction import Instruction
from sessions.documents.streams import branch_of
from sessions.planning.statistics import BranchStatistics

_DECODED = 3
"""Decoded bytes of a stored one, about: a column of text takes more, one of dictionary codes less."""


def branch_statistics(catalog: IcebergCatalog, asked: Instruction) -> BranchStatistics:
    """What a job run on a branch would read and write. Raises NotFoundError, InputError and CorruptionError."""
    table, branch, mode = asked.source_table_id, asked.branch, asked.chosen_mode
    if mode == REWRITE:
        inputs = [source for group in catalog.plan(table, asked.options, branch).groups for source in group.inputs]
        small = sum(source.reason is Reason.TOO_SMALL for source in inputs)
        return _statistics(asked, [(source.entry, source.deletes) for source in inputs], small)
    state = catalog.state(table, branch)
    index = DeleteIndex(state)
    found = [(entry, index.applying_to(entry)) for entry in state.data]
    if mode == CONVERT:
        found = [(entry, deletes) for entry, deletes in found if deletes.equality]
    return _statistics(asked, found)


def _statistics(asked: Instruction, inputs: Sequence[tuple[Entry, Deletes]], small: int = 0) -> BranchStatistics:
    rewrites = asked.chosen_mode == REWRITE
    data = [entry.file for entry, _ in inputs]
    deletes = _distinct(entry.file for _, of_file in inputs for entry in of_file.all)
    are_hashed = [bool(of_file.equality) or not rewrites for _, of_file in inputs]
    hashed = [file.rows if is_hashed else 0 for file, is_hashed in zip(data, are_hashed, strict=True)]
    written = data if rewrites else []
    return BranchStatistics(
        table_id=asked.source_table_id,
        partition=branch_of({"branch": asked.branch}),
        delta_file_rows=(*(file.rows for file in deletes), *hashed),
        delta_bytes=sum(file.file_bytes for file in deletes),
        base_small_files=small,
        base_rows=sum(file.rows for file in written),
        base_bytes=sum(file.file_bytes for file in written),
        read_bytes=max((_row_group_bytes(file) for file in data), default=0),
        compacted_by=asked.chosen_mode,
        delete_files=len(deletes),
        key_rows=sum(file.rows for file in deletes if file.content is Content.EQUALITY_DELETES),
    )


def _distinct(files: Iterable[ContentFile]) -> list[ContentFile]:
    """Many data files share a delete file."""
    return list({file.key: file for file in files}.values())


def _row_group_bytes(file: ContentFile) -> int:
    """The decoded bytes of the largest row group. The offsets of row groups say where each begins."""
    ends = [*file.split_offsets[1:], file.file_bytes]
    largest = max((end - begin for begin, end in zip(file.split_offsets, ends, strict=False)), default=file.file_bytes)
    return min(INT64_MAX, _DECODED * max(0, largest))

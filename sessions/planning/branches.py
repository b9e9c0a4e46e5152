"""Statistics of a branch of an Iceberg table, from its manifests: no data file is opened.

rewrite    the files that the rewrite's plan rewrites, and the deletes that apply to them
convert    data files that an equality delete may hit: their keys are read, their rows are not written
upsert     every data file: its keys are read, its rows are not written
"""

from __future__ import annotations

from collections.abc import Iterable

from deltacompact.base.model import INT64_MAX
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.iceberg.deletes.matching import each_delete
from deltacompact.iceberg.table.content_files import Content, ContentFile
from deltacompact.iceberg_modes.modes import mode_named
from sessions.documents.instruction import Instruction
from sessions.documents.streams import branch_of
from sessions.planning.statistics import BranchStatistics

_DECODED = 3
"""About the decoded bytes of one stored byte: text columns have more, dictionary-encoded ones fewer."""


def branch_statistics(catalog: IcebergCatalog, asked: Instruction) -> BranchStatistics:
    """The input and output of a job run on a branch. Raises NotFoundError, InputError and CorruptionError."""
    table, branch, mode = asked.source_table_id, asked.branch, mode_named(asked.mode)
    reads = mode.steps().reads(
        lambda: catalog.planned(mode, table, asked.options, branch), lambda: catalog.state(table, branch)
    )
    data = [source.entry.file for source in reads.inputs]
    deletes = _distinct(entry.file for entry in each_delete(source.deletes for source in reads.inputs))
    are_hashed = [bool(source.deletes.equality) or not reads.writes_inputs for source in reads.inputs]
    hashed = [file.rows if is_hashed else 0 for file, is_hashed in zip(data, are_hashed, strict=True)]
    written = data if reads.writes_inputs else []
    return BranchStatistics(
        table_id=asked.source_table_id,
        partition=branch_of({"branch": asked.branch}),
        delta_file_rows=(*(file.rows for file in deletes), *hashed),
        delta_bytes=sum(file.content_bytes for file in deletes),
        base_small_files=reads.small,
        base_rows=sum(file.rows for file in written),
        base_bytes=sum(file.file_bytes for file in written),
        read_bytes=max((_row_group_bytes(file) for file in data), default=0),
        compacted_by=asked.chosen_mode,
        delete_files=len(deletes),
        key_rows=sum(file.rows for file in deletes if file.content is Content.EQUALITY_DELETES),
    )


def _distinct(files: Iterable[ContentFile]) -> list[ContentFile]:
    """Each file once: many data files share a delete file."""
    return list({file.key: file for file in files}.values())


def _row_group_bytes(file: ContentFile) -> int:
    """About the decoded bytes of the largest row group, by the offsets at which row groups begin."""
    ends = [*file.split_offsets[1:], file.file_bytes]
    largest = max((end - begin for begin, end in zip(file.split_offsets, ends, strict=False)), default=file.file_bytes)
    return min(INT64_MAX, _DECODED * max(0, largest))

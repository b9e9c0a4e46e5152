"""Chooses the files of a rewrite: why each data file is a candidate, or stays. Pure.

file    bytes    deletes       target 512 MB, minimum 384 MB
a       4 MB     -             too small
b       500 MB   -             stays: its size is right
c       500 MB   3 vectors     a third of its rows is deleted
d       500 MB   -             overlaps others by its ranges of values
e       4 MB     -             stays: another session is rewriting it
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from deltacompact.iceberg.deletes.matching import DeleteIndex, Deletes, FileScanTask
from deltacompact.iceberg.settled import compared_through
from deltacompact.iceberg.table.content_files import ContentFile, ManifestEntry
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.rewrite.options import RewriteOptions


class RewriteReason(enum.StrEnum):
    """Why a data file is a candidate, or stays. Plans and results contain it, so a value must keep its meaning."""

    TOO_SMALL = "too_small"
    TOO_LARGE = "too_large"
    MANY_DELETE_FILES = "many_delete_files"
    MANY_ROWS_DELETED = "many_rows_deleted"
    REWRITE_ALL = "rewrite_all"
    OVERLAPS = "overlaps"
    RIGHT_SIZE = "right_size"
    GROUP_TOO_SMALL = "group_too_small"
    BEYOND_MAX_FILES = "beyond_max_files"
    BEING_REWRITTEN = "being_rewritten"
    INFREQUENT_STORAGE = "infrequent_or_archive_storage"
    NOT_WANTED = "not_wanted"
    NOT_COMPARED = "not_compared"
    OVERLAPS_WAITS = "overlaps_but_waits"


ALONE = frozenset(
    {
        RewriteReason.MANY_DELETE_FILES,
        RewriteReason.MANY_ROWS_DELETED,
        RewriteReason.REWRITE_ALL,
        RewriteReason.OVERLAPS,
    }
)
"""A file with one of these is worth rewriting by itself."""
_BY_LAYOUT = frozenset({RewriteReason.TOO_SMALL, RewriteReason.TOO_LARGE, RewriteReason.OVERLAPS})
"""Reasons that only cost readers time: without them, rows are read the same."""
_REWRITTEN = ALONE | _BY_LAYOUT
"""A file with any other reason stays."""


@dataclass(frozen=True, slots=True)
class RewriteTask(FileScanTask):
    """A data file to rewrite, and why it was chosen."""

    reason: RewriteReason


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is known of data files besides their sizes and deletes, by path.

    only          others are not planned, these whatever their size: a group to be done again. None: all are
    busy          another session is rewriting them
    wanted        whether a file may have a row that is asked for; the others stay
    overlapping   they are rewritten whatever their size (laid_out.py)
    waiting       they overlap, but are left to later runs
    cold          they are not rewritten for size or overlap
    laid_out      a layout wrote them, so they are not too small, except for those of `merged`
    merged        files with one number make a group of their own, if they may be rewritten
    """

    only: frozenset[str] | None = None
    busy: frozenset[str] = frozenset()
    wanted: Callable[[ContentFile], bool] = lambda file: True
    overlapping: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    cold: frozenset[str] = frozenset()
    laid_out: frozenset[str] = frozenset()
    merged: Mapping[str, int] = field(default_factory=dict, hash=False)


NO_FACTS = FileFacts()


def candidates(
    state: TableState, options: RewriteOptions, facts: FileFacts
) -> tuple[list[RewriteTask], Counter[RewriteReason]]:
    """The files that may be rewritten, in the order of the branch, and how many others stay for which reason."""
    index, through = DeleteIndex(state), compared_through(state)
    tasks, stays = list[RewriteTask](), Counter[RewriteReason]()
    for entry in state.data:
        if facts.only is not None and entry.file.path not in facts.only:
            continue
        if (why := _left_alone(entry, options, facts, through)) is not None:
            stays[why] += 1
            continue
        deletes = index.applying_to(entry)
        reason = _reason(entry, deletes, options, facts)
        if reason in _REWRITTEN:
            tasks.append(RewriteTask(entry, deletes, reason))
        else:
            stays[reason] += 1
    return tasks, stays


def may_be_laid_out(state: TableState, options: RewriteOptions, facts: FileFacts) -> list[bool]:
    """For each data file, whether its rows may get another order. The others stay, whatever they overlap."""
    through = compared_through(state)
    return [
        entry.file.path not in facts.cold and _left_alone(entry, options, facts, through) is None
        for entry in state.data
    ]


def _left_alone(
    entry: ManifestEntry, options: RewriteOptions, facts: FileFacts, through: int | None
) -> RewriteReason | None:
    """Why a file stays whatever its size and deletes are; None: they decide."""
    if entry.file.path in facts.busy:
        return RewriteReason.BEING_REWRITTEN
    if may_not_be_merged(entry, options, through):
        return RewriteReason.NOT_COMPARED
    return None if facts.wanted(entry.file) else RewriteReason.NOT_WANTED


def _reason(entry: ManifestEntry, deletes: Deletes, options: RewriteOptions, facts: FileFacts) -> RewriteReason:
    """Why a file is rewritten, or why it stays."""
    overlaps = entry.file.path in facts.overlapping
    if facts.only is not None:  # one that overlaps keeps that reason, so that its bytes count for the layout as before
        return RewriteReason.OVERLAPS if overlaps else RewriteReason.REWRITE_ALL
    lies_well = entry.file.path in facts.laid_out and entry.file.path not in facts.merged
    reason = _by_deletes_and_size(entry, deletes, options, overlaps)
    if lies_well and reason is RewriteReason.TOO_SMALL:
        is_tiny = entry.file.file_bytes < options.laid_out_file_bytes_min
        reason = RewriteReason.GROUP_TOO_SMALL if is_tiny else RewriteReason.RIGHT_SIZE
    if entry.file.path in facts.cold and reason in _BY_LAYOUT:
        return RewriteReason.INFREQUENT_STORAGE
    if entry.file.path in facts.waiting and reason in (RewriteReason.RIGHT_SIZE, RewriteReason.GROUP_TOO_SMALL):
        return RewriteReason.OVERLAPS_WAITS
    return reason


def _by_deletes_and_size(
    entry: ManifestEntry, deletes: Deletes, options: RewriteOptions, overlaps: bool
) -> RewriteReason:
    if options.rewrite_all:
        return RewriteReason.REWRITE_ALL
    if options.delete_file_threshold is not None and len(deletes) >= options.delete_file_threshold:
        return RewriteReason.MANY_DELETE_FILES
    if deleted_share(entry, deletes) >= options.delete_ratio_threshold:
        return RewriteReason.MANY_ROWS_DELETED
    if overlaps:
        return RewriteReason.OVERLAPS
    if entry.file.file_bytes < options.min_file_bytes:
        return RewriteReason.TOO_SMALL
    return RewriteReason.TOO_LARGE if entry.file.file_bytes > options.max_file_bytes else RewriteReason.RIGHT_SIZE


def may_not_be_merged(entry: ManifestEntry, options: RewriteOptions, through: int | None) -> bool:
    """Whether merging the file with others would lose which of its rows are the newest.

    `through`: rows up to this number have been compared by an upsert. None: nobody upserts the table. In version 3 each
    row keeps the number of its own commit.
    """
    is_known = options.merge_uncompared or through is None or entry.file.first_row_id is not None
    return not is_known and entry.sequence > (through or 0)


def deleted_share(entry: ManifestEntry, deletes: Deletes) -> float:
    """The share of rows that deletes by position of this file alone remove. Other deletes do not tell how many rows
    of it they hit."""
    known = sum(delete.file.rows for delete in deletes.alone)
    return min(known, entry.file.rows) / entry.file.rows if entry.file.rows else 0.0

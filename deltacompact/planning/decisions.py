"""Decides what happens to each file of a session, and why: one decision for each source, once its live rows are known.

    source                    rows   live    decision
    base 14                      4      4    keep      no row died
    base 15                  4,000  3,999    mark      few rows died           (rewrite_dead_fraction 0.1)
    base 16                      4      0    drop      all rows dead
    delta 80, file 0, JSON       6      5    rewrite   other format
    delta 90, file 0, delete     2           drop      deletes

Before the fold nobody knows which rows die. `forecast` then decides twice with the same functions: as if every row of a
file lived, and as if one row died.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact.base.data_file import LayoutAccount
from deltacompact.base.model import OperationType
from deltacompact.base.numbers import Ordinal
from deltacompact.planning.overlapping import WrittenRanges, overlapping_files
from deltacompact.planning.plan import CompactionPlan, SourceFile
from deltacompact.planning.sizing import file_sizes


class FileAction(enum.StrEnum):
    """What a session does with a file."""

    KEEP = "keep"
    """Keep it unchanged, by reference."""
    MARK = "mark"
    """Keep it, with a deletion vector."""
    REWRITE = "rewrite"
    """Write its live rows into new files."""
    DROP = "drop"
    """Stop referring to it: it has no live rows."""


STAYS = frozenset({FileAction.KEEP, FileAction.MARK})


class FileReason(enum.StrEnum):
    """The reason for an action. Records and events contain it, so a value must keep its meaning."""

    NO_ROW_DIED = "no_row_died"
    FEW_ROWS_DIED = "few_rows_died"
    ROWS_DIED = "rows_died"
    ALL_ROWS_DEAD = "all_rows_dead"
    NO_ROWS = "no_rows"
    DELETES = "deletes"
    SMALL = "small"
    LARGE_AND_WHOLE = "large_and_whole"
    TOO_LARGE = "too_large"
    OTHER_FORMAT = "other_format"
    OTHER_CODEC = "other_codec"
    OTHER_SCHEMA = "other_schema"
    NOT_DECODED = "not_decoded"
    NOT_OWNED = "not_owned"
    NOT_CLUSTERED = "not_clustered"
    OVERLAPS = "overlaps"
    OVERLAPS_WAITS = "overlaps_but_waits"
    PURGE = "purge"

    @property
    def words(self) -> str:
        return _WORDS.get(self) or self.replace("_", " ")


_WORDS = {
    FileReason.FEW_ROWS_DIED: "few rows died, deletion vector",
    FileReason.DELETES: "keys deleted",
    FileReason.SMALL: "small, merged",
    FileReason.LARGE_AND_WHOLE: "large delta file, no row died",
    FileReason.TOO_LARGE: "larger than a compacted file",
    FileReason.OTHER_CODEC: "compression is set",
    FileReason.NOT_DECODED: "not known to decode",
    FileReason.NOT_OWNED: "not owned by the table",
    FileReason.OVERLAPS: "overlaps others in the columns to cluster by",
    FileReason.OVERLAPS_WAITS: "overlaps, and waits: write_amplification_max allows no more until rows come",
    FileReason.PURGE: "purge of dead rows",
}


@dataclass(frozen=True, slots=True)
class FileDecision:
    """The action for the source with this ordinal, and the reason."""

    ordinal: Ordinal
    action: FileAction
    reason: FileReason

    def to_json(self) -> list[Any]:
        return [self.ordinal, self.action.value, self.reason.value]

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> FileDecision:
        """Raises TypeError or ValueError for anything that is not a decision."""
        ordinal, action, reason = values
        return cls(Ordinal(int(ordinal)), FileAction(action), FileReason(reason))


@dataclass(frozen=True, slots=True)
class DecidedFile:
    """A decision with the path of its file, for those who do not have the plan."""

    path: str
    action: FileAction
    reason: FileReason


@dataclass(frozen=True, slots=True)
class FileForecast:
    """The decision if no row of the file dies, and the decision if one does (None: it is the same)."""

    unhurt: FileDecision
    hurt: FileDecision | None


def decide_files(
    plan: CompactionPlan, live: npt.NDArray[np.int64], written: WrittenRanges | None = None
) -> tuple[FileDecision, ...]:
    """A decision for each source, in fold order. `live`, by ordinal: the rows that live after the last round.

    `written`, if rows are laid out: the ranges of the rows that are written in any case. Files that overlap these, or
    each other, are rewritten, too. None: overlaps do not matter.
    """
    alone = [_alone(plan, source, int(live[source.ordinal])) for source in plan.sources]
    decided = _with_small_merged(plan, live, alone)
    return decided if written is None or not plan.clusters else _with_overlapping(plan, live, decided, written)


def _with_overlapping(
    plan: CompactionPlan, live: npt.NDArray[np.int64], decided: Sequence[FileDecision], written: WrittenRanges
) -> tuple[FileDecision, ...]:
    """The decisions, where files that would stay but overlap others are rewritten."""
    stay = [decision.ordinal for decision in decided if decision.action in STAYS]
    rewritten = [plan.sources[decision.ordinal] for decision in decided if decision.action is FileAction.REWRITE]
    new = [(written.get(source.ordinal, {}), int(live[source.ordinal])) for source in rewritten]
    files = [plan.as_compacted(plan.sources[ordinal], written.get(ordinal, {})) for ordinal in stay]
    bound = plan.layout_bound
    choice = overlapping_files(files, plan.cluster_by, plan.stored_schema, new, bound, plan.input.cold)
    places = np.array(stay, np.int64)
    overlap, waits = set(places[choice.chosen].tolist()), set(places[choice.waits].tolist())

    def with_overlap(decision: FileDecision) -> FileDecision:
        if decision.ordinal in overlap:
            return FileDecision(decision.ordinal, FileAction.REWRITE, FileReason.OVERLAPS)
        return replace(decision, reason=FileReason.OVERLAPS_WAITS) if decision.ordinal in waits else decision

    return tuple(map(with_overlap, decided))


def account_after(
    plan: CompactionPlan, files: Iterable[FileDecision], live: npt.NDArray[np.int64], is_laid_out: bool
) -> LayoutAccount | None:
    """The account of the session's version: the rows that have come, and the rows that layouts have rewritten.

    None: neither this session nor an earlier one lays rows out. It lays out the new rows that it writes, and base files
    that overlap. If all rows kept their order, only the latter count: they were written for the layout's sake.
    """
    known = plan.layout_bound.account
    if known is None and not plan.clusters:
        return None
    new, laid_out = 0, 0
    for file in files:
        rows, is_new = int(live[file.ordinal]), not plan.sources[file.ordinal].in_base
        new += rows if is_new else 0
        is_for_layout = (is_new and is_laid_out) or file.reason is FileReason.OVERLAPS
        laid_out += rows if file.action is FileAction.REWRITE and is_for_layout else 0
    came, rewritten = (int(live.sum()), 0) if known is None else (known.came + new, known.rewritten)
    return LayoutAccount(came, rewritten + laid_out)


def forecast(plan: CompactionPlan) -> tuple[FileForecast, ...]:
    """A forecast for each source, before the fold. What overlaps the deltas is found only after it."""
    every_row = np.array([_live_before(source) for source in plan.sources], np.int64)
    written: WrittenRanges | None = None if plan.input.deltas else {}
    rows_may_die = plan.input.delta_rows > 0  # only the rows of deltas make other rows die
    return tuple(
        FileForecast(decision, _if_a_row_dies(plan, source, decision) if rows_may_die else None)
        for source, decision in zip(plan.sources, decide_files(plan, every_row, written), strict=True)
    )


def counted_reasons(decisions: Iterable[FileDecision | DecidedFile]) -> tuple[tuple[str, str, int], ...]:
    """The numbers of files by action and reason, in the order of their first files."""
    counts = Counter((decision.action.value, decision.reason.value) for decision in decisions)
    return tuple((action, reason, files) for (action, reason), files in counts.items())


_DONE_WORDS = {
    FileAction.KEEP: "kept",
    FileAction.MARK: "marked",
    FileAction.REWRITE: "rewritten",
    FileAction.DROP: "dropped",
}


def decided_words(decisions: Iterable[DecidedFile]) -> str:
    """The same in words: "3 kept: no row died; 1 rewritten: rows died"."""
    counts = Counter((decision.action, decision.reason) for decision in decisions)
    return "; ".join(f"{files:,} {_DONE_WORDS[action]}: {reason.words}" for (action, reason), files in counts.items())


def _live_before(source: SourceFile) -> int:
    return source.file.live_rows if source.operation is OperationType.UPSERT else 0


def _if_a_row_dies(plan: CompactionPlan, source: SourceFile, unhurt: FileDecision) -> FileDecision | None:
    if unhurt.action is FileAction.DROP:
        return None
    hurt = _alone(plan, source, _live_before(source) - 1)
    if unhurt.action is FileAction.REWRITE and hurt.action is not FileAction.MARK:
        return None  # the session writes its live rows into new files anyway
    return None if hurt.action is unhurt.action else hurt


def _alone(plan: CompactionPlan, source: SourceFile, live: int) -> FileDecision:
    """The decision for a source with so many live rows, without regard to other files."""
    action, reason = _action_alone(plan, source, live)
    return FileDecision(source.ordinal, action, reason)


def _action_alone(plan: CompactionPlan, source: SourceFile, live: int) -> tuple[FileAction, FileReason]:
    if source.operation is OperationType.DELETE:
        return FileAction.DROP, FileReason.DELETES
    if not source.file.live_rows:
        return FileAction.DROP, FileReason.NO_ROWS
    if not live:
        return FileAction.DROP, FileReason.ALL_ROWS_DEAD
    if not plan.input.owned:
        return FileAction.REWRITE, FileReason.NOT_OWNED
    return _of_base_file(plan, source, live) if source.in_base else _of_delta_file(plan, source, live)


def _of_base_file(plan: CompactionPlan, source: SourceFile, live: int) -> tuple[FileAction, FileReason]:
    file, options = source.file, plan.options
    if options.purge and file.deletions:
        return FileAction.REWRITE, FileReason.PURGE
    if plan.is_outdated(source) and file.path not in plan.input.cold:
        return FileAction.REWRITE, FileReason.OTHER_SCHEMA
    if live == file.live_rows:
        return FileAction.KEEP, FileReason.NO_ROW_DIED
    if not options.purge and file.rows - live < options.dead_fraction * file.rows:
        return FileAction.MARK, FileReason.FEW_ROWS_DIED
    return FileAction.REWRITE, FileReason.ROWS_DIED


def _of_delta_file(plan: CompactionPlan, source: SourceFile, live: int) -> tuple[FileAction, FileReason]:
    """A delta file that came with dead rows keeps its deletion vector if a base file with as many would stay."""
    file, options = source.file, plan.options
    if unfit := _unfit(plan, source):
        return FileAction.REWRITE, unfit
    if options.purge and file.deletions:
        return FileAction.REWRITE, FileReason.PURGE
    dead_rows = file.rows - file.live_rows
    if live < file.live_rows or (dead_rows and dead_rows >= options.dead_fraction * file.rows):
        return FileAction.REWRITE, FileReason.ROWS_DIED
    return FileAction.KEEP, FileReason.LARGE_AND_WHOLE


def _unfit(plan: CompactionPlan, source: SourceFile) -> FileReason | None:
    """Why a delta file cannot stay as a compacted file, even if all its rows live. None: it can stay."""
    file, options = source.file, plan.options
    if plan.input.source_table_id != plan.input.destination_table_id or not file.managed:
        return FileReason.NOT_OWNED  # a vacuum of the source, or the file's owner, may delete it
    if file.content_type is not options.content_type:
        return FileReason.OTHER_FORMAT
    if plan.clusters and not file.has_one_group:
        return FileReason.NOT_CLUSTERED  # in a file with one group, readers can skip nothing anyway
    if options.compression is not None:
        return FileReason.OTHER_CODEC
    if not file.schema.equals(plan.stored_schema):
        return FileReason.OTHER_SCHEMA
    if not file.decodes:
        return FileReason.NOT_DECODED  # an unreadable file must not become a compacted file
    bytes_max = options.target_file_bytes or file_sizes.TARGET_FILE_BYTES_MAX
    if file.rows > options.rows_per_compacted_file or file.bytes > bytes_max:
        return FileReason.TOO_LARGE
    if file.bytes < options.limits.delta_kept_bytes_min or plan.is_small(file.rows, file.bytes):
        return FileReason.SMALL
    return None


def _with_small_merged(
    plan: CompactionPlan, live: npt.NDArray[np.int64], alone: Sequence[FileDecision]
) -> tuple[FileDecision, ...]:
    """Rewrite small files that could stay, if there are at least two pieces to merge.

    The rows that are rewritten anyway count as one piece, if they are small together.
    """
    rewritten = [plan.sources[decision.ordinal] for decision in alone if decision.action is FileAction.REWRITE]
    rows = sum(int(live[source.ordinal]) for source in rewritten)
    small = {
        decision.ordinal
        for decision in alone
        if decision.action is FileAction.KEEP
        and _is_small(plan, plan.sources[decision.ordinal])
        and plan.sources[decision.ordinal].file.path not in plan.input.cold
    }
    pieces = len(small) + (rows > 0 and plan.is_small(rows, live_bytes(rewritten, live)))
    if pieces < 2:
        return tuple(alone)
    return tuple(
        FileDecision(decision.ordinal, FileAction.REWRITE, FileReason.SMALL) if decision.ordinal in small else decision
        for decision in alone
    )


def _is_small(plan: CompactionPlan, source: SourceFile) -> bool:
    return plan.is_small(source.file.rows, source.file.bytes)


def live_bytes(sources: Iterable[SourceFile], live: npt.NDArray[np.int64]) -> float:
    """The bytes of these files' live rows, estimated."""
    return sum(source.file.bytes * int(live[source.ordinal]) / source.file.rows for source in sources)

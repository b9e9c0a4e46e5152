"""What becomes of every file of a session, once it is known which rows live: pure, like the plan.

    source     rows  live                               rows_per_compacted_file 4
    base 14       4     4     every row lives        -> kept: number and pointers stay
    base 15       4     3     lost one               -> rewritten, ranks 0‥3
    delta 16      6     5                            -> rewritten, ranks 3‥8
    outputs    numbers 17 (ranks 0‥4) and 18 (ranks 4‥8)

A rank counts the live rows of all rewritten files in fold order, so a row's destination is known before it is read.

The last round records what is decided here, and whoever resumes the session obeys the record.
Another release may choose other files; computed again, its ranks would not fit the index that is written already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact.base.model import OperationType
from deltacompact.planning import sizing
from deltacompact.planning.plan import CompactionPlan, Source
from deltacompact.planning.pointer_map import KEPT, NOWHERE, PointerMap, SourceGroup


@dataclass(frozen=True, slots=True)
class OutputDecision:
    """Everything that was chosen about the outputs; what else an OutputPlan says follows by arithmetic.

    kept        ordinal and file number of each file that stays as it is
    marked      ordinals of base files that stay, with a deletion vector
    rewritten   ordinals of the other files with live rows, in the order of their ranks
    """

    kept: tuple[tuple[int, int], ...]
    marked: tuple[int, ...]
    rewritten: tuple[int, ...]
    first_output_number: int
    rows_per_output: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> OutputDecision:
        """Raises KeyError, TypeError or ValueError for what is no decision."""
        kept = tuple((int(ordinal), int(number)) for ordinal, number in document["kept"])
        marked, rewritten = (tuple(map(int, document[name])) for name in ("marked", "rewritten"))
        return cls(kept, marked, rewritten, int(document["first_output_number"]), int(document["rows_per_output"]))


@dataclass(frozen=True, slots=True)
class Output:
    """One compacted file to write: its number, and the ranks [first, stop) of live rows that it gets."""

    number: int
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """What becomes of every source file, once it is known which rows live.

    kept        base files that lost no row, and large delta files of which every row lives: by reference
    marked      base files that lost few rows: they stay, with a deletion vector
    rewritten   the others, with the rank of their first live row
    """

    decision: OutputDecision
    kept: tuple[Source, ...]
    marked: tuple[Source, ...]
    rewritten: tuple[tuple[Source, int], ...]
    outputs: tuple[Output, ...]
    groups: tuple[SourceGroup, ...]
    pointers: PointerMap
    live: npt.NDArray[np.int64]

    @property
    def rows_rewritten(self) -> int:
        return self.outputs[-1].stop if self.outputs else 0


def plan_outputs(decided: CompactionPlan, live: npt.NDArray[np.int64]) -> OutputPlan:
    """`live`: by ordinal, the rows that live after the last round."""
    return follow(decide_outputs(decided, live), decided, live)


def decide_outputs(decided: CompactionPlan, live: npt.NDArray[np.int64]) -> OutputDecision:
    """Choose which files stay, which get a deletion vector, and how many rows each new file has."""
    marked = _marked(decided, live)
    kept = _kept(decided, live, marked)
    stay = {source.ordinal for source in (*kept, *marked)}
    rewritten = [source for source in decided.sources if live[source.ordinal] and source.ordinal not in stay]
    rows = sum(int(live[source.ordinal]) for source in rewritten)
    data_bytes = sum(source.file.bytes * int(live[source.ordinal]) / source.file.rows for source in rewritten)
    rows_max, limits = decided.options.rows_per_compacted_file, decided.options.limits
    count = sizing.output_files(rows, int(data_bytes), rows_max, decided.target_file_bytes, limits)
    return OutputDecision(
        kept=tuple((source.ordinal, decided.number_of(source)) for source in kept),
        marked=tuple(source.ordinal for source in marked),
        rewritten=tuple(source.ordinal for source in rewritten),
        first_output_number=decided.next_file_number,
        rows_per_output=math.ceil(rows / count) if count else 1,
    )


def follow(decision: OutputDecision, decided: CompactionPlan, live: npt.NDArray[np.int64]) -> OutputPlan:
    """What the decision means for these live rows. Raises IndexError where it names a file that there is not."""
    kept = tuple(decided.sources[ordinal] for ordinal, _ in decision.kept)
    marked = tuple(decided.sources[ordinal] for ordinal in decision.marked)
    rewritten, rank = [], 0
    for ordinal in decision.rewritten:
        rewritten.append((decided.sources[ordinal], rank))
        rank += int(live[ordinal])
    number, per_output = decision.first_output_number, decision.rows_per_output
    outputs = tuple(
        Output(number + place, first, min(rank, first + per_output))
        for place, first in enumerate(range(0, rank, per_output))
    )
    groups, group_of, marked_from = _source_groups(decided, rewritten, marked)
    number_of = np.zeros(len(decided.sources), np.uint32)
    for ordinal, kept_number in decision.kept:
        number_of[ordinal] = kept_number
        group_of[ordinal] = KEPT
    for source in marked:
        number_of[source.ordinal] = source.file.number
    first_ranks = tuple(group.first_rank for group in groups)
    pointers = PointerMap(group_of, number_of, first_ranks, number, per_output, marked_from)
    return OutputPlan(decision, kept, marked, tuple(rewritten), outputs, groups, pointers, live)


def _marked(decided: CompactionPlan, live: npt.NDArray[np.int64]) -> tuple[Source, ...]:
    """Base files that lost rows now, with fewer dead ones in all than the share at which a file is rewritten."""
    options = decided.options
    if not decided.input.owned or options.purge:
        return ()
    return tuple(
        source
        for source in decided.sources
        if source.in_base
        and 0 < live[source.ordinal] < source.file.live_rows
        and source.file.rows - live[source.ordinal] < options.rewrite_dead_fraction * source.file.rows
    )


def _kept(decided: CompactionPlan, live: npt.NDArray[np.int64], marked: tuple[Source, ...]) -> tuple[Source, ...]:
    """Files that lost no row, as they are; small base files are merged where there are two pieces to merge."""
    if not decided.input.owned:
        return ()
    unhurt = [s for s in decided.sources if s.file.rows and live[s.ordinal] == s.file.live_rows]
    whole = [source for source in unhurt if _may_stay(decided, source)]
    small = [s for s in whole if decided.is_small(s.file.rows, s.file.bytes)]
    whole_ordinals = {source.ordinal for source in (*whole, *marked)}
    rest = [s for s in decided.sources if s.ordinal not in whole_ordinals and live[s.ordinal]]
    rest_rows = sum(int(live[s.ordinal]) for s in rest)
    rest_bytes = sum(s.file.bytes * int(live[s.ordinal]) / s.file.rows for s in rest)
    rest_is_small = rest_rows > 0 and decided.is_small(rest_rows, rest_bytes)
    if len(small) + rest_is_small < 2:
        return tuple(whole)
    small_ordinals = {source.ordinal for source in small}
    return tuple(source for source in whole if source.ordinal not in small_ordinals)


def _may_stay(decided: CompactionPlan, source: Source) -> bool:
    """Base files, and delta files of ours that are as an output would be: neither small nor larger than one.

    The delta files of a destination are its source's, which vacuums them.
    """
    file, options, given = source.file, decided.options, decided.input
    if source.in_base:
        return not (options.purge and file.deletions)
    return (
        given.source_table_id == given.destination_table_id
        and source.operation is OperationType.UPSERT
        and "://" not in file.path
        and file.content_type is options.content_type
        and options.compression is None
        and file.schema.equals(decided.schema)
        and file.rows <= options.rows_per_compacted_file
        and file.bytes <= (options.target_file_bytes or sizing.TARGET_FILE_BYTES_MAX)
        and file.bytes >= options.limits.delta_kept_bytes_min
        and not decided.is_small(file.rows, file.bytes)
    )


def _source_groups(
    decided: CompactionPlan, rewritten: Sequence[tuple[Source, int]], marked: tuple[Source, ...]
) -> tuple[tuple[SourceGroup, ...], npt.NDArray[np.uint32], int]:
    """Divide the rewritten files, and then the marked ones, into groups of about equal rows; where the latter begin."""
    groups = _divided(rewritten, decided)
    marked_from = len(groups)
    groups += _divided([(source, 0) for source in marked], decided)
    group_of = np.full(len(decided.sources), NOWHERE, np.uint32)
    for number, group in enumerate(groups):
        for source, _ in group:
            group_of[source.ordinal] = number
    return tuple(_group(group, decided.changes_only) for group in groups), group_of, marked_from


def _divided(files: Sequence[tuple[Source, int]], decided: CompactionPlan) -> list[list[tuple[Source, int]]]:
    rows = sum(source.file.rows for source, _ in files)
    share = math.ceil(rows / decided.source_groups(rows)) if rows else 1
    groups: list[list[tuple[Source, int]]] = []
    filled = share
    for source, rank in files:
        if filled >= share:
            groups.append([])
            filled = 0
        groups[-1].append((source, rank))
        filled += source.file.rows
    return groups


def _group(members: Sequence[tuple[Source, int]], changes_only: bool) -> SourceGroup:
    """Where only changes are told, a base file's rows live unless they are told to have died."""
    whole = tuple((source.ordinal, source.file) for source, _ in members if source.in_base and changes_only)
    ordinals = np.array([source.ordinal for source, _ in members], np.uint32)
    rows = np.array([source.file.rows for source, _ in members], np.int64)
    return SourceGroup(ordinals, rows, members[0][1], whole)

"""Plans the files that a session writes, and where each live row goes: pure, like the plan.

    source     rows  live    decision         rows_per_compacted_file 4
    base 14       4     4    keep          -> keeps its number and pointers
    base 15       4     3    rewrite       -> ranks 0‥3
    delta 16      6     5    rewrite       -> ranks 3‥8
    outputs    numbers 17 (ranks 0‥4) and 18 (ranks 4‥8)

A rank counts the live rows of all rewritten files in fold order, so a row's destination is known before it is read. If
rows are laid out by columns, arrangement.py gives each rank a destination.

The last round records the decision, and an attempt that resumes the session obeys the record: `follow` is only
arithmetic. Another release might decide differently, and its ranks would not fit the index that is already written.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact.base.numbers import ChainFileNumber, OutputNumber, Rank
from deltacompact.planning.arrangement import Arrangement
from deltacompact.planning.decisions import FileAction, FileDecision, decide_files, live_bytes
from deltacompact.planning.overlapping import WrittenRanges
from deltacompact.planning.plan import CompactionPlan, SourceFile
from deltacompact.planning.pointer_map import KEPT, NOWHERE, PointerMap, SourceGroup
from deltacompact.planning.sizing import file_sizes

RankedSource = tuple[SourceFile, Rank]
"""A file that is rewritten, and the rank of its first live row."""


@dataclass(frozen=True, slots=True)
class OutputDecision:
    """All choices: a decision for each source in fold order, the first new file number, and the rows of a new file.

    `arranged`: how the rows are laid out; then `rows_per_output` is its span. None: rows keep their order.
    """

    files: tuple[FileDecision, ...]
    first_output_number: ChainFileNumber
    rows_per_output: int
    arranged: Arrangement | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "files": [file.to_json() for file in self.files],
            "first_output_number": self.first_output_number,
            "rows_per_output": self.rows_per_output,
            **({} if self.arranged is None else {"arranged": self.arranged.to_json()}),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> OutputDecision:
        """Raises KeyError, TypeError or ValueError for anything that is not a decision."""
        files = tuple(map(FileDecision.from_json, document["files"]))
        arranged = Arrangement.from_json(document["arranged"]) if "arranged" in document else None
        numbers = ChainFileNumber(int(document["first_output_number"])), int(document["rows_per_output"])
        return cls(files, *numbers, arranged)


@dataclass(frozen=True, slots=True)
class Output:
    """One compacted file to write, with the live rows of the ranks [first, stop)."""

    number: ChainFileNumber
    first: Rank
    stop: Rank

    @property
    def rows(self) -> int:
        return self.stop - self.first


@dataclass(frozen=True)
class OutputPlan:
    """The consequences of a decision. `live` has the number of live rows by ordinal."""

    decision: OutputDecision
    kept: tuple[SourceFile, ...]
    marked: tuple[SourceFile, ...]
    rewritten: tuple[RankedSource, ...]
    outputs: tuple[Output, ...]
    groups: tuple[SourceGroup, ...]
    pointers: PointerMap
    live: npt.NDArray[np.int64]

    @property
    def rows_rewritten(self) -> int:
        return sum(output.rows for output in self.outputs)

    @functools.cached_property
    def first_ranks(self) -> list[Rank]:
        """The rank of the first live row of each rewritten file. Each output searches in them."""
        return [rank for _, rank in self.rewritten]


def plan_outputs(plan: CompactionPlan, live: npt.NDArray[np.int64], written: WrittenRanges | None = None) -> OutputPlan:
    """Decide, and plan the outputs. `live` has the number of live rows by ordinal, after the last round.

    `written`: of `decide_files`.
    """
    return follow(decide_outputs(plan, live, written), plan, live)


def decide_outputs(
    plan: CompactionPlan, live: npt.NDArray[np.int64], written: WrittenRanges | None = None
) -> OutputDecision:
    """Choose an action for each file, and the rows of each new file."""
    files = decide_files(plan, live, written)
    rewritten = [plan.sources[file.ordinal] for file in files if file.action is FileAction.REWRITE]
    rows = sum(int(live[source.ordinal]) for source in rewritten)
    rows_max, bytes_max = plan.options.rows_per_compacted_file, plan.target_file_bytes
    count = file_sizes.output_files(rows, int(live_bytes(rewritten, live)), rows_max, bytes_max, plan.options.limits)
    return OutputDecision(files, plan.next_file_number, math.ceil(rows / count) if count else 1)


def follow(decision: OutputDecision, plan: CompactionPlan, live: npt.NDArray[np.int64]) -> OutputPlan:
    """The consequences of the decision. Raises ValueError if it decides about other files than the plan's."""
    if [file.ordinal for file in decision.files] != [source.ordinal for source in plan.sources]:
        raise ValueError("it decides about other files than the plan's")
    kept, marked, rewritten = (
        tuple(plan.sources[file.ordinal] for file in decision.files if file.action is action)
        for action in (FileAction.KEEP, FileAction.MARK, FileAction.REWRITE)
    )
    ranked = _ranked(rewritten, live)
    ranked_groups = _groups(plan, ranked)
    groups = ranked_groups + _groups(plan, [(source, Rank(0)) for source in marked])
    return OutputPlan(
        decision,
        kept,
        marked,
        ranked,
        _outputs(decision, sum(int(live[source.ordinal]) for source in rewritten)),
        groups,
        _pointer_map(decision, plan, kept, marked, groups, marked_from=len(ranked_groups)),
        live,
    )


def _ranked(rewritten: Sequence[SourceFile], live: npt.NDArray[np.int64]) -> tuple[RankedSource, ...]:
    """Rewritten files in fold order, with the rank of the first live row of each."""
    rows = np.array([live[source.ordinal] for source in rewritten], np.int64)
    first_ranks = np.cumsum(rows) - rows
    return tuple((source, Rank(int(rank))) for source, rank in zip(rewritten, first_ranks, strict=True))


def arranged(outputs: OutputPlan, plan: CompactionPlan, arrangement: Arrangement) -> OutputPlan:
    """The outputs, with their rows laid out."""
    decision = replace(outputs.decision, rows_per_output=arrangement.span, arranged=arrangement)
    return follow(decision, plan, outputs.live)


def _outputs(decision: OutputDecision, rows: int) -> tuple[Output, ...]:
    """The new files. `rows`: the live rows of all rewritten files."""
    per_output = decision.rows_per_output
    if decision.arranged is not None:
        return _arranged(decision, decision.arranged, rows)
    numbers = map(OutputNumber, range(math.ceil(rows / per_output)))
    return tuple(
        Output(
            ChainFileNumber(decision.first_output_number + number),
            Rank(number * per_output),
            Rank(min(rows, (number + 1) * per_output)),
        )
        for number in numbers
    )


def _arranged(decision: OutputDecision, arrangement: Arrangement, rows: int) -> tuple[Output, ...]:
    """The new files of rows that are laid out. The destinations of an output begin at its number times the span."""
    if sum(output.rows for output in arrangement.outputs) != rows:
        raise ValueError(f"it lays out other rows than the {rows} that live")
    return tuple(
        Output(
            ChainFileNumber(decision.first_output_number + number),
            Rank(number * decision.rows_per_output),
            Rank(number * decision.rows_per_output + output.rows),
        )
        for number, output in enumerate(arrangement.outputs)
    )


def _pointer_map(
    decision: OutputDecision,
    plan: CompactionPlan,
    kept: Sequence[SourceFile],
    marked: Sequence[SourceFile],
    groups: Sequence[SourceGroup],
    marked_from: int,
) -> PointerMap:
    group_of = np.full(len(plan.sources), NOWHERE, np.uint32)
    for number, group in enumerate(groups):
        group_of[group.ordinals] = number
    group_of[[source.ordinal for source in kept]] = KEPT
    number_of = np.zeros(len(plan.sources), np.uint32)
    for source in (*kept, *marked):
        number_of[source.ordinal] = plan.number_of(source)
    is_arranged = decision.arranged is not None  # a destination counts through all groups
    first_ranks = tuple(Rank(0) if is_arranged else group.first_rank for group in groups)
    return PointerMap(
        group_of, number_of, first_ranks, decision.first_output_number, decision.rows_per_output, marked_from
    )


def _groups(plan: CompactionPlan, files: Sequence[RankedSource]) -> tuple[SourceGroup, ...]:
    """Divide files into groups with about the same number of rows."""
    rows = sum(source.file.rows for source, _ in files)
    share = math.ceil(rows / plan.source_groups(rows)) if rows else 1
    groups: list[list[RankedSource]] = []
    filled = share
    for source, rank in files:
        if filled >= share:
            groups.append([])
            filled = 0
        groups[-1].append((source, rank))
        filled += source.file.rows
    return tuple(_group(members, plan.changes_only) for members in groups)


def _group(members: Sequence[RankedSource], changes_only: bool) -> SourceGroup:
    """One group. If the fold hands over only changes, base files start whole and lose the rows that died."""
    whole = tuple((source.ordinal, source.file) for source, _ in members if source.in_base and changes_only)
    ordinals = np.array([source.ordinal for source, _ in members], np.uint32)
    rows = np.array([source.file.rows for source, _ in members], np.int64)
    _, first_rank = members[0]
    return SourceGroup(ordinals, rows, first_rank, whole)

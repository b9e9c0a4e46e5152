"""Lays out the rows that a session writes, after the ranks of its survivors are known and before the index is written.

    ranks      rank 7: the eighth of all live rows to write      the live bitmaps are stored
    route      each row goes to a cell of a split tree           cell_routing.py; the plan of 4 outputs follows from it
    move       rank 7 -> output 2, row 11                        a task for each source group
    outputs    4 files, each from the blocks of all tasks        arranged_outputs.py; beside the index, whose tasks have
                                                                 the new pointers

So neither the fold nor the commit knows of the layout. The last round records the arrangement. An attempt that resumes
the session writes the same files from the recorded runs, or routes the rows again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from deltacompact.base.events import logger
from deltacompact.executors.executor import SubmittedTask
from deltacompact.index.remap import Moves
from deltacompact.layout.extents import Extents, weighed
from deltacompact.planning.arrangement import DESTINATIONS_MAX, first_of_cells
from deltacompact.planning.outputs import OutputPlan, arranged
from deltacompact.planning.overlapping import WrittenRanges, extents_in_log, known_ranges
from deltacompact.planning.plan import CompactionPlan
from deltacompact.planning.pointer_map import SourceGroup
from deltacompact.session.cell_routing import CellRouting, RoutedGroups, ranges_of, rows_of
from deltacompact.session.output_tasks import MasksOf
from deltacompact.session.workbench import Workbench
from deltacompact.steps.move import MovedGroup, OutputPlaces, move, move_in_files
from deltacompact.steps.route import RoutedRows


@dataclass(frozen=True, slots=True)
class LaidOut:
    """The outputs, the tasks that return destinations in place of ranks, and the stored destinations."""

    outputs: OutputPlan
    moved: list[SubmittedTask]
    moves: tuple[Moves, ...]
    routed: RoutedGroups


def lay_out(
    bench: Workbench,
    outputs: OutputPlan,
    masks_of: MasksOf,
    ranked: Sequence[SubmittedTask],
    written: WrittenRanges,
) -> LaidOut | None:
    """Route the rows, and plan the outputs by the rows of each cell. None: too many outputs; rows keep their order.

    `ranked` has a task for each source group; all have ended. `written` comes from `written_ranges`.
    """
    plan, groups = bench.plan, outputs.groups[: outputs.pointers.marked_from]
    if outputs.rows_rewritten > DESTINATIONS_MAX:
        _say_too_many(plan, outputs)
        return None
    ranges = ranges_of(groups, outputs)
    by = weighed(plan.cluster_columns, _extents(plan, outputs, written))
    routing = CellRouting.of(bench, outputs, masks_of, [range_ for of_group in ranges for range_ in of_group], by)
    routed = routing.routed(ranges)
    try:
        arrangement = routing.arrangement(routed)
    except ValueError:
        _say_too_many(plan, outputs)
        return None
    laid_out = arranged(outputs, plan, arrangement)
    moves = [_moves(bench, group) for group in groups]
    moved = _submit_moves(bench, laid_out, groups, routed.rows, moves, ranked)
    bench.stages.wait("lay_out", moved, outputs.rows_rewritten)
    stored_moves = tuple(
        Moves(path, rows_of(of_group)) for path, of_group in zip(moves, ranges, strict=True) if path is not None
    )
    return LaidOut(laid_out, [*moved, *ranked[len(groups) :]], stored_moves, routed)


def _say_too_many(plan: CompactionPlan, outputs: OutputPlan) -> None:
    rows = f"{outputs.rows_rewritten:,} rows are too many to lay out at once"
    logger.warning("%s: rows keep their order: %s", plan.input.partition, rows)


def _extents(plan: CompactionPlan, outputs: OutputPlan, written: WrittenRanges) -> Extents:
    """The extents of the rewritten rows among the rows of files that stay, in the columns to cluster by."""
    stay = [source.file for source in (*outputs.kept, *outputs.marked)]
    new = [
        (written.get(source.ordinal) or known_ranges(source.file, plan.cluster_by, plan.stored_schema) or {}, live)
        for source, live in ((source, int(outputs.live[source.ordinal])) for source, _ in outputs.rewritten)
    ]
    return extents_in_log(stay, new, plan.cluster_by, plan.stored_schema) if stay else {}


def _moves(bench: Workbench, group: SourceGroup) -> str | None:
    """A path for a group's destinations, if older entries of the index point into its files; else None."""
    return bench.paths("index", ".moves.arrow")() if group.whole else None


def _submit_moves(
    bench: Workbench,
    outputs: OutputPlan,
    groups: Sequence[SourceGroup],
    routed: Sequence[Sequence[RoutedRows]],
    paths: Sequence[str | None],
    ranked: Sequence[SubmittedTask],
) -> list[SubmittedTask]:
    firsts = first_of_cells([counts for of_group in routed for part in of_group for counts in part.counts])
    stops = np.cumsum([output.rows for output in outputs.outputs])
    places = bench.share(OutputPlaces(stops, outputs.decision.rows_per_output))
    reading, in_files = bench.plan.options.limits.reading, bench.plan.exchanges_in_files
    tasks = []
    for group, of_group, path, task in zip(groups, routed, paths, ranked, strict=False):
        own = [firsts_of_load for part in of_group for firsts_of_load in islice(firsts, len(part.counts))]
        rows = int(outputs.live[group.ordinals].sum())
        moved = MovedGroup(rows, tuple(part.cells for part in of_group), tuple(own), path)
        if in_files:
            exchange = bench.paths("index", ".exchange.arrow")
            inputs = bench.paced, places, moved, reading, exchange, task.values[0]
            tasks.append(bench.executor.submit(move_in_files, *inputs, spread=True))
        else:
            inputs_ = bench.paced, places, moved, reading, *task.values
            tasks.append(bench.executor.submit(move, *inputs_, returns=len(task.values), spread=True))
    return tasks

"""Submitting step 4: one task writes one compacted file, which is a range of ranks.

output 18 takes ranks 4‥8      file 15 has ranks 0‥3: no row of it
                               delta 16 has ranks 3‥8: its live rows 1‥5
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from deltacompact.base.numbers import Ordinal, Rank
from deltacompact.executors.executor import SubmittedTask
from deltacompact.planning.outputs import Output, OutputPlan, RankedSource
from deltacompact.session.workbench import Workbench
from deltacompact.steps.materialize import LiveRange, MaterializeTask, materialize
from deltacompact.tabular.formats import suffix_of

MasksOf = Mapping[Ordinal, str]
"""By ordinal, the path of the object that holds the file's live bitmap."""


def submit_output(bench: Workbench, output: Output, outputs: OutputPlan, masks_of: MasksOf) -> SubmittedTask:
    """Submit the task that writes one compacted file."""
    plan, options = bench.plan, bench.plan.write_options
    ranges = live_ranges(output, outputs)
    task = MaterializeTask(
        output.number,
        output.rows,
        ranges,
        tuple(dict.fromkeys(masks_of[part.ordinal] for part in ranges)),
        plan.schema,
        plan.input.partition,
        options,
        plan.options.limits,
    )
    paths = bench.paths("data", suffix_of(options.content_type))
    return bench.executor.submit(materialize, bench.paced, task, paths, spread=True, size=output.rows)


def live_ranges(output: Output, outputs: OutputPlan) -> tuple[LiveRange, ...]:
    """The ranges of live rows, by source file, whose ranks belong to this output.

    Ranks ascend, so files are searched: a pebibyte has a million of them, and more outputs.
    """
    ranked = outputs.rewritten
    first = max(0, bisect_right(ranked, output.first, key=_first_rank) - 1)
    stop = bisect_left(ranked, output.stop, key=_first_rank)
    ranges = []
    for source, rank in ranked[first:stop]:
        low, high = max(output.first, rank), min(output.stop, rank + int(outputs.live[source.ordinal]))
        if low < high:
            ranges.append(LiveRange(source.file, source.ordinal, low - rank, high - rank))
    return tuple(ranges)


def _first_rank(ranked: RankedSource) -> Rank:
    return ranked[1]

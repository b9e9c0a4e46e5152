"""Submits step 4: a task writes compacted files; each file is a range of ranks.

output 18 takes ranks 4‥8      file 15 has ranks 0‥3: none of its rows
                               delta 16 has ranks 3‥8: its live rows 1‥5
2,000,000 outputs on 10,000 slots      25 a task: one output takes a slot ten seconds, and one task the driver 1 ms
CSV, 32 M rows for 8 outputs, 2 slots  4 a task: each task decodes the text once
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from deltacompact.base.batching import batched
from deltacompact.base.numbers import ChainFileNumber, Ordinal, Rank
from deltacompact.executors.executor import SubmittedTask
from deltacompact.planning.outputs import Output, OutputPlan
from deltacompact.planning.sizing.file_sizes import outputs_per_task
from deltacompact.session.workbench import Workbench
from deltacompact.steps.materialize import LiveRange, MaterializeTask, NumberedOutput, materialize_each
from deltacompact.tabular.formats import UNTYPED, suffix_of

MasksOf = Mapping[Ordinal, str]
"""By ordinal, the path of the object that holds the file's live bitmap."""

OutputTasks = Sequence[SubmittedTask]
"""Each task writes several outputs and returns them as a list. A task's size is its rows."""


def submit_outputs(
    bench: Workbench, missing: Sequence[Output], outputs: OutputPlan, masks_of: MasksOf
) -> list[SubmittedTask]:
    """Submit the tasks that write these compacted files."""
    plan, options = bench.plan, bench.plan.write_options
    paths = bench.paths("data", suffix_of(options.content_type))
    like = MaterializeTask(
        ChainFileNumber(0),
        0,
        (),
        (),
        plan.stored_schema,
        plan.input.partition,
        options,
        plan.options.limits,
        plan.options.certify,
    )
    shared = bench.share(like)

    def submit(together: Sequence[Output]) -> SubmittedTask:
        tasks, rows = (
            [_numbered(output, outputs, masks_of) for output in together],
            sum(output.rows for output in together),
        )
        return bench.executor.submit(materialize_each, bench.paced, shared, tasks, paths, spread=True, size=rows)

    return [submit(together) for together in _together(missing, outputs, plan.capacity.slots)]


def _together(missing: Sequence[Output], outputs: OutputPlan, slots: int) -> Iterator[Sequence[Output]]:
    """The outputs of each task. Outputs that share a text file make at most one task for each slot: each decodes it."""
    several = outputs_per_task(len(missing), slots)
    for text, sharing in groupby(missing, lambda output: _text_of(output, outputs)):
        found = list(sharing)
        yield from batched(found, lambda _: 1, several if text is None else max(several, math.ceil(len(found) / slots)))


def _text_of(output: Output, outputs: OutputPlan) -> Ordinal | None:
    """The text file that fills more than one output and has rows of this one; None: there is none."""
    for rank in (output.first, Rank(output.stop - 1)):
        source, _ = outputs.rewritten[bisect_right(outputs.first_ranks, rank) - 1]
        is_text = source.file.content_type in UNTYPED
        if is_text and outputs.live[source.ordinal] > outputs.decision.rows_per_output:
            return source.ordinal
    return None


def _numbered(output: Output, outputs: OutputPlan, masks_of: MasksOf) -> NumberedOutput:
    ranges = live_ranges(output, outputs)
    return output.number, output.rows, ranges, tuple(dict.fromkeys(masks_of[part.ordinal] for part in ranges))


def live_ranges(output: Output, outputs: OutputPlan) -> tuple[LiveRange, ...]:
    """The ranges of live rows, by source file, whose ranks belong to this output.

    A binary search finds the files, because a pebibyte has a million files and more outputs.
    """
    first = max(0, bisect_right(outputs.first_ranks, output.first) - 1)
    stop = bisect_left(outputs.first_ranks, output.stop)
    ranges = []
    for source, rank in outputs.rewritten[first:stop]:
        low, high = max(output.first, rank), min(output.stop, rank + int(outputs.live[source.ordinal]))
        if low < high:
            ranges.append(LiveRange(source.file, source.ordinal, low - rank, high - rank))
    return tuple(ranges)

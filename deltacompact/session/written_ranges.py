"""The ranges of values of the files that a session may write: how far each reaches in the columns to cluster by.

    file 15    day 2026-11-03 to 2026-11-29    the log has it
    delta 16   day 2026-11-28 to 2026-11-29    its footer has it: a task reads that

By them the session decides which delta files may stay as they are, and which column its tree divides first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from deltacompact.base.batching import batched
from deltacompact.layout.value_ranges import ValueRanges
from deltacompact.planning.decisions import FileAction, decide_files
from deltacompact.planning.overlapping import WrittenRanges, known_ranges
from deltacompact.planning.plan import SourceFile
from deltacompact.session.workbench import Workbench
from deltacompact.steps.file_ranges import file_ranges


def written_ranges(bench: Workbench, live: npt.NDArray[np.int64]) -> WrittenRanges | None:
    """The ranges, in the columns to cluster by, of files that must be rewritten and of delta files that may stay.

    None: rows keep their order.
    """
    plan = bench.plan
    if not plan.clusters:
        return None
    decided = decide_files(plan, live)
    if all(decision.action in (FileAction.REWRITE, FileAction.DROP) for decision in decided):
        return {}  # nothing stays that could overlap them
    sources = [plan.sources[decision.ordinal] for decision in decided]
    return ranges_of_sources(
        bench,
        [
            source
            for decision, source in zip(decided, sources, strict=True)
            if decision.action is FileAction.REWRITE or (decision.action is FileAction.KEEP and not source.in_base)
        ],
    )


def ranges_of_sources(bench: Workbench, sources: Sequence[SourceFile]) -> WrittenRanges:
    """The ranges of these files, by the log if it has them, else by footers or rows."""
    plan = bench.plan
    found = {source.ordinal: known_ranges(source.file, plan.cluster_by, plan.stored_schema) for source in sources}
    unknown = [source for source in sources if found[source.ordinal] is None]
    measured = dict(zip([source.ordinal for source in unknown], _measured(bench, unknown), strict=True))
    return {ordinal: measured[ordinal] if known is None else known for ordinal, known in found.items()}


def _measured(bench: Workbench, unknown: Sequence[SourceFile]) -> list[ValueRanges]:
    """The ranges of these files, by tasks that read their footers or rows."""
    plan = bench.plan
    columns, reading = plan.stored_fields(plan.cluster_columns), plan.options.limits.reading
    batches = list(batched(unknown, lambda source: source.file.rows, plan.task_rows, 64))
    tasks = [
        bench.executor.submit(
            file_ranges,
            bench.paced,
            [source.file for source in batch],
            columns,
            plan.input.partition,
            reading,
            spread=True,
        )
        for batch in batches
    ]
    bench.stages.wait("lay_out", tasks, sum(source.file.rows for source in unknown))
    return [ranges for task in tasks for ranges in bench.executor.get(task.values[0])]

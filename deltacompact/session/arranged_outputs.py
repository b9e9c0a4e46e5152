"""Submits the tasks that write the outputs of rows that were laid out.

    output 2     cells 7‥11     from the blocks that this attempt's tasks hold
                                from the runs that an earlier attempt recorded
                                from rows that are routed again, where it held them in memory

If rows keep their order, output_tasks.py writes the files.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pyarrow as pa

from deltacompact.base.batching import batched
from deltacompact.base.data_file import Clustered
from deltacompact.base.errors import CorruptionError, DeltaCompactError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.executors.executor import Handle, SubmittedTask
from deltacompact.index.index_files import session_object
from deltacompact.planning.arrangement import Arrangement
from deltacompact.planning.outputs import Output, OutputPlan
from deltacompact.planning.overlapping import columns_of
from deltacompact.planning.sizing import file_sizes
from deltacompact.session.cell_routing import CellRouting, RoutedGroups, ranges_of
from deltacompact.session.output_tasks import MasksOf, submit_outputs
from deltacompact.session.workbench import Workbench
from deltacompact.steps.arrange import ArrangedFile, ArrangedFiles, RoutedPart, arrange_each
from deltacompact.steps.routed_runs import CellRun
from deltacompact.storage.fetched_file import ReadAhead
from deltacompact.tabular import key_values
from deltacompact.tabular.formats import UNTYPED, suffix_of


def missing_outputs(
    bench: Workbench,
    missing: Sequence[Output],
    outputs: OutputPlan,
    masks_of: MasksOf,
    routed: RoutedGroups | None = None,
) -> list[SubmittedTask]:
    """Submit the tasks that write these compacted files. `routed`: the rows that this attempt has sent to cells."""
    arrangement = outputs.decision.arranged
    if arrangement is None:
        return submit_outputs(bench, missing, outputs, masks_of)
    if not missing:
        return []
    if routed is None and not arrangement.blocks:
        routed = _routed_again(bench, outputs, masks_of, arrangement)
    return _submit_arranged(bench, missing, outputs, arrangement, routed)


def _routed_again(bench: Workbench, outputs: OutputPlan, masks_of: MasksOf, arrangement: Arrangement) -> RoutedGroups:
    """Route again the rows that an earlier attempt had in memory: to the same cells, in the same order."""
    ranges = ranges_of(outputs.groups[: outputs.pointers.marked_from], outputs)
    routing = CellRouting.again(
        bench, masks_of, arrangement.parts, [range_ for of_group in ranges for range_ in of_group]
    )
    return routing.routed(ranges)


def _submit_arranged(
    bench: Workbench,
    missing: Sequence[Output],
    outputs: OutputPlan,
    arrangement: Arrangement,
    routed: RoutedGroups | None,
) -> list[SubmittedTask]:
    """Submit the tasks that write these outputs, from the routed rows, or (None) from the recorded runs."""
    plan = bench.plan
    runs = _runs(bench, arrangement) if routed is None else routed.runs
    by, options = columns_of(arrangement.by, plan.stored_schema), plan.write_options
    clustered = Clustered(arrangement.by, outputs.decision.first_output_number)
    sources = [source.file for source, _ in outputs.rewritten]
    key_types = key_values.union(sources) if options.content_type in UNTYPED else ()
    like = ArrangedFiles(
        plan.stored_schema,
        replace(options, codec=options.codec or arrangement.codec),
        tuple(column.name for column in by),
        clustered,
        key_types,
        plan.options.certify,
        plan.options.limits.reading,
    )
    shared, paths = bench.share(like), bench.paths("data", suffix_of(options.content_type))
    first = outputs.decision.first_output_number

    leaf_starts = [0, *accumulate(routed.leaves)] if routed is not None and routed.held else [0]

    def file(output: Output) -> ArrangedFile:
        planned = arrangement.outputs[output.number - first]
        parts = tuple(
            RoutedPart(arrangement.parts[part], tuple(block for run in runs if (block := run.block(part)).rows))
            for part in range(planned.first_part, planned.stop_part)
        )
        start = leaf_starts[bisect_right(leaf_starts, planned.first_part) - 1]
        return ArrangedFile(output.number, parts, planned.start, planned.stop, planned.first_part - start)

    def held(output: Output) -> Sequence[Handle]:
        if routed is None or not routed.held:
            return ()
        planned = arrangement.outputs[output.number - first]
        return routed.held[bisect_right(leaf_starts, planned.first_part) - 1]

    def submit(together: Sequence[Output]) -> SubmittedTask:
        rows, files = sum(group.rows for group in together), [file(group) for group in together]
        inputs = bench.paced, shared, files, paths, *(handle for group in together for handle in held(group))
        return bench.executor.submit(arrange_each, *inputs, spread=True, size=rows)

    several = file_sizes.outputs_per_task(len(missing), plan.capacity.slots)
    return [submit(together) for together in batched(missing, lambda _: 1, several)]


def _runs(bench: Workbench, arrangement: Arrangement) -> list[CellRun]:
    with session_object(bench.store, arrangement.blocks, ReadAhead(bench.plan.options.limits.reading)) as source:
        file = pa.ipc.open_file(source)
        found = [file.get_batch(number) for number in range(file.num_record_batches)]
    blocks = [np.stack([column.to_numpy() for column in batch.columns], axis=1) for batch in found]
    return [CellRun(path, of_run) for path, of_run in zip(arrangement.runs, blocks, strict=True)]


def check_certified(arrangement: Arrangement | None, written: Sequence[Fingerprint | None]) -> None:
    """Raise CorruptionError if the outputs' rows have another fingerprint than the rows that were routed."""
    if arrangement is None or arrangement.fingerprint is None:
        return
    found = sum((fingerprint for fingerprint in written if fingerprint is not None), Fingerprint())
    if found != arrangement.fingerprint:
        raise CorruptionError(
            f"the rows that were laid out have the fingerprint {arrangement.fingerprint}, what was written {found}: "
            "nothing is committed. Run the compaction again; if it fails again, look at this machine's memory and disks"
        )


def forget_runs(bench: Workbench, arrangement: Arrangement | None) -> None:
    """Delete this session's exchange files, once its outputs are in force. A vacuum deletes what is left."""
    if arrangement is not None:
        with contextlib.suppress(DeltaCompactError):
            bench.store.delete(list({*arrangement.objects, *bench.on_their_way}))

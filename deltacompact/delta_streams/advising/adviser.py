"""Advice before work on delta streams, and simulations of policies over their reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from deltacompact.base.errors import InputError
from deltacompact.base.settings import Options, Settings
from deltacompact.base.wording import counted
from deltacompact.delta_streams.advising.costs import ForeseenCompactions
from deltacompact.delta_streams.advising.examined_files import ExaminedFiles, RangedFile
from deltacompact.delta_streams.advising.sampling import cells_per_file, prospect_now, samples_of
from deltacompact.delta_streams.table_documents import clustering_of
from deltacompact.delta_streams.table_heat import heat_of_streams
from deltacompact.layout.advice import Advice, Outlook, left_alone
from deltacompact.layout.cluster_by import ClusterColumn, cluster_columns
from deltacompact.layout.collected_reads import CollectedReads
from deltacompact.layout.depth import depth_of
from deltacompact.layout.prospect import Prospect, foreseen, outlooks
from deltacompact.layout.reads import columns_asked
from deltacompact.layout.simulation import Arrival
from deltacompact.layout.value_ranges import joined
from deltacompact.planning.simulated import PolicyOutcome, check_count, simulated
from deltacompact.planning.sizing import file_sizes
from deltacompact.planning.worth import with_gain

OPTIONS = Options()
"""The options of the foreseen compaction."""


def advice_of_streams(
    examined: ExaminedFiles,
    collected: CollectedReads,
    columns: str | Sequence[str] | None,
    reads: int,
    settings: Settings | None,
) -> Advice:
    """Advice about clustering by these columns. `collected`: reads that others told.

    Without columns: those of the collected reads, else those of the table's cluster_by, else those of its heat. If
    there are none of these either, only the depth of the primary keys. Raises InputError for a column that no file has,
    or that lies in a struct, is a partition key, or has no order; for reads that ask for no column of the table; and
    for too many files.
    """
    table_id, by = examined.table.table_id, _columns(examined, columns, collected)
    keys = examined.table.keys
    names = [column.name for column in by] or list(keys.primary if keys else ())
    if not names:
        raise InputError(f"table {table_id!r} has no primary keys yet: name columns, day,customer")
    of_table = Advice(
        table_id,
        tuple(names),
        len(examined.partitions),
        len(examined.files),
        examined.bytes,
        (),
        reads,
        notes=collected.notes,
    )
    if not examined.files:
        return of_table
    schema = examined.schema(names)
    files = examined.ranged(schema)
    notes = (*of_table.notes, *_without_bounds(files, names))
    if not by:
        return _depths(replace(of_table, notes=notes), prospect_now(files, schema))
    samples = samples_of(examined, files, schema, OPTIONS)
    now = prospect_now(files, schema, samples)
    then = foreseen([sample for _, sample in samples], by, cells_per_file(files, samples, OPTIONS))
    advice = replace(of_table, outlooks=outlooks(now, then), boxes=now.files)
    if keys is None:
        unknown = "it has no primary keys yet: what a compaction takes is not known"
        return replace(advice, notes=(*notes, unknown))
    compactions = ForeseenCompactions(examined, files, by, OPTIONS, settings or Settings())
    notes = (*notes, *left_alone(compactions.cold_files))
    return with_gain(replace(advice, notes=notes), by, *compactions.cost())


def simulated_streams(
    examined: ExaminedFiles,
    collected: CollectedReads,
    columns: str | Sequence[str] | None,
    depths: Sequence[float],
) -> tuple[PolicyOutcome, ...]:
    """What policies would have cost and saved. A delta arrives with its commit, a compacted file with its version.

    Raises InputError like `advice_of_streams`, and for a table without files, or with too many.
    """
    check_count(examined.table.table_id, len(examined.files))
    by = _columns(examined, columns, collected) if columns else collected.columns_asked()
    schema = examined.schema([column.name for column in by])
    boxes = prospect_now(examined.ranged(schema), schema).files
    arrivals = [Arrival(arrived.came_s, arrived.file.bytes) for arrived in examined.files]
    target = file_sizes.target_file_bytes(examined.bytes // len(examined.partitions))
    return simulated(boxes, arrivals, collected.reads, by, target, depths)


def _columns(
    examined: ExaminedFiles, columns: str | Sequence[str] | None, collected: CollectedReads
) -> tuple[ClusterColumn, ...]:
    """The chosen columns, else those of the given reads, else the table's cluster_by, else those of its heat."""
    if columns is not None:
        if not (found := cluster_columns("columns", columns)):
            raise InputError("columns is empty: name some, day*3,customer")
    elif collected.sources:
        found = collected.columns_asked()
    elif not (found := cluster_columns("columns", examined.table.cluster_by or "")):
        heat = heat_of_streams(examined.streams, examined.table.table_id).read()
        found = columns_asked(heat.known(examined.ordered_columns))
    clustering_of([str(column) for column in found], examined.table.partition_keys)
    return found


def _depths(advice: Advice, now: Prospect) -> Advice:
    """The advice with the present depth of each column, and of all together."""
    count = len(now.files.columns)
    each = [Outlook(depth_of(now.files.of(place), now.groups.of(place))) for place in range(count)]
    together = [Outlook(depth_of(now.files, now.groups))] if count > 1 else []
    return replace(advice, outlooks=(*each, *together), boxes=now.files)


def _without_bounds(files: Sequence[RangedFile], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if unknown := sum(name not in joined(file.ranges) for file in files):
            yield f"{counted(unknown, 'file')} without bounds of column {name!r}: readers always open them"

"""Chooses the data files to lay out anew, because they overlap in the columns to cluster or sort by. Pure.

    snapshot 5     append              a: day 1 to 9
    snapshot 6     append              b: day 1 to 9           a and b overlap, and are of healthy size: both are chosen
    snapshot 7     ours, by day        c: day 1 to 4           d: day 5 to 9
    snapshot 8     append              e: day 8 to 9           e and d overlap; d waits until more rows have come

The age of a file is that of the snapshot that added it. Our snapshots say by which columns they clustered, in their
summaries and, once they have expired, in table properties (layout_memory.py). So files that one of them laid out
together are not laid out again among themselves. Small ones are merged only with their neighbours: all small files of
a partition together would make files that lie across the others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from deltacompact.base.errors import InputError
from deltacompact.base.settings import AMPLIFICATION_MAX
from deltacompact.iceberg.boxes import boxes_of_files
from deltacompact.iceberg.layout_memory import LayoutRun, came_since, layouts_of, spent_on
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.table_state import TableState
from deltacompact.iceberg_modes.rewrite.choosing import NO_FACTS, FileFacts, may_be_laid_out
from deltacompact.iceberg_modes.rewrite.options import CLUSTER_PROPERTY, RewriteOptions, Strategy
from deltacompact.iceberg_modes.rewrite.plan import RewritePlan, Worth
from deltacompact.iceberg_modes.rewrite.row_order import ClusterBy, row_order_of
from deltacompact.layout.boxes import Boxes, Ranks
from deltacompact.layout.cluster_by import heaviest
from deltacompact.layout.extents import STAYS, extents_of
from deltacompact.layout.neighbours import MergeSizes, neighbours
from deltacompact.layout.overlap import FileMask, LayoutChoice, RewriteAllowance, to_lay_out
from deltacompact.layout.sort_order import in_one_spelling

SORTED = "deltacompact.sort-order"
"""The key in a snapshot's summary of the order by which we sorted its files."""
_OWN_ORDER = re.compile(r"order \d+")
"""Its value for a sort order of the table."""


def summary_of(options: RewriteOptions, metadata: TableMetadata) -> dict[str, str]:
    """The lines of a snapshot's summary about the order of rows; empty if rows kept theirs."""
    if options.strategy is Strategy.SORT:
        own = f"order {metadata.sort_order_id}"
        return {SORTED: own if options.sort_order is None else in_one_spelling(options.sort_order)}
    return {CLUSTER_PROPERTY: ",".join(map(str, options.cluster_by))} if options.cluster_by else {}


@dataclass(frozen=True, slots=True)
class BadlyLaid:
    """The paths of files to lay out anew: those for this run, and those that wait for later runs.

    laid_out    others that a layout wrote: they are too small only with their neighbours
    merged      small files among these, each with the number of the set that becomes one file
    """

    chosen: frozenset[str] = frozenset()
    waits: frozenset[str] = frozenset()
    laid_out: frozenset[str] = frozenset()
    merged: Mapping[str, int] = field(default_factory=dict, hash=False)


def badly_laid(
    state: TableState, options: RewriteOptions, facts: FileFacts = NO_FACTS, worth: Worth | None = None
) -> BadlyLaid:
    """The files to lay out anew. A file that overlaps only such as stay for other reasons (`facts`) stays as well: each
    run would find it again.

    If `write-amplification-max` leaves partitions for later runs, those with the greatest `worth` come first, without
    it those that overlap most.
    Raises InputError naming a column that has no order, or is unknown.
    """
    columns = () if options.rewrite_all else _columns(state.metadata, options)
    if not columns:
        return BadlyLaid()
    boxes, whole = boxes_of_files(state.metadata, state.data, columns), state
    places = np.flatnonzero(may_be_laid_out(state, options, facts))
    state = replace(state, data=tuple(state.data[place] for place in places.tolist()))
    own = boxes.take(places)
    choice = overlapping_in(state, own, options, worth and _ranked(state, own, worth))
    laid_out = _laid_out(state, options) & ~choice.chosen
    if options.output_spec_id is not None:  # rows of several partitions go to one: no file keeps its neighbours
        laid_out[:] = False
    lies_well = np.zeros(boxes.files, bool)
    lies_well[places] = laid_out & ~choice.waits
    return BadlyLaid(
        _paths(state, choice.chosen),
        _paths(state, choice.waits),
        _paths(state, laid_out),
        _merged(whole, boxes, lies_well, options),
    )


def _merged(state: TableState, boxes: Boxes, lies_well: FileMask, options: RewriteOptions) -> dict[str, int]:
    """Small files that become one with their neighbours, each with the number of its set."""
    sizes = np.array([entry.file.file_bytes for entry in state.data], np.int64)
    merging = MergeSizes(options.laid_out_file_bytes_min, options.target_file_bytes, options.min_input_files)
    sets = neighbours(boxes, sizes, lies_well, merging, heaviest(options.cluster_by))
    return {state.data[place].file.path: number for number, own in enumerate(sets) for place in own.tolist()}


def _paths(state: TableState, chosen: FileMask) -> frozenset[str]:
    return frozenset(state.data[place].file.path for place in np.flatnonzero(chosen).tolist())


def with_extents(plan: RewritePlan, state: TableState) -> RewritePlan:
    """The plan with the extents of its groups. They are unknown for rows that go to partitions of another spec."""
    by = row_order_of(state.metadata, plan.options)
    if not isinstance(by, ClusterBy) or plan.options.output_spec_id is not None:
        return plan
    boxes = boxes_of_files(state.metadata, state.data, by.bounded)
    group_of = {path: group.number for group in plan.groups for path in group.paths}
    written = np.array([group_of.get(entry.file.path, STAYS) for entry in state.data], np.int64)
    extents = extents_of(boxes, written, len(plan.groups))
    return replace(plan, groups=tuple(replace(group, extents=extents[group.number]) for group in plan.groups))


def _columns(metadata: TableMetadata, options: RewriteOptions) -> tuple[str, ...]:
    """The columns in which files must not overlap. For a sort order: those of its first item only."""
    row_order = row_order_of(metadata, options)
    if row_order is None or isinstance(row_order, ClusterBy):
        return tuple(column.name for column in options.cluster_by)
    by = dict(row_order.derived).get(row_order.items[0].names[0])
    if by is None:
        return tuple(row_order.items[0].names)
    return () if by.transform.startswith("bucket") else (by.source,)


def _ranked(state: TableState, boxes: Boxes, worth: Worth) -> list[int]:
    """The numbers of the partitions, those with the greatest worth first."""
    files: dict[int, list[ManifestEntry]] = defaultdict(list)
    for number, entry in zip(boxes.partitions.tolist(), state.data, strict=True):
        files[number].append(entry)
    return sorted(files, key=lambda number: -worth(files[number]))


def overlapping_in(
    state: TableState, boxes: Boxes, options: RewriteOptions, ranked: Sequence[int] | None
) -> LayoutChoice:
    """The data files that are laid out anew, and those that wait."""
    sizes = _as_laid_out(state)
    times, spent = options.write_amplification_max or AMPLIFICATION_MAX, spent_on(state)
    allowance = RewriteAllowance.over_time(times, spent, sizes * came_since(state, spent))
    first = heaviest(options.cluster_by)
    return to_lay_out(boxes, sizes, ages_of(state), _laid_out(state, options), allowance, ranked, first)


def _as_laid_out(state: TableState) -> Ranks:
    """The bytes of the files, shared by their rows: ordered rows are compressed better than the same rows before."""
    rows: Ranks = np.array([entry.file.rows for entry in state.data], np.int64)
    bytes_ = sum(entry.file.file_bytes for entry in state.data)
    return np.asarray(rows * (max(1, bytes_) / max(1, int(rows.sum()))), np.int64)  # the product exceeds 64 bits


def _laid_out(state: TableState, options: RewriteOptions) -> FileMask:
    """Which files were laid out by the same columns, in the same way, by a snapshot of ours."""
    wanted = summary_of(options, state.metadata).items()
    ours = {number for number, layout in layouts_of(state.metadata).items() if wanted <= _spelled(layout.how).items()}
    return np.array([entry.snapshot_id in ours for entry in state.data], bool)


def _spelled(how: Mapping[str, str]) -> Mapping[str, str]:
    """What a snapshot says of its layout, with the sort order in one spelling: older versions stored it as given."""
    order = how.get(SORTED)
    if order is None or _OWN_ORDER.fullmatch(order):
        return how
    try:
        return {**how, SORTED: in_one_spelling(order)}
    except InputError:  # of another version: its files count as not laid out
        return how


def ages_of(state: TableState) -> Ranks:
    """For each file, a number of the snapshot that added it, greater for later ones.

    All snapshots of one session of ours have the same number.
    """
    known, ours = state.metadata.snapshots, layouts_of(state.metadata)
    last = {layout.session: (*layout.age, number) for number, layout in sorted(ours.items(), key=_age)}

    def age(entry: ManifestEntry) -> tuple[int, int, int]:
        number = entry.snapshot_id or 0
        if number in ours:
            return last[ours[number].session]
        if (snapshot := known.get(number)) is None:
            return entry.added_at, 0, number
        return snapshot.sequence_number, snapshot.timestamp_ms, number

    ages = [age(entry) for entry in state.data]
    number = {age: place for place, age in enumerate(sorted(set(ages)))}
    return np.array([number[age] for age in ages], np.int64)


def _age(numbered: tuple[int, LayoutRun]) -> tuple[int, int]:
    return numbered[1].age

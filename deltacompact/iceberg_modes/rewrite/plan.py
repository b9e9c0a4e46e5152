"""Plans a rewrite: pure. Which data files, in which groups, why, and into how many files.

    partition    file    bytes    deletes       target 512 MB, minimum 384 MB, min-input-files 5
    day 3        a       4 MB     -             small
    day 3        b       500 MB   -             stays: its size is right
    day 3        c       500 MB   3 vectors…    a third of its rows is deleted
    day 4        d       4 MB     -             stays: alone in its partition, nothing to merge it with

    groups       day 3: a, c -> 1 file          because c lost a third of its rows

The rules are Iceberg's own (`BinPackRewriteFilePlanner`): first candidates, then bins, then the bins that are worth it.
A group's outputs lie in one partition of one spec: that of its files, or that of the option `output-spec-id` (rule 17).
Files whose rows lie in several partitions of that spec make groups of their own, which are divided by partition.
It never mixes files with and without row ids (rule 22). In a table that is upserted, files stay until their rows have
been compared: merged before that, rows would share a sequence number, and nobody could say which of a key is newer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from deltacompact.base.batching import batched
from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted, reasons_in_words, size
from deltacompact.iceberg.deletes.readable import check_defaults, check_readable
from deltacompact.iceberg.table.content_files import ContentFile, ManifestEntry, PartitionTuple
from deltacompact.iceberg.table.pyiceberg_door.transforms import partition_columns
from deltacompact.iceberg.table.row_lineage import LAST_UPDATED, ROW_ID, has_lineage
from deltacompact.iceberg.table.table_state import TableState, scope_of
from deltacompact.iceberg_modes.plan import GROUPS_SHOWN, ModePlan, ScanTaskGroup
from deltacompact.iceberg_modes.rewrite.choosing import (
    ALONE,
    NO_FACTS,
    FileFacts,
    RewriteReason,
    RewriteTask,
    candidates,
)
from deltacompact.iceberg_modes.rewrite.options import NAME, JobOrder, RewriteOptions, Strategy
from deltacompact.iceberg_modes.words import group_lines, stays_in_words
from deltacompact.layout.extents import Extents


@dataclass(frozen=True, slots=True)
class FileGroup(ScanTaskGroup[RewriteTask]):
    """Files that are rewritten together, into about `output_files` files. `partition` None: of several partitions.

    `extents`: for rows that are clustered, their range by column, as a share of the partition's.
    """

    spec_id: int
    partition: PartitionTuple | None
    output_files: int
    extents: Extents = field(default_factory=dict, hash=False)

    @property
    def has_lineage(self) -> bool:
        """Whether the rows have ids. All files of a group have a first row id, or none has (rule 22)."""
        return self.inputs[0].entry.file.first_row_id is not None


@dataclass(frozen=True, slots=True, repr=False)
class RewritePlan(ModePlan):
    """The groups to rewrite, and how many files stay for which reason.

    `sequence_number` is the planned snapshot's: outputs get it, even if the snapshot is expired meanwhile (rule 7).
    """

    mode: ClassVar[str] = NAME
    options: RewriteOptions
    groups: tuple[FileGroup, ...]
    stays: tuple[tuple[RewriteReason, int], ...]

    def of(self, groups: Iterable[FileGroup]) -> RewritePlan:
        """The plan with these groups only, numbered anew."""
        return replace(self, groups=tuple(replace(group, number=number) for number, group in enumerate(groups)))

    @property
    def inputs(self) -> tuple[RewriteTask, ...]:
        return tuple(source for group in self.groups for source in group.inputs)

    def lines(self, groups_max: int | None = GROUPS_SHOWN) -> list[str]:
        total = []
        if len(self.groups) > 1:
            files = sum(group.output_files for group in self.groups)
            into = f"{counted(files, 'file')}, in {counted(len(self.groups), 'group')}"
            total.append(f"{_read(self.inputs, self.bytes, self.rows)} -> {into}")
        if self.groups and self.options.cluster_by:
            total.append(f"clustered by {', '.join(map(str, self.options.cluster_by))}")
        if self.groups and self.options.strategy is Strategy.SORT:
            total.append(f"sorted by {self.options.sort_order or 'the order of the table'}")
        return [
            *total,
            *group_lines(self.groups, partial(_group_line, self), groups_max),
            *(f"stay: {line}" for line in stays_in_words(self.stays, "file", _WORDS)),
        ]

    @property
    def nothing_to_do(self) -> str | None:
        """Why there is nothing to rewrite; None: there is something."""
        if self.groups:
            return None
        if not self.stays:
            return "the branch has no data files"
        return "; ".join(stays_in_words(self.stays, "file", _WORDS))

    @property
    def left(self) -> list[str]:
        """Lines about files that overlap, but are left to later runs."""
        waiting = [stay for stay in self.stays if stay[0] is RewriteReason.OVERLAPS_WAITS]
        return stays_in_words(waiting, "file", _WORDS)


_UNWRITABLE = ("unknown", "variant", "geometry", "geography")
"""Types of version 3 whose columns Arrow would write as another type."""

_WORDS = {
    RewriteReason.RIGHT_SIZE: "the right size, few deletes",
    RewriteReason.GROUP_TOO_SMALL: "too few in the partition to be merged",
    RewriteReason.BEYOND_MAX_FILES: "beyond max-files-to-rewrite",
    RewriteReason.OVERLAPS_WAITS: "overlap, and wait: write-amplification-max allows no more until rows come",
    RewriteReason.NOT_WANTED: "no rows in them for which `where` is true",
    RewriteReason.NOT_COMPARED: "not compared by an upsert yet: run it first",
    RewriteReason.BEING_REWRITTEN: "another session is rewriting them",
    RewriteReason.INFREQUENT_STORAGE: "in a storage class for infrequent access, or archived: left alone",
}
"""The reasons why files stay."""


def _group_line(plan: RewritePlan, group: FileGroup) -> str:
    where = f"{plan.named((group.spec_id, group.partition))}: " if group.partition else ""
    into = counted(group.output_files, "file")
    if group.partition is None:
        into += f" or more, divided by partition spec {group.spec_id}"
    return f"{where}{_read(group.inputs, group.bytes, group.rows)} -> {into}"


def _read(inputs: Sequence[RewriteTask], bytes_in: int, rows: int) -> str:
    why = reasons_in_words(source.reason for source in inputs)
    return f"{counted(len(inputs), 'file')} ({why}), {size(bytes_in)}, {counted(rows, 'row')}"


Worth = Callable[[Sequence[ManifestEntry]], float]
"""What reads save for each core-second of laying out these files of one partition."""


def plan_rewrite(
    state: TableState,
    options: RewriteOptions,
    facts: FileFacts = NO_FACTS,
    partition_of: Callable[[ContentFile], PartitionTuple | None] | None = None,
    worth: Worth = lambda files: 0.0,
) -> RewritePlan:
    """The plan for a branch.

    `partition_of` gives the partition, in the spec `output-spec-id`, of all rows of a file; None: they lie in several.
    `worth` orders the groups if `rewrite-job-order` is `heat-desc` (worth.py). Raises InputError where the table is of
    a kind that cannot be rewritten.
    """
    _refuse(state)
    tasks, stays = candidates(state, options, facts)
    scopes: dict[tuple[_Target, bool, int | None], list[RewriteTask]] = defaultdict(list)
    for task in tasks:
        scope = scope_of(task.entry) if partition_of is None else _moved(task.entry, options, partition_of, state)
        merged = facts.merged.get(task.entry.file.path)  # whatever its reason: without it the set lies across it
        scopes[scope, task.entry.file.first_row_id is not None, merged].append(task)
    bins = []
    for (scope, _, merged), inputs in scopes.items():
        for members in _packed(inputs, options):
            are_merged = merged is not None and len(members) > 1
            if facts.only is not None or are_merged or worth_it(members, options):
                bins.append(_Bin(scope, members, are_merged))
            else:
                stays[RewriteReason.GROUP_TOO_SMALL] += len(members)
    chosen = _in_order(bins, options.job_order, worth)
    if options.max_files is not None and facts.only is None:
        whole, chosen = chosen, list(_first_files(chosen, options.max_files, options))
        stays[RewriteReason.BEYOND_MAX_FILES] = _count(whole) - _count(chosen)
    return RewritePlan(
        *state.heading,
        options,
        tuple(_group(number, bin_, options) for number, bin_ in enumerate(chosen)),
        tuple((reason, stays[reason]) for reason in RewriteReason if stays[reason]),
    )


def worth_it(members: Sequence[RewriteTask], options: RewriteOptions) -> bool:
    """Whether rewriting these files together gains something."""
    size = _bytes(members)
    several = len(members) > 1
    return (
        (several and len(members) >= options.min_input_files)
        or (several and size > options.target_file_bytes)
        or size > options.max_file_bytes
        or any(source.reason in ALONE for source in members)
    )


def overlapping_bytes(group: FileGroup) -> int:
    """The bytes of a group that are rewritten because files overlap."""
    return _bytes(task for task in group.inputs if task.reason is RewriteReason.OVERLAPS)


def _bytes(members: Iterable[RewriteTask]) -> int:
    return sum(source.entry.file.file_bytes for source in members)


def expected_output_files(size: int, options: RewriteOptions) -> int:
    """How many files so many bytes become, evenly divided.

    Iceberg's rule: a rest that is smaller than a small file is spread over the others, unless they would grow above
    1.1 x the target. Its writer then leaves one small file. We divide evenly, so we rather write one file less than
    only small ones: the next run would merge those again, for ever.
    """
    target = options.target_file_bytes
    if size < target:
        return 1
    whole, rest = divmod(size, target)
    spread = rest <= options.min_file_bytes and size / whole < min(1.1 * target, options.written_file_bytes_max)
    count = whole if spread or not rest else whole + 1
    are_small = size / count < options.min_file_bytes
    return count - 1 if count > 1 and are_small and size / (count - 1) <= options.max_file_bytes else count


_Target = tuple[int, PartitionTuple | None]
"""Spec id and partition of outputs. None: the rows go to several."""


def _moved(
    entry: ManifestEntry,
    options: RewriteOptions,
    partition_of: Callable[[ContentFile], PartitionTuple | None],
    state: TableState,
) -> _Target:
    """The spec and partition that a file's rows go to. Raises InputError if they go to several but cannot be split."""
    assert options.output_spec_id is not None
    partition = partition_of(entry.file)
    if partition is None:
        partition_columns(state.metadata.specs[options.output_spec_id], state.metadata.columns)
    return options.output_spec_id, partition


@dataclass(frozen=True, slots=True)
class _Bin:
    """Files that may become a group, and where their rows go. `is_set`: neighbours, of which none may be left out."""

    target: _Target
    members: Sequence[RewriteTask]
    is_set: bool = False


def _group(number: int, bin_: _Bin, options: RewriteOptions) -> FileGroup:
    """A group, with the oldest rows first: outputs have one sequence number, so only the order tells newer rows."""
    oldest_first = sorted(bin_.members, key=_age)
    return FileGroup(number, tuple(oldest_first), *bin_.target, expected_output_files(_bytes(bin_.members), options))


def _age(source: RewriteTask) -> tuple[int, bytes]:
    return source.entry.sequence, source.entry.file.path.encode()


def _count(bins: Iterable[_Bin]) -> int:
    return sum(len(bin_.members) for bin_ in bins)


def _first_files(bins: Iterable[_Bin], files_max: int, options: RewriteOptions) -> Iterator[_Bin]:
    """The bins with at most so many files in all. The first that has too many is cut, if the rest is worth it.

    The oldest files come first: what this run writes is the newest for the next one, and may overlap the rest.
    """
    for bin_ in bins:
        if bin_.is_set and len(bin_.members) > files_max:
            continue
        part = sorted(bin_.members, key=_age)[:files_max] if len(bin_.members) > files_max else bin_.members
        if part and (len(part) == len(bin_.members) or worth_it(part, options)):
            files_max -= len(part)
            yield replace(bin_, members=part)


def _packed(inputs: Sequence[RewriteTask], options: RewriteOptions) -> Iterator[list[RewriteTask]]:
    """Bins up to the largest group, in the order of the files. Rows that get another order are divided by one tree."""
    if options.arranges:
        return iter([list(inputs)])
    return batched(inputs, lambda task: task.entry.file.file_bytes, options.max_group_bytes, options.max_group_files)


def _in_order(bins: list[_Bin], order: JobOrder, worth: Worth) -> list[_Bin]:
    match order:
        case JobOrder.NONE:
            return bins
        case JobOrder.HEAT_DESC:
            return sorted(bins, key=lambda bin_: -worth([source.entry for source in bin_.members]))
        case JobOrder.BYTES_ASC | JobOrder.BYTES_DESC:
            return sorted(bins, key=lambda bin_: _bytes(bin_.members), reverse=order is JobOrder.BYTES_DESC)
        case _:
            return sorted(bins, key=lambda bin_: len(bin_.members), reverse=order is JobOrder.FILES_DESC)


def _refuse(state: TableState) -> None:
    """Refuse what would be rewritten wrongly, before any work."""
    name = state.metadata.table_id
    for column in state.metadata.columns.values():
        if column.is_dropped:
            continue
        if column.type.startswith(_UNWRITABLE):
            raise InputError(
                f"column {column.field.name!r} of table {name!r} has type {column.type}: we cannot write it"
            )
    check_defaults(state.metadata, state.metadata.schema)
    taken = {ROW_ID.name, LAST_UPDATED.name} & set(state.metadata.schema.names)
    if has_lineage(state.metadata) and taken:
        raise InputError(f"column {min(taken)!r} of table {name!r} has a name of row lineage: rename it")
    check_readable(state.metadata, (*state.data, *state.deletes))

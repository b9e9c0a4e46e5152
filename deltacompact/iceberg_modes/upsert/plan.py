"""Plans an upsert: chooses the data files to compare with each other, and says why the others are left out. Pure.

    file    sequence    day         the key is (day, id), so each partition is a key space of its own
    a       5           3
    b       6           3           a and b are compared
    c       5           4           settled: an earlier upsert compared all files up to 5

    order   a, b                    by sequence number, then by path: rows of b win over rows of a

A *key space* is the part of the table within which a key is unique: one partition, or the whole table. If the key
columns include the partition's source columns, and all data files have the same partition spec, all rows of a key lie
in one partition: then each is a key space. Otherwise the whole table is one, unless the user promises more with the
option `scope=partition`.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted, reasons_in_words, size
from deltacompact.iceberg.deletes.matching import DeleteIndex, FileScanTask
from deltacompact.iceberg.deletes.readable import check_markable, check_readable
from deltacompact.iceberg.settled import Settled, has_merged_commits, settled
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.table_state import Scope, TableState, scope_of
from deltacompact.iceberg_modes.plan import GROUPS_SHOWN, ModePlan, ScanTaskGroup
from deltacompact.iceberg_modes.upsert.columns import UpsertColumns, upsert_columns
from deltacompact.iceberg_modes.upsert.options import NAME, Reach, UpsertOptions
from deltacompact.iceberg_modes.words import group_lines

VERSIONS = (2, 3)
"""The format versions with delete files that we know."""

KeySpace = Scope | None
"""A partition. None: the whole table."""


class UpsertReason(enum.StrEnum):
    """Why a data file is compared. Stored plans contain these values, so they must keep their meaning."""

    NEVER_COMPARED = "never_compared"
    CAME_SINCE = "came_since"
    MAY_SHARE_KEYS = "may_share_keys"


@dataclass(frozen=True, slots=True)
class UpsertTask(FileScanTask):
    """A data file to compare, its key space, and why it is compared.

    A file that an earlier upsert compared is compared again if it may share keys with a newer file.
    """

    key_space: KeySpace
    reason: UpsertReason


@dataclass(frozen=True, slots=True)
class SpaceGroup(ScanTaskGroup[UpsertTask]):
    """The files of one key space, which are compared with each other."""

    key_space: KeySpace


@dataclass(frozen=True, slots=True, repr=False)
class UpsertPlan(ModePlan):
    """The plan of an upsert.

    inputs           the files to compare, the oldest first
    settled_files    how many files need no comparison
    settled          what earlier upserts have compared. None: nothing
    through          when the plan is done, all rows up to this sequence number are settled. It is that of the planned
                     snapshot; if this plan repeats a part of another plan, that plan's
    """

    mode: ClassVar[str] = NAME
    options: UpsertOptions
    format_version: int
    columns: UpsertColumns
    reach: Reach
    inputs: tuple[UpsertTask, ...]
    settled_files: int
    settled: Settled | None
    through: int

    @property
    def words(self) -> str:
        """The columns by which rows are compared, and the scope: for people."""
        return f"{self.columns.words}; scope {self.reach.value}"

    @property
    def recorded(self) -> str:
        """The same as `words`, with field ids, as our snapshots and journals store it."""
        return _recorded(self.columns, self.reach)

    @property
    def key_spaces(self) -> tuple[KeySpace, ...]:
        return tuple(dict.fromkeys(source.key_space for source in self.inputs))

    @property
    def groups(self) -> tuple[SpaceGroup, ...]:
        """The key spaces with their files, in the order of their first inputs."""
        found: dict[KeySpace, list[UpsertTask]] = defaultdict(list)
        for source in self.inputs:
            found[source.key_space].append(source)
        return tuple(SpaceGroup(number, tuple(inputs), space) for number, (space, inputs) in enumerate(found.items()))

    def lines(self, groups_max: int | None = GROUPS_SHOWN) -> list[str]:
        lines = [f"compare {counted(len(self.inputs), 'file')} with {counted(self.rows, 'row')} by {self.words}"]
        if len(self.key_spaces) > 1:
            lines.append(f"in {counted(len(self.key_spaces), 'partition')}, each by itself")
        lines += group_lines(self.groups, partial(_group_line, self), groups_max)
        if self.settled_files:
            lines.append(f"settled: {counted(self.settled_files, 'file')}, compared by an earlier upsert")
        return lines

    @property
    def nothing_to_do(self) -> str | None:
        """Why there are no rows to compare. None: there are some."""
        if self.inputs:
            return None
        if self.settled is None:
            return "the branch has no data files"
        files = counted(self.settled_files, "file")
        return f"{files}: no rows came since snapshot {self.settled.snapshot_id} marked all that were superseded"


def _group_line(plan: UpsertPlan, group: SpaceGroup) -> str:
    where = "" if group.key_space is None else f"{plan.named(group.key_space)}: "
    why = reasons_in_words(source.reason for source in group.inputs)
    return f"{where}{counted(len(group.inputs), 'file')} ({why}), {size(group.bytes)}, {counted(group.rows, 'row')}"


def _recorded(columns: UpsertColumns, reach: Reach) -> str:
    return f"{columns.recorded}; scope {reach.value}"


def plan_upsert(state: TableState, options: UpsertOptions, only: frozenset[KeySpace] | None = None) -> UpsertPlan:
    """The plan for a branch. `only`: compare just these key spaces, and all their files again.

    Raises InputError if the table cannot be upserted, or lacks a column.
    """
    empty = plan_of_files(state, options, frozenset())
    spaces = {entry.file.path: _key_space(entry, empty.reach) for entry in state.data}
    wanted = _unsettled(state, spaces, empty.settled) if only is None else only
    return plan_of_files(state, options, frozenset(path for path, space in spaces.items() if space in wanted))


def plan_of_files(state: TableState, options: UpsertOptions, paths: frozenset[str]) -> UpsertPlan:
    """The plan that compares these data files, even if an upsert has compared them. Raises like `plan_upsert`."""
    _refuse(state)
    columns = upsert_columns(state.metadata, options)
    reach = options.reach or _natural_reach(state, columns)
    chosen = sorted(
        (entry for entry in state.data if entry.file.path in paths),
        key=lambda entry: (entry.sequence, entry.file.path.encode()),
    )
    done = settled(state, _recorded(columns, reach))
    _refuse_lost_order(state, chosen, columns, reach, done.until if done else -1, options.trusts_row_order)
    index = DeleteIndex(state if chosen else replace(state, deletes=()))
    return UpsertPlan(
        *state.heading,
        options,
        state.metadata.format_version,
        columns,
        reach,
        tuple(
            UpsertTask(entry, index.applying_to(entry), _key_space(entry, reach), _reason(entry, done))
            for entry in chosen
        ),
        len(state.data) - len(chosen),
        done,
        state.sequence_number,
    )


def _reason(entry: ManifestEntry, done: Settled | None) -> UpsertReason:
    if done is None:
        return UpsertReason.NEVER_COMPARED
    return UpsertReason.CAME_SINCE if _came_after(entry, done.through) else UpsertReason.MAY_SHARE_KEYS


def _refuse_lost_order(
    state: TableState,
    chosen: Sequence[ManifestEntry],
    columns: UpsertColumns,
    reach: Reach,
    until: int,
    trusts_row_order: bool,
) -> None:
    """Refuse a file that merged the rows of several commits, if nothing tells which rows are newer.

    Rows up to the sequence number `until` are settled: each key has one live row there, so their order does not matter.
    A merged file has rows of unknown age. If another file of the key space has a lower sequence number, even sort
    columns do not help: it must be merged, too. If none has, sort columns help. The order of the merged file's rows
    helps if the user trusts it, and no other file has its sequence number: between two such files, nothing but their
    paths would decide.
    """
    of_space: dict[KeySpace, list[ManifestEntry]] = defaultdict(list)
    for entry in chosen:
        if entry.sequence > until:
            of_space[_key_space(entry, reach)].append(entry)
    for entries in of_space.values():  # by sequence number
        if not columns.sort:
            _refuse_unnumbered(entries)
        merged = [entry for entry in entries if has_merged_commits(state.metadata, entry)]
        if merged and (why := _lost_order(merged[-1], entries, columns, trusts_row_order)) is not None:
            remedy = _REMEDY if entries[0].sequence == merged[-1].sequence else f"{_MERGE_ALL}. {_REMEDY}"
            raise InputError(
                f"{merged[-1].file.path}, added by snapshot {merged[-1].snapshot_id}, replaced other files before "
                f"their rows were compared, so nothing says which of its rows are newer{why}. {remedy}"
            )


def _refuse_unnumbered(entries: Sequence[ManifestEntry]) -> None:
    """Refuse files of several version 1 commits: all have the sequence number 0, so only their paths would decide."""
    unnumbered = [entry for entry in entries if entry.sequence == 0]
    for entry in unnumbered[1:]:
        first = unnumbered[0]
        if entry.snapshot_id != first.snapshot_id:
            raise InputError(
                f"{first.file.path} and {entry.file.path}, added by snapshots {first.snapshot_id} and "
                f"{entry.snapshot_id}, are of version 1 of the table, which has no sequence numbers, so nothing says "
                "which rows are newer. Name sort-columns that say it"
            )


_MERGE_ALL = "Rewrite all files first (--mode rewrite, rewrite-all=true, merge-uncompared=true)"
_REMEDY = "Name sort-columns that say it; after that, upsert before other writers merge files"


def _lost_order(
    merged: ManifestEntry, entries: Sequence[ManifestEntry], columns: UpsertColumns, trusts_row_order: bool
) -> str | None:
    """Why nothing tells which rows of a key are newer, as the end of a message. None: something tells.

    `merged` is the newest merged file of `entries`, which are sorted by sequence number.
    """
    oldest = entries[0]
    if oldest.sequence < merged.sequence:
        return f" than those of {oldest.file.path}"
    if columns.sort:
        return None
    if not trusts_row_order:
        return ""
    other = next((entry for entry in entries if entry is not merged and entry.sequence == merged.sequence), None)
    return None if other is None else f" than those of {other.file.path}, whatever the order of rows in each file"


def _key_space(entry: ManifestEntry, reach: Reach) -> KeySpace:
    return scope_of(entry) if reach is Reach.PARTITION else None


def _unsettled(state: TableState, spaces: Mapping[str, KeySpace], done: Settled | None) -> frozenset[KeySpace]:
    """The key spaces that may have rows which no upsert has compared."""
    if done is None:
        return frozenset(spaces.values())
    if not done.has_grown:
        return frozenset()
    return frozenset(spaces[entry.file.path] for entry in state.data if _came_after(entry, done.through))


def _natural_reach(state: TableState, columns: UpsertColumns) -> Reach:
    """PARTITION if the rows of a key can lie in one partition only: the result is the same, and needs less memory."""
    spec_ids = {entry.file.spec_id for entry in state.data}
    if len(spec_ids) != 1:
        return Reach.TABLE
    (spec_id,) = spec_ids
    spec = state.metadata.specs[spec_id]
    sources = {part.source_id for part in spec.fields}
    return Reach.PARTITION if not spec.is_unpartitioned and sources <= columns.key_ids else Reach.TABLE


def _came_after(entry: ManifestEntry, through: int) -> bool:
    """Whether the file was added after this sequence number. Outputs of a rewrite count: their rows may be new."""
    return entry.file_sequence_number is None or entry.file_sequence_number > through


def _refuse(state: TableState) -> None:
    """Refuse a table that an upsert would compare or mark wrongly, before any work."""
    name, version = state.metadata.table_id, state.metadata.format_version
    if version not in VERSIONS:
        advice = ": upgrade it to 2" if version == 1 else ""
        raise InputError(f"table {name!r} has format version {version}, which cannot be upserted{advice}")
    check_readable(state.metadata, (*state.data, *state.deletes))
    check_markable(state.metadata, state.data)

"""Plans a conversion: which equality-delete files are converted, and which data files must be searched for keys. Pure.

    equality e    sequence 6    id 15‥15      applies to a
    equality f    sequence 7    id 90‥99      applies to nothing: no data file has such keys
    data a        sequence 5    id 10‥19      asked: e
    data b        sequence 5    id 20‥29      not opened: no bounds overlap
    data c        sequence 8    id 10‥19      not opened: newer than all deletes

An equality-delete file can be removed once its rows are deleted by position in every data file to which it may apply.
So the keys of all these data files are read. As long as the delete file stays, readers apply it to all its data files.
So it is converted only if all of them are wanted: converting half of them would gain nothing.
"""

from __future__ import annotations

import enum
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted, size
from deltacompact.iceberg.deletes.matching import DeleteIndex, FileScanTask, distinct, each_delete
from deltacompact.iceberg.deletes.readable import check_markable, check_readable
from deltacompact.iceberg.table.content_files import ContentFile, ManifestEntry
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.table_state import Scope, TableState, scope_of
from deltacompact.iceberg_modes.convert.options import NAME, ConvertOptions
from deltacompact.iceberg_modes.plan import GROUPS_SHOWN, ModePlan, ScanTaskGroup
from deltacompact.iceberg_modes.words import group_lines, stays_in_words

VERSIONS = (2, 3)
"""Format versions that have delete files, as far as we know them."""

_DELETES = "equality-delete file"


class ConvertReason(enum.StrEnum):
    """Why an equality-delete file is converted, or stays. Plans contain it, so a value must keep its meaning."""

    APPLIES = "applies"
    APPLIES_TO_NOTHING = "applies_to_nothing"
    BEYOND_MAX_FILES = "beyond_max_files"
    NOT_WANTED = "not_wanted"


@dataclass(frozen=True, slots=True)
class Conversion:
    """An equality-delete file to convert, and to how many data files it may apply."""

    entry: ManifestEntry
    data_files: int

    @property
    def reason(self) -> ConvertReason:
        return ConvertReason.APPLIES if self.data_files else ConvertReason.APPLIES_TO_NOTHING


@dataclass(frozen=True, slots=True)
class ConvertGroup(ScanTaskGroup[FileScanTask]):
    """Data files whose dead rows are committed together. `key_ids`: the field ids of the columns to read."""

    key_ids: frozenset[int]

    @property
    def bytes(self) -> int:
        """The bytes of the key columns, as far as they are known."""
        ids = self.key_ids
        sizes = [(task.entry.file.column_sizes, task.entry.file.file_bytes) for task in self.inputs]
        return sum(sum(of[number] for number in ids) if ids <= of.keys() else whole for of, whole in sizes)


@dataclass(frozen=True, slots=True, repr=False)
class ConvertPlan(ModePlan):
    """The equality-delete files to convert, the data files to search, and the delete files that stay.

    Each data file comes with the equality deletes that may apply to it, and with its deletes by position. `not_opened`
    counts the data files to which no equality delete applies.
    """

    mode: ClassVar[str] = NAME
    options: ConvertOptions
    conversions: tuple[Conversion, ...]
    inputs: tuple[FileScanTask, ...]
    not_opened: int
    stays: tuple[tuple[ConvertReason, int], ...]

    @property
    def delete_paths(self) -> frozenset[str]:
        """The equality deletes to convert."""
        return frozenset(conversion.entry.file.path for conversion in self.conversions)

    @property
    def key_ids(self) -> frozenset[int]:
        """The field ids of all columns by which the planned files delete."""
        return frozenset(number for conversion in self.conversions for number in conversion.entry.file.equality_ids)

    @property
    def groups(self) -> tuple[ConvertGroup, ...]:
        """The data files of each commit: all in one, or some in each with partial progress.

        Data files of one partition are neighbours, so its equality deletes can be removed as soon as it is done.
        Deletes that apply to nothing make a group without data files.
        """
        return tuple(self._groups()) if self.conversions else ()

    def _groups(self) -> Iterator[ConvertGroup]:
        count = self.options.max_commits if self.options.partial_progress else 1
        share = max(1, math.ceil(len(self.inputs) / count))
        for number, start in enumerate(range(0, max(1, len(self.inputs)), share)):
            yield ConvertGroup(number, self.inputs[start : start + share], self.key_ids)

    def lines(self, groups_max: int | None = GROUPS_SHOWN) -> list[str]:
        applying = [conversion for conversion in self.conversions if conversion.data_files]
        lines = []
        if applying:
            keys = counted(sum(conversion.entry.file.rows for conversion in applying), "row")
            rows = counted(sum(conversion.entry.file.rows for conversion in self.inputs), "row")
            files = counted(len(self.inputs), "data file")
            lines.append(f"{counted(len(applying), _DELETES)} with {keys}: may apply to {files} with {rows}")
        if useless := len(self.conversions) - len(applying):
            lines.append(f"{counted(useless, _DELETES)}: no data file can have such keys")
        if self.inputs and len(self.groups) > 1:
            lines += group_lines(self.groups, lambda group: _commit_line(group, len(self.groups)), groups_max)
        if self.not_opened:
            lines.append(f"not opened: {counted(self.not_opened, 'data file')}")
        return [*lines, *(f"stay: {line}" for line in self._stays)]

    @property
    def nothing_to_do(self) -> str | None:
        """Why there is nothing to convert; None: there is something."""
        if self.conversions:
            return None
        if not self.stays:
            return "the branch has no equality deletes"
        return "; ".join(self._stays)

    @property
    def _stays(self) -> list[str]:
        return stays_in_words(self.stays, _DELETES, _WORDS)


_WORDS = {
    ConvertReason.BEYOND_MAX_FILES: "beyond max-files-to-convert",
    ConvertReason.NOT_WANTED: "may apply to data files without rows for which `where` is true",
}


def _commit_line(group: ConvertGroup, commits: int) -> str:
    keys = f"{counted(group.rows, 'row')}, {size(group.bytes)} of keys"
    return f"commit {group.number + 1} of {commits}: {counted(len(group.inputs), 'data file')} with {keys}"


def plan_conversion(
    state: TableState,
    options: ConvertOptions,
    deletes: frozenset[str] | None = None,
    data: frozenset[str] | None = None,
    wanted: Callable[[ContentFile], bool] = lambda file: True,
) -> ConvertPlan:
    """The plan for a branch. `deletes` and `data`: just these files, by path (a part that is done again).

    Deletes that may apply to a data file which is not `wanted` stay. Raises InputError where a file is of a kind that
    cannot be read.
    """
    others = tuple(entry for entry in state.deletes if not entry.file.is_equality_delete)
    equality = [entry for entry in state.deletes if entry.file.is_equality_delete]
    if deletes is not None:
        equality = [entry for entry in equality if entry.file.path in deletes]
    unwanted = [entry for entry in state.data if not wanted(entry.file)]
    reaching = _applying_to(unwanted, state, equality)
    convertible = [entry for entry in equality if entry.file.path not in reaching]
    chosen = sorted(convertible, key=lambda entry: (entry.sequence, entry.file.path))[: options.max_files]
    if chosen:
        _check_version(state.metadata)
    check_readable(state.metadata, chosen)
    index = DeleteIndex(replace(state, deletes=(*chosen, *others)))
    by_scope: dict[Scope, list[FileScanTask]] = defaultdict(list)
    for entry in state.data:
        found = index.applying_to(entry)
        if found.equality and (data is None or entry.file.path in data):
            by_scope[scope_of(entry)].append(FileScanTask(entry, found))
    asked = tuple(task for of_scope in by_scope.values() for task in of_scope)
    check_markable(state.metadata, [task.entry for task in asked])
    counts = _data_files_of([task.deletes.equality for task in asked])
    deletes_of_asked = each_delete(task.deletes for task in asked)
    check_readable(state.metadata, (*(task.entry for task in asked), *deletes_of_asked))
    stays = {
        ConvertReason.BEYOND_MAX_FILES: len(convertible) - len(chosen),
        ConvertReason.NOT_WANTED: len(equality) - len(convertible),
    }
    return ConvertPlan(
        *state.heading,
        options,
        tuple(Conversion(entry, counts[entry.file.path]) for entry in chosen),
        asked,
        len(state.data) - len(asked),
        tuple((reason, count) for reason, count in stays.items() if count),
    )


def _applying_to(data: list[ManifestEntry], state: TableState, equality: list[ManifestEntry]) -> set[str]:
    """The paths of the equality deletes that may apply to one of these data files."""
    if not data or not equality:
        return set()
    index = DeleteIndex(replace(state, deletes=tuple(equality)))
    applying = distinct(index.applying_to(entry).equality for entry in data)
    return {delete.file.path for deletes in applying for delete in deletes}


def _data_files_of(applying: Sequence[tuple[ManifestEntry, ...]]) -> Counter[str]:
    """How many data files each delete applies to, by its path. `applying` has the deletes of each data file."""
    files = Counter(map(id, applying))
    counts: Counter[str] = Counter()
    for deletes in distinct(applying):
        for delete in deletes:
            counts[delete.file.path] += files[id(deletes)]
    return counts


def _check_version(metadata: TableMetadata) -> None:
    name, version = metadata.table_id, metadata.format_version
    if version not in VERSIONS:
        raise InputError(f"table {name!r} has format version {version}, which cannot be converted")

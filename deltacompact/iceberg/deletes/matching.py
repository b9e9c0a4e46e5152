"""Which delete applies to which data file: pure rules over sequence numbers, partitions and column bounds.

    data a       day 3    sequence 5    id 10‥19
    equality e   day 3    sequence 6    id 15‥15        applies: same partition, 5 < 6, bounds overlap
    equality f   day 3    sequence 5    id 15‥15        does not: a delete never hits its own commit (rules 1 and 16)
    equality g   day 4    sequence 9    id 15‥15        does not: another partition (rule 2)
    equality h   all      sequence 9    id 40‥49        does not: bounds do not overlap
    position p   day 3    sequence 5                    applies: 5 <= 5
    vector v     of a     sequence 8                    applies, and supersedes p (rule 18)

Bounds are compared in their stored form, where that keeps the order. Whatever is unknown applies.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from deltacompact.base.errors import CorruptionError
from deltacompact.iceberg.table.column_bounds import WHOLE_NUMBERS, ordered
from deltacompact.iceberg.table.content_files import ContentFile, ManifestEntry
from deltacompact.iceberg.table.lost_partitions import position_scopes
from deltacompact.iceberg.table.metadata import Column
from deltacompact.iceberg.table.table_state import Scope, TableState, scope_of

PATH_COLUMN = 2147483546
"""The field id of `file_path` in position-delete files."""
POSITION_COLUMN = 2147483545
"""The field id of `pos` in position-delete files."""


Value = TypeVar("Value")
_Merged = dict[tuple[int, ...], tuple[ManifestEntry, ...]]


@dataclass(frozen=True, slots=True)
class Deletes:
    """The delete files that may apply to one data file, in the order of their sequence numbers.

    `own`: position deletes that name this file alone. `shared`: those that may name several. They stay apart, because
    data files with the same `shared` have one tuple of it: in one with `own`, each file would have thousands by itself.
    """

    equality: tuple[ManifestEntry, ...] = ()
    shared: tuple[ManifestEntry, ...] = ()
    vector: ManifestEntry | None = None
    own: tuple[ManifestEntry, ...] = ()

    def __len__(self) -> int:
        return len(self.equality) + len(self.shared) + len(self.own) + (self.vector is not None)

    @property
    def alone(self) -> tuple[ManifestEntry, ...]:
        """The deletes by position of this file alone."""
        return self.own if self.vector is None else (*self.own, self.vector)

    @property
    def positions(self) -> tuple[ManifestEntry, ...]:
        """All position deletes."""
        return (*self.own, *self.shared) if self.own else self.shared

    @property
    def by_position(self) -> tuple[ManifestEntry, ...]:
        """Position deletes, or the vector that supersedes them."""
        return self.positions if self.vector is None else (*self.positions, self.vector)


@dataclass(frozen=True, slots=True)
class FileScanTask:
    """A data file, and the deletes that may apply to it: all that must be read to know its live rows.

    A worker gets it as a `FileScan`, and returns a `ScannedFile`.
    """

    entry: ManifestEntry
    deletes: Deletes


class DeleteIndex:
    """Finds the live deletes of a data file. Raises CorruptionError if a data file has two vectors (rule 18).

    Data files with the same equality deletes, or shared position deletes, get the same tuple object: see `distinct`.
    """

    def __init__(self, state: TableState) -> None:
        self._merged: _Merged = {}
        self._position_scope = position_scopes(state.metadata)
        equality: dict[Scope | None, list[ManifestEntry]] = defaultdict(list)
        naming_several: dict[Scope, list[ManifestEntry]] = defaultdict(list)
        self._of_path: dict[str, list[ManifestEntry]] = defaultdict(list)
        self._vectors: dict[str, ManifestEntry] = {}
        for entry in sorted(state.deletes, key=lambda entry: entry.sequence):
            if entry.file.is_equality_delete:
                equality[None if state.is_global(entry) else scope_of(entry)].append(entry)
            elif entry.file.is_deletion_vector and entry.file.referenced_data_file is not None:
                former = self._vectors.setdefault(entry.file.referenced_data_file, entry)
                if former is not entry:
                    raise CorruptionError(f"{entry.file.referenced_data_file} has two deletion vectors")
            elif (path := only_path(entry.file)) is not None:
                self._of_path[path].append(entry)
            else:
                naming_several[self._position_scope(entry)].append(entry)
        columns = state.metadata.columns
        self._equality = {scope: EqualityDeletes(entries, columns) for scope, entries in equality.items()}
        self._naming_several = {scope: _NamingSeveral(entries) for scope, entries in naming_several.items()}

    def task(self, data: ManifestEntry) -> FileScanTask:
        """A data file with the deletes that may apply to it."""
        return FileScanTask(data, self.applying_to(data))

    def applying_to(self, data: ManifestEntry) -> Deletes:
        """The deletes that may apply to a data file."""
        found = (self._equality.get(scope) for scope in (scope_of(data), None))
        equality = _in_one([deletes.applying_to(data) for deletes in found if deletes is not None], self._merged)
        vector = self._vectors.get(data.file.path)
        if vector is not None and vector.sequence >= data.sequence:
            return Deletes(equality, vector=vector)
        scope = self._position_scope(data)
        # a position delete applies to data of its own commit too: <=
        newer = _after(self._of_path.get(data.file.path, []), data.sequence - 1)
        own = tuple(entry for entry in newer if self._position_scope(entry) == scope)
        others = self._naming_several.get(scope)
        shared = () if others is None else others.applying_to(data)
        return Deletes(equality, shared, own=own)


def each_delete(of_files: Iterable[Deletes]) -> Iterator[ManifestEntry]:
    """The deletes of data files. What files share comes once."""
    found = list(of_files)
    yield from chain.from_iterable(distinct(chain.from_iterable((each.equality, each.shared) for each in found)))
    yield from chain.from_iterable(each.alone for each in found)


def distinct(found: Iterable[tuple[ManifestEntry, ...]]) -> list[tuple[ManifestEntry, ...]]:
    """These tuples without repeats. Thousands of data files share a few tuples of thousands of deletes."""
    return list({id(entries): entries for entries in found}.values())


class OncePerTuple(Generic[Value]):
    """What a function makes of a tuple of deletes, made once for each such tuple."""

    def __init__(self, make: Callable[[tuple[ManifestEntry, ...]], Value]) -> None:
        self._make = make
        self._made: dict[int, tuple[tuple[ManifestEntry, ...], Value]] = {}

    def __call__(self, deletes: tuple[ManifestEntry, ...]) -> Value:
        if id(deletes) not in self._made:
            self._made[id(deletes)] = deletes, self._make(deletes)  # held, so that the id stays theirs
        return self._made[id(deletes)][1]


class EqualityDeletes:
    """Equality deletes, matched by sequence numbers and keys, whatever their partitions are."""

    def __init__(self, entries: Iterable[ManifestEntry], columns: Mapping[int, Column]) -> None:
        self._merged: _Merged = {}
        by_ids: dict[tuple[int, ...], list[ManifestEntry]] = defaultdict(list)
        for entry in sorted(entries, key=lambda entry: entry.sequence):
            by_ids[tuple(sorted(entry.file.equality_ids))].append(entry)
        self._keyed = [_Keyed(of_ids, ids, columns) for ids, of_ids in by_ids.items()]

    def applying_to(self, data: ManifestEntry) -> tuple[ManifestEntry, ...]:
        """The deletes that are newer than the data file (rule 1) and may have one of its keys."""
        return _in_one([deletes.applying_to(data) for deletes in self._keyed], self._merged)


def _in_one(found: Sequence[tuple[ManifestEntry, ...]], known: _Merged) -> tuple[ManifestEntry, ...]:
    """The entries of all tuples in one, in the order of sequence numbers: the same one for the same tuples."""
    if len(found) == 1:
        return found[0]
    parts = tuple(map(id, found))
    if parts not in known:
        known[parts] = tuple(sorted(chain(*found), key=lambda entry: entry.sequence))
    return known[parts]


class _ByAge:
    """Deletes in the order of their sequence numbers.

    A stream has thousands of deletes for thousands of data files: the millions of pairs are compared as arrays.
    """

    def __init__(self, entries: Sequence[ManifestEntry]) -> None:
        self._found: dict[tuple[int, bytes], tuple[ManifestEntry, ...]] = {}
        self._entries = np.empty(len(entries), object)
        self._entries[:] = entries
        self._sequences = np.array([entry.sequence for entry in entries], np.int64)

    def _chosen(self, first: int, may: npt.NDArray[np.bool_]) -> tuple[ManifestEntry, ...]:
        """Those from `first` on that `may` apply: the same tuple for the same deletes."""
        chosen = first, np.packbits(may[first:]).tobytes()
        if chosen not in self._found:
            self._found[chosen] = tuple(self._entries[first:][may[first:]].tolist())
        return self._found[chosen]


class _Keyed(_ByAge):
    """Equality deletes by the same columns."""

    def __init__(self, entries: Sequence[ManifestEntry], ids: Sequence[int], columns: Mapping[int, Column]) -> None:
        super().__init__(entries)
        known = [number for number in ids if number in columns and not columns[number].has_default]
        self._ranges = [
            _ColumnRanges([entry.file for entry in entries], number, columns[number].type) for number in known
        ]

    def applying_to(self, data: ManifestEntry) -> tuple[ManifestEntry, ...]:
        may = np.ones(len(self._entries), bool)
        for ranges in self._ranges:
            may &= ranges.may_share_a_value(data.file)
        return self._chosen(int(np.searchsorted(self._sequences, data.sequence, side="right")), may)


class _NamingSeveral(_ByAge):
    """Position deletes of one partition that may name several data files. The bounds of their paths are compared as
    places among all bounds."""

    def __init__(self, entries: Sequence[ManifestEntry]) -> None:
        super().__init__(entries)
        lows = [entry.file.lower_bounds.get(PATH_COLUMN) for entry in entries]
        highs = [entry.file.upper_bounds.get(PATH_COLUMN) for entry in entries]
        self._lows = sorted(low for low in lows if low is not None)
        self._highs = sorted(high for high in highs if high is not None)
        self._low = np.array([0 if low is None else bisect.bisect_right(self._lows, low) for low in lows], np.int64)
        self._high = np.array(
            [len(highs) if high is None else bisect.bisect_left(self._highs, high) for high in highs], np.int64
        )

    def applying_to(self, data: ManifestEntry) -> tuple[ManifestEntry, ...]:
        """The deletes that are as new as the data file, or newer, and may name it."""
        path = data.file.path.encode()
        may = self._low <= bisect.bisect_right(self._lows, path)
        may &= self._high >= bisect.bisect_left(self._highs, path)
        return self._chosen(int(np.searchsorted(self._sequences, data.sequence, side="left")), may)


class _ColumnRanges:
    """One column in many delete files: the range of its values in each, and whether nulls are among them."""

    def __init__(self, files: Sequence[ContentFile], number: int, type_: str) -> None:
        self._number, self._type = number, type_
        self._held: Any = np.int64 if type_ in WHOLE_NUMBERS else object
        pairs = [self._pair(file) for file in files]
        self._known = np.array([None not in pair for pair in pairs], bool)
        nothing = (b"", b"") if any(isinstance(low, bytes) for low, _ in pairs) else (0, 0)
        filled = [nothing if None in pair else pair for pair in pairs]
        self._low = np.array([low for low, _ in filled], self._held)
        self._high = np.array([high for _, high in filled], self._held)
        self._may_be_null = np.array([_may_be_null(file, number) for file in files], bool)
        self._all_null = np.array([_is_all_null(file, number) for file in files], bool)

    def may_share_a_value(self, data: ContentFile) -> npt.NDArray[np.bool_]:
        """Which delete files may share a value of this column with the data file. Null equals null (rule 13)."""
        if _is_all_null(data, self._number):
            return self._may_be_null
        may = ~self._all_null
        pair = self._pair(data)
        if None not in pair and self._known.any():
            low, high = (np.array([bound], self._held) for bound in pair)  # as a scalar, bytes would lose zeros
            may &= (self._low <= high) & (self._high >= low) | ~self._known
        return may | self._may_be_null if _may_be_null(data, self._number) else may

    def _pair(self, file: ContentFile) -> tuple[Any, Any]:
        """The least and the greatest value in the file. None: it is unknown."""
        bounds = (file.lower_bounds.get(self._number), file.upper_bounds.get(self._number))
        return ordered(bounds[0], self._type), ordered(bounds[1], self._type)


def _after(entries: Sequence[ManifestEntry], sequence: int) -> Sequence[ManifestEntry]:
    """The entries with a greater sequence number. `entries` are in the order of their sequence numbers."""
    return entries[bisect.bisect_right(entries, sequence, key=lambda entry: entry.sequence) :]


def only_path(deletes: ContentFile) -> str | None:
    """The one data file that a position-delete file names; None: it may name several."""
    if deletes.referenced_data_file is not None:
        return deletes.referenced_data_file
    low, high = deletes.lower_bounds.get(PATH_COLUMN), deletes.upper_bounds.get(PATH_COLUMN)
    return low.decode() if low is not None and low == high else None


def _may_be_null(file: ContentFile, number: int) -> bool:
    return file.null_value_counts.get(number, 1) > 0


def _is_all_null(file: ContentFile, number: int) -> bool:
    nulls, values = file.null_value_counts.get(number), file.value_counts.get(number)
    return nulls is not None and values is not None and values > 0 and nulls == values


def dangling(state: TableState, gone: Iterable[ManifestEntry], written: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """The live delete files that apply to nothing once `gone` data files are replaced by `written` ones.

    An equality delete applies to nothing if all data files of its partition (of the table, if the delete is global) are
    as new as the delete or newer (rule 8). A position delete names files that existed when it was written, never one of
    ours. It applies to nothing if it names a single file, which is gone, or if all other data files of its partition
    are newer (rule 10).
    """
    removed = {entry.file.path for entry in gone}
    position_scope = position_scopes(state.metadata)
    kept = [entry for entry in state.data if entry.file.path not in removed]
    kept_paths = {entry.file.path for entry in kept}
    least_kept = _least_by(position_scope, kept)
    least = _least_by(scope_of, [*kept, *written])
    least_of_all = min(least.values(), default=None)
    found = []
    for entry in state.deletes:
        if entry.file.is_equality_delete:
            oldest = least_of_all if state.is_global(entry) else least.get(scope_of(entry))
            if oldest is None or entry.sequence <= oldest:
                found.append(entry)
        elif (path := only_path(entry.file)) is not None:
            if path not in kept_paths:
                found.append(entry)
        else:
            oldest = least_kept.get(position_scope(entry))
            if oldest is None or entry.sequence < oldest:
                found.append(entry)
    return found


def _least_by(scoped: Callable[[ManifestEntry], Scope], entries: Iterable[ManifestEntry]) -> dict[Scope, int]:
    least: dict[Scope, int] = {}
    for entry in entries:
        scope = scoped(entry)
        least[scope] = min(entry.sequence, least.get(scope, entry.sequence))
    return least

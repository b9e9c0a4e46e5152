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
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltacompact.catalog.iceberg.content_files import Content, ContentFile, Entry
from deltacompact.catalog.iceberg.metadata import Column
from deltacompact.catalog.iceberg.table_state import Scope, TableState, scope_of

PATH_COLUMN = 2147483546
"""The field id of `file_path` in position-delete files."""
POSITION_COLUMN = 2147483545
"""The field id of `pos` in position-delete files."""

_WHOLE_NUMBERS = ("int", "long", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")


@dataclass(frozen=True, slots=True)
class Deletes:
    """The delete files that may apply to one data file, in the order of their sequence numbers."""

    equality: tuple[Entry, ...] = ()
    positions: tuple[Entry, ...] = ()
    vector: Entry | None = None

    @property
    def all(self) -> tuple[Entry, ...]:
        return (*self.equality, *self.positions, *([self.vector] if self.vector else []))


class DeleteIndex:
    """The live deletes of a table, found by data file."""

    def __init__(self, state: TableState) -> None:
        self._columns = state.metadata.columns
        self._everywhere: list[Entry] = []
        self._equality: dict[Scope, list[Entry]] = defaultdict(list)
        self._positions: dict[Scope, list[Entry]] = defaultdict(list)
        self._of_path: dict[str, list[Entry]] = defaultdict(list)
        self._vectors: dict[str, Entry] = {}
        for entry in sorted(state.deletes, key=lambda entry: entry.sequence):
            if state.is_global(entry):
                self._everywhere.append(entry)
            elif entry.file.content is Content.EQUALITY_DELETES:
                self._equality[scope_of(entry)].append(entry)
            elif entry.file.is_deletion_vector and entry.file.referenced_data_file is not None:
                self._vectors[entry.file.referenced_data_file] = entry
            elif (path := only_path(entry.file)) is not None:
                self._of_path[path].append(entry)
            else:
                self._positions[scope_of(entry)].append(entry)

    def applying_to(self, data: Entry) -> Deletes:
        """The deletes that may apply to a data file."""
        own = self._equality.get(scope_of(data), [])
        # an equality delete applies to older data only: data sequence number < its own (rule 1)
        later = [*_after(own, data.sequence), *_after(self._everywhere, data.sequence)]
        equality = tuple(entry for entry in later if may_share_a_key(data.file, entry.file, self._columns))
        vector = self._vectors.get(data.file.path)
        if vector is not None and vector.sequence >= data.sequence:
            return Deletes(equality, (), vector)
        # a position delete applies to data of its own commit too: <=
        listed = [
            *_after(self._of_path.get(data.file.path, []), data.sequence - 1),
            *_after(self._positions.get(scope_of(data), []), data.sequence - 1),
        ]
        positions = [
            entry for entry in listed if scope_of(entry) == scope_of(data) and may_name(entry.file, data.file.path)
        ]
        return Deletes(equality, tuple(positions))


def _after(entries: Sequence[Entry], sequence: int) -> Sequence[Entry]:
    """Those with a greater sequence number, of entries in the order of sequence numbers."""
    return entries[bisect.bisect_right(entries, sequence, key=lambda entry: entry.sequence) :]


def only_path(deletes: ContentFile) -> str | None:
    """The one data file that a position-delete file names; None: it may name several."""
    if deletes.referenced_data_file is not None:
        return deletes.referenced_data_file
    low, high = deletes.lower_bounds.get(PATH_COLUMN), deletes.upper_bounds.get(PATH_COLUMN)
    return low.decode() if low is not None and low == high else None


def may_name(deletes: ContentFile, path: str) -> bool:
    """Whether a position-delete file may name this data file, by the bounds of its paths."""
    if (only := only_path(deletes)) is not None:
        return only == path
    low, high = deletes.lower_bounds.get(PATH_COLUMN), deletes.upper_bounds.get(PATH_COLUMN)
    return (low is None or low <= path.encode()) and (high is None or path.encode() <= high)


def may_share_a_key(data: ContentFile, deletes: ContentFile, columns: Mapping[int, Column]) -> bool:
    """Whether some row of the data file may have a key of the equality-delete file."""
    return all(_may_share_a_value(data, deletes, number, columns) for number in deletes.equality_ids)


def _may_share_a_value(data: ContentFile, deletes: ContentFile, number: int, columns: Mapping[int, Column]) -> bool:
    if number not in columns or columns[number].has_default:
        return True
    if _may_be_null(data, number) and _may_be_null(deletes, number):
        return True  # null equals null (rule 13)
    if _is_all_null(data, number) or _is_all_null(deletes, number):
        return False
    type_ = columns[number].type
    lows = [_ordered(file.lower_bounds.get(number), type_) for file in (data, deletes)]
    highs = [_ordered(file.upper_bounds.get(number), type_) for file in (data, deletes)]
    if None in lows or None in highs:
        return True
    return bool(lows[0] <= highs[1] and lows[1] <= highs[0])


def _may_be_null(file: ContentFile, number: int) -> bool:
    return file.null_value_counts.get(number, 1) > 0


def _is_all_null(file: ContentFile, number: int) -> bool:
    nulls, values = file.null_value_counts.get(number), file.value_counts.get(number)
    return nulls is not None and values is not None and values > 0 and nulls == values


def _ordered(bound: bytes | None, type_: str) -> Any:
    """A bound as a value that compares as the column does; None: unknown.

    Bounds of floats say nothing about NaN, and those of UUIDs were not always written in one order.
    """
    if bound is None:
        return None
    if type_ in _WHOLE_NUMBERS:
        if len(bound) not in (4, 8) or (type_.startswith("timestamp") and len(bound) != 8):
            return None
        return struct.unpack("<i" if len(bound) == 4 else "<q", bound)[0]
    if type_.startswith("decimal"):
        return int.from_bytes(bound, "big", signed=True)
    return bound if type_ in ("string", "binary") or type_.startswith("fixed") else None


def dangling(state: TableState, gone: Iterable[Entry], written: Iterable[Entry]) -> list[Entry]:
    """The live delete files that apply to nothing once `gone` data files are replaced by `written` ones.

    An equality delete applies to nothing if no data file of its partition, or of the table where it is global, is older
    (rule 8). A position delete names files of its own time, and never one that we write: it applies to nothing if no
    other data file of its partition is as old as it is, or if the one file that it names is gone (rule 10).
    """
    removed = {entry.file.path for entry in gone}
    kept = [entry for entry in state.data if entry.file.path not in removed]
    kept_paths = {entry.file.path for entry in kept}
    least_kept = _least_by_scope(kept)
    least = _least_by_scope([*kept, *written])
    least_of_all = min(least.values(), default=None)
    found = []
    for entry in state.deletes:
        if entry.file.content is Content.EQUALITY_DELETES:
            oldest = least_of_all if state.is_global(entry) else least.get(scope_of(entry))
            if oldest is None or entry.sequence <= oldest:
                found.append(entry)
        elif (path := only_path(entry.file)) is not None:
            if path not in kept_paths:
                found.append(entry)
        else:
            oldest = least_kept.get(scope_of(entry))
            if oldest is None or entry.sequence < oldest:
                found.append(entry)
    return found


def _least_by_scope(entries: Iterable[Entry]) -> dict[Scope, int]:
    least: dict[Scope, int] = {}
    for entry in entries:
        scope = scope_of(entry)
        least[scope] = min(entry.sequence, least.get(scope, entry.sequence))
    return least

"""Whether marks are still right on a later head than the one that they were written for: pure.

marked at 5    version 2: p1 names rows of a, without those that p named      version 3: vector of a, with p's rows
head is 8      a, p, append b           as it was
               a, p, q                  version 2: as it was, deletes add up
                                        version 3: changed, our vector lacks the rows of q
               a, positions pp          changed: p is gone, and we do not know what became of the rows that it named
               b                        gone: a's dead rows do not matter any more
               a (7), b                 gone, too: a was added again under sequence number 7, and our mark would hit it
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from deltacompact.iceberg.deletes.matching import DeleteIndex, Deletes, FileScanTask, OncePerTuple, only_path
from deltacompact.iceberg.marks.marking import VECTORS_SINCE, Mark
from deltacompact.iceberg.table.content_files import Content, ManifestEntry
from deltacompact.iceberg.table.table_state import TableState

_Keys = frozenset[tuple[str, int | None]]


class Standing(enum.StrEnum):
    """What other commits did to a data file since its dead rows were found."""

    AS_IT_WAS = "as_it_was"
    CHANGED = "changed"
    GONE = "gone"


class MarkedHead:
    """The current head, against which marks are checked."""

    def __init__(self, state: TableState) -> None:
        self._has_vectors = state.metadata.format_version >= VECTORS_SINCE
        self._data = {entry.file.path: entry for entry in state.data}
        by_position = tuple(entry for entry in state.deletes if entry.file.content is Content.POSITION_DELETES)
        self._deletes = DeleteIndex(replace(state, deletes=by_position))
        self._keys = OncePerTuple(_keys)
        self._lost: dict[tuple[int, int], _Keys] = {}
        self._of_path: dict[str, list[ManifestEntry]] = defaultdict(list)
        for entry in by_position:
            if (path := only_path(entry.file)) is not None:
                self._of_path[path].append(entry)

    def standing(self, entry: ManifestEntry, former: Deletes) -> Standing:
        """What became of a data file, and of its deletes by position. `former`: those it had when it was marked."""
        now = self._data.get(entry.file.path)
        if now is None or self._is_added_again(entry):
            return Standing.GONE
        deletes = self._deletes.applying_to(now)
        is_same = self._has_all(deletes, former) and (not self._has_vectors or self._has_all(former, deletes))
        return Standing.AS_IT_WAS if is_same else Standing.CHANGED

    def _has_all(self, of: Deletes, others: Deletes) -> bool:
        """Whether the one has the other's deletes by position, wherever: shared, or alone."""
        shared, of_others = self._keys(of.shared), self._keys(others.shared)
        pair = id(of_others), id(shared)
        if pair not in self._lost:  # thousands of data files share thousands of deletes
            self._lost[pair] = of_others - shared
        lost, alone = self._lost[pair], _keys(others.alone) - shared
        if not lost and not alone:
            return True
        keys = _keys(of.alone)
        return lost <= keys and alone <= keys

    def task(self, entry: ManifestEntry) -> FileScanTask:
        """A data file that is live, with the deletes by position of the head."""
        return self._deletes.task(self._data[entry.file.path])

    def _is_added_again(self, entry: ManifestEntry) -> bool:
        now = self._data.get(entry.file.path)
        return now is not None and now.sequence_number != entry.sequence_number

    def takes(self, mark: Mark) -> bool:
        """Whether the mark may be committed.

        Not if the table was upgraded meanwhile and needs vectors (rule 18), and not if a marked file was removed and
        another one added under its name: the mark would hit that one's rows.
        """
        hits_others = any(self._is_added_again(task.entry) for task in mark.of)
        return mark.file.is_deletion_vector == self._has_vectors and not hits_others

    def superseded(self, marks: Iterable[Mark]) -> list[ManifestEntry]:
        """The deletes that the marks' vectors replace: those that name only a marked data file (rule 18)."""
        if not self._has_vectors:
            return []
        return [old for mark in marks for task in mark.of for old in self._of_path.get(task.entry.file.path, [])]


def _keys(deletes: Iterable[ManifestEntry]) -> _Keys:
    return frozenset(entry.file.key for entry in deletes)

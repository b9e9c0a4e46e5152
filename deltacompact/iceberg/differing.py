"""Data files that two states of a table do not share, or that have other deletes in one of them. Pure.

before    a, b: e, c         a has the same deletes in both: nobody has to open it
after     a, b: e, p  d      only before: c      both: b      only after: d
"""

from __future__ import annotations

from deltacompact.iceberg.deletes.matching import DeleteIndex, FileScanTask, OncePerTuple
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.table_state import TableState


def differing(before: TableState, after: TableState) -> tuple[list[FileScanTask], list[FileScanTask]]:
    """The files of each side, with their deletes, whose live rows may differ on the other side."""
    sides = _Side(before), _Side(after)
    shared = sides[0].by_path.keys() & sides[1].by_path.keys()
    same = {path for path in shared if sides[0].told(path) == sides[1].told(path)}
    first, second = ([side.task(path) for path in side.by_path if path not in same] for side in sides)
    return first, second


class _Side:
    """The data files of one state by path, and the deletes that apply to each."""

    def __init__(self, state: TableState) -> None:
        self.by_path: dict[str, ManifestEntry] = {entry.file.path: entry for entry in state.data}
        self._index = DeleteIndex(state)
        self._keys = OncePerTuple(_keys)

    def task(self, path: str) -> FileScanTask:
        return self._index.task(self.by_path[path])

    def told(self, path: str) -> tuple[object, ...]:
        """All that decides which rows of a file live. If it is equal on both sides, so are the live rows."""
        entry = self.by_path[path]
        deletes = self._index.applying_to(entry)
        return entry.sequence, self._keys(deletes.equality), self._keys(deletes.shared), _keys(deletes.alone)


def _keys(deletes: tuple[ManifestEntry, ...]) -> frozenset[tuple[object, int]]:
    return frozenset((entry.file.key, entry.sequence) for entry in deletes)

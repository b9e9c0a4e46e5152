"""Marks, in the outputs of a group, the rows that others deleted since its plan, so that it is not written again.

    planned    a: rows 0 1 2    c: rows 0 1    written    y: a 0, a 1, a 2, c 0, c 1
    head       a with a vector of row 1        c is gone: another writer copied it to d, without its row 0
    followed   rows 1, 3, 4 of y are dead      their marks go into the snapshot that puts y in the place of a

Why the branch has the same rows afterwards. Each row of a source that lived at the plan has one place in the outputs.
At the head it lives if its source is there, and no delete hits it.

- A source is gone: none of its rows lives there, whatever became of copies of them. All of its places are marked.
- A delete by position, or a vector, of the head: the row's place is marked. A mark gets the number of its own snapshot,
  so it applies to the outputs, which are older. Nobody else can have planned on an output before it was there.
- A delete by key that is newer than the plan applies to the outputs as to the sources: they have the plan's number
  (validation.py refuses all others).

Rows that were sorted, or that went to several partitions, have one place, too: each output says which rows it has
(iceberg/row_map.py). An output of which too many rows are dead is written again by itself, once it is committed.

A row that was dead at the plan is in no output, so it must be dead at the head. It is, as long as the deletes of the
plan are there. If one of them is gone, the head must delete the same rows by position: a newer vector contains the
former one's rows, and a conversion marks the rows of a delete by key. If we cannot see that, the group is written
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from deltacompact.base.distinct import distinct_numbers
from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.numbers import Ordinal
from deltacompact.base.wording import text_of
from deltacompact.iceberg.commit.proposal import addition
from deltacompact.iceberg.deletes.dead_rows import dead_positions, deleted_positions, kill
from deltacompact.iceberg.deletes.matching import Deletes, FileScanTask
from deltacompact.iceberg.marks.finding import scan_of
from deltacompact.iceberg.marks.marking import FileToMark
from deltacompact.iceberg.row_map import RowMap, Rows
from deltacompact.iceberg_modes.marking import MarkerOf
from deltacompact.iceberg_modes.rewrite.proposals import Following, Rewritten
from deltacompact.iceberg_modes.rewrite.stored_row_map import KeptNumbers
from deltacompact.iceberg_modes.rewrite.validation import ChangedSource, RewriteHead, RewriteProblem
from deltacompact.index.live_bitmaps import live_mask
from deltacompact.storage.objects import ObjectStore

POSITIONS_MAX = 50_000_000
"""The most deleted positions that are held in memory, less where memory is bounded. If a commit deleted more, groups
are written again."""

_Dead = npt.NDArray[np.bool_]
"""Whether each row of a data file is dead."""
_Known = tuple[frozenset[tuple[str, int | None]], _Dead | None]
_NOTHING: _Known = frozenset(), None


@dataclass(slots=True)
class Follower:
    """Writes the marks of groups that others touched. `notes` are for the result. Bounded memory lowers the limits of
    `reading`: what is held is lowered alike.

    An attempt costs what others did since the one before:

    known       for each data file, the deletes that were read, and the rows that they kill
    places      for each group, where rows that died are in the outputs
    """

    store: ObjectStore
    marker: MarkerOf
    reading: ReadLimits
    notes: list[str]
    known: dict[str, _Known] = field(default_factory=dict)
    places: dict[int, _PlacesOfDead] = field(default_factory=dict)
    numbers: KeptNumbers = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = KeptNumbers(self.reading.run_bytes)

    def __call__(self, head: RewriteHead, groups: Sequence[Rewritten]) -> Following:
        """The groups whose rows can be followed, and their marks. If a file is bad: nothing, with a note."""
        groups = [
            rewritten for rewritten in groups if rewritten.row_map is not None and not head.is_gone(rewritten.group)
        ]
        try:
            return self._followed(head, groups) if groups else Following()
        except (InputError, CorruptionError, NotFoundError) as error:
            self.notes.append(f"deletes of others could not be followed, so groups are written again: {text_of(error)}")
            return Following()

    def _followed(self, head: RewriteHead, groups: Sequence[Rewritten]) -> Following:
        changed = {source.path: source for rewritten in groups for source in head.changed(rewritten.group)}
        rows_of = {delete.file.key: delete.file.rows for source in changed.values() for delete in source.by_position}
        if sum(rows_of.values()) > POSITIONS_MAX * self.reading.run_bytes / READ_LIMITS.run_bytes:
            return Following(why=RewriteProblem.TOO_MANY_POSITIONS)
        dead = self._dead([FileScanTask(source.now, source.deletes) for source in changed.values() if source.now])
        followed: dict[int, Rewritten] = {}
        to_mark: list[FileToMark] = []
        worn: set[str] = set()
        for rewritten in groups:
            places = self._places(rewritten)
            if self._keeps_dead([changed.get(path) for path in _paths(rewritten)], places.row_map.live, dead):
                of_outputs = places.of([_killed(changed.get(path), dead) for path in _paths(rewritten)])
                whole = [file.rows for file in rewritten.outputs]
                empty = {number for number, of_output in of_outputs.items() if len(of_output) == whole[number]}
                outputs = tuple(file for number, file in enumerate(rewritten.outputs) if number not in empty)
                followed[rewritten.group.number] = replace(rewritten, outputs=outputs)
                for number in of_outputs.keys() - empty:
                    file = rewritten.outputs[number]
                    to_mark.append(
                        FileToMark(FileScanTask(addition(file, head.next_number), Deletes()), of_outputs[number])
                    )
                    if len(of_outputs[number]) >= head.options.delete_ratio_threshold * file.rows:
                        worn.add(file.path)
        marks = tuple(self.marker(head.metadata).marks(to_mark)) if to_mark else ()
        return Following(followed, marks, frozenset(worn))

    def _places(self, rewritten: Rewritten) -> _PlacesOfDead:
        if (number := rewritten.group.number) not in self.places:
            assert rewritten.row_map is not None
            row_map = rewritten.row_map.opened(self.store, [file.rows for file in rewritten.outputs], self.numbers)
            self.places[number] = _PlacesOfDead(row_map, [_NONE] * len(rewritten.group.inputs))
        return self.places[number]

    def _dead(self, tasks: Sequence[FileScanTask]) -> dict[str, _Dead]:
        """The rows of data files that are deleted by position. Deletes read at a former attempt are not read again."""
        unread: list[tuple[FileScanTask, FileScanTask]] = []
        for task in tasks:
            read, _ = self.known.get(task.entry.file.path, _NOTHING)
            deletes = task.deletes
            if not read <= _keys(deletes):  # a newer vector takes the place of the former one
                del self.known[task.entry.file.path]
            elif read:
                positions = tuple(entry for entry in deletes.positions if entry.file.key not in read)
                vector = None if deletes.vector is None or deletes.vector.file.key in read else deletes.vector
                deletes = Deletes(deletes.equality, positions, vector)
            if deletes.by_position or task.entry.file.path not in self.known:
                unread.append((task, FileScanTask(task.entry, deletes)))
        for (task, _), now in zip(unread, self._read([part for _, part in unread]).values(), strict=True):
            path = task.entry.file.path
            _, before = self.known.get(path, _NOTHING)
            self.known[path] = _keys(task.deletes), now if before is None else before | now
        return {path: dead for path, (_, dead) in self.known.items() if dead is not None}

    def _read(self, tasks: Sequence[FileScanTask]) -> dict[str, _Dead]:
        """Which rows of some data files these deletes kill."""
        scans = [scan_of(Ordinal(0), task) for task in tasks]
        found = {}
        deleted = deleted_positions(self.store, scans, self.reading)
        for scan, positions in zip(scans, dead_positions(self.store, scans, deleted), strict=True):
            lives = np.ones(scan.stored.rows, bool)
            kill(lives, positions, scan)
            found[scan.stored.path] = ~lives
        return found

    def _keeps_dead(
        self,
        sources: Sequence[ChangedSource | None],
        live: Sequence[npt.NDArray[np.uint8]],
        dead: Mapping[str, _Dead],
    ) -> bool:
        """Whether the rows that were dead at the plan are dead at the head, too, although planned deletes are gone."""
        for source, bits in zip(sources, live, strict=True):
            if source is None or source.now is None or not len(source.lost):
                continue
            now = dead[source.path]
            was_dead = ~live_mask(bits, len(now))
            if (was_dead & ~now).any():
                by_position = FileScanTask(source.planned.entry, replace(source.lost, equality=()))
                if source.lost.equality or (self._read([by_position])[source.path] & ~now).any():
                    return False
        return True


_NONE: _Dead = np.zeros(0, bool)
_NO_ROWS: Rows = np.empty(0, np.int64)


@dataclass(slots=True)
class _PlacesOfDead:
    """Where the dead rows of a group's sources are in its outputs. `dead`: the rows of each source that are found."""

    row_map: RowMap
    dead: Sequence[_Dead]
    found: dict[int, Rows] = field(default_factory=dict)

    def of(self, dead: Sequence[_Dead]) -> Mapping[int, Rows]:
        """(output, its rows). Only rows that were not dead before are looked for."""
        if any(map(_some_live_again, self.dead, dead)):
            self.dead, self.found = [_NONE] * len(dead), {}
        new = [_new(before, now) for before, now in zip(self.dead, dead, strict=True)]
        if any(map(len, new)):
            for output, rows in self.row_map.translate(new):
                self.found[output] = distinct_numbers(np.concatenate([self.found.get(output, rows), rows]))
        self.dead = dead
        return self.found


def _some_live_again(before: _Dead, now: _Dead) -> bool:
    return len(before) > 0 and before is not now and (not len(now) or bool((before & ~now).any()))


def _new(before: _Dead, now: _Dead) -> Rows:
    return np.flatnonzero(now & ~before if len(before) else now) if before is not now else _NO_ROWS


def _keys(deletes: Deletes) -> frozenset[tuple[str, int | None]]:
    return frozenset(entry.file.key for entry in deletes.by_position)


def _paths(rewritten: Rewritten) -> list[str]:
    return [source.entry.file.path for source in rewritten.group.inputs]


def _killed(source: ChangedSource | None, dead: Mapping[str, _Dead]) -> _Dead:
    """The rows of a source that are dead by position at the head, or all, because the source is gone."""
    if source is None:
        return _NONE
    return np.ones(source.planned.entry.file.rows, bool) if source.now is None else dead[source.path]

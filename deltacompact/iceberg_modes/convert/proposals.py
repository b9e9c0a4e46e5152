"""What a snapshot with converted deletes would change on a head: pure, but for what `follow` reads and writes.

    searched   a: e, f -> mark p1          b: f -> no row of it is dead
    head       a, b, e, f; append c        removed e and f, added p1: c is newer than both
               b, f                        removed f: a is gone, so its marks are not needed
               a, b, e, f; vector v of a   version 3: our vector lacks the rows of v, so a is marked once more
               a, b, e, f; data d, old     f stays if it may apply to d, which another compactor wrote
               a, b, f                     a is searched again: e is gone, and rows that it deleted may live again

A delete is removed only if the rows that it deletes are deleted by position in every live data file to which it may
apply (rules 1, 2, 8 and 9). The snapshot is an `overwrite`, because others must check their work against it (rule 23):
a compactor that has read `a` without p1 must not commit its outputs any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from deltacompact.iceberg.commit.proposal import OVERWRITE, Proposal, addition, same_rows
from deltacompact.iceberg.deletes.matching import DeleteIndex, FileScanTask, OncePerTuple, distinct
from deltacompact.iceberg.marks.marking import FileToMark, Mark, with_marks
from deltacompact.iceberg.marks.standing import MarkedHead, Standing
from deltacompact.iceberg.marks.tasks import DeadRowsIn
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.table_state import TableState


@dataclass(frozen=True, slots=True)
class Converted:
    """Data files that were searched, and the delete files for their newly dead rows.

    settled    data files of earlier commits of this run, with the deletes by position that they have since then
    groups     how many groups the data files belong to
    dead       by path, the rows that deletes by key kill, without files in which they kill none. None: no longer known
    """

    asked: tuple[FileScanTask, ...]
    marks: tuple[Mark, ...]
    settled: tuple[FileScanTask, ...] = ()
    groups: int = 1
    dead: Mapping[str, DeadRowsIn] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class ConvertOutcome:
    """What is in the snapshot, and what must be done again.

    settled       all data files whose dead rows are deleted by position now, those of earlier commits included
    touched       data files that others changed, so that they must be asked again
    marks         the delete files that are in the snapshot
    removed       how many equality-delete files it removes
    left          how many of the planned ones stay
    superseded    how many deletion vectors and position-delete files it removes, because a new vector has their rows
    group_count   how many groups the data files belong to
    """

    settled: tuple[FileScanTask, ...]
    touched: tuple[FileScanTask, ...]
    marks: tuple[Mark, ...]
    removed: int
    left: int
    superseded: int
    group_count: int

    @property
    def paths(self) -> frozenset[str]:
        """The files that are in the snapshot."""
        return frozenset(mark.file.path for mark in self.marks)

    @property
    def marked(self) -> frozenset[str]:
        """The data files that are marked in it."""
        return frozenset(task.entry.file.path for mark in self.marks for task in mark.of)


Follow: TypeAlias = Callable[[TableMetadata, Sequence[FileToMark]], Sequence[Mark] | None]
"""Marks data files once more, as the head has them. None: they have to be asked again."""


def follow_nothing(metadata: TableMetadata, dead: Sequence[FileToMark]) -> None:
    return None


@dataclass(frozen=True, slots=True)
class ProposeConversion:
    """Proposes to add the marks that are still true, and to remove the equality deletes that they replace.

    `deletes`: the paths of the equality deletes that may be removed."""

    deletes: frozenset[str]
    converted: Converted
    certified: Mapping[int, str] = field(default_factory=dict, hash=False)
    follow: Follow = follow_nothing

    def __call__(self, state: TableState) -> Proposal[ConvertOutcome]:
        head = MarkedHead(state)
        equality = {entry.file.path: entry for entry in state.deletes if entry.file.is_equality_delete}
        gone = self.deletes - equality.keys()
        is_undone = OncePerTuple(lambda deletes: any(delete.file.path in gone for delete in deletes))
        standings = {task.entry.file.path: _standing(head, task, is_undone) for task in self.converted.asked}
        marks, standings = _true_marks(head, self.converted.marks, standings)
        changed = [task for task in self.converted.asked if standings[task.entry.file.path] is Standing.CHANGED]
        again, now = self._marked_again(head, state, [task for task in changed if not is_undone(task.deletes.equality)])
        marks = (*marks, *again)
        marked = now | with_marks(marks)
        standings |= dict.fromkeys(now, Standing.AS_IT_WAS)
        asked: dict[Standing, list[FileScanTask]] = {standing: [] for standing in Standing}
        for task in self.converted.asked:
            asked[standings[task.entry.file.path]].append(task)
        settled = (
            *(task for task in self.converted.settled if head.standing(task.entry, task.deletes) is Standing.AS_IT_WAS),
            *(marked.get(task.entry.file.path, task) for task in asked[Standing.AS_IT_WAS]),
        )
        planned = [entry for path, entry in equality.items() if path in self.deletes]
        removed = _applying_to_none(planned, state, settled)
        superseded = head.superseded(marks)
        outcome = ConvertOutcome(
            settled,
            tuple(asked[Standing.CHANGED]),
            marks,
            len(removed),
            len(planned) - len(removed),
            len(superseded),
            self.converted.groups,
        )
        added = tuple(addition(mark.file) for mark in marks)
        summary = same_rows(state.metadata, state.snapshot, self.certified)
        return Proposal(OVERWRITE, (*removed, *superseded), added, outcome, summary, has_followed=bool(again))

    def _marked_again(
        self, head: MarkedHead, state: TableState, changed: Sequence[FileScanTask]
    ) -> tuple[Sequence[Mark], dict[str, FileScanTask]]:
        """The marks of data files whose deletes by position have changed, and these files as the head has them."""
        dead = self.converted.dead
        if dead is None or not changed:
            return (), {}
        now = {task.entry.file.path: head.task(task.entry) for task in changed}
        marks = self.follow(
            state.metadata, [FileToMark(task, dead[path]) for path, task in now.items() if path in dead]
        )
        return ((), {}) if marks is None else (marks, now)


def _applying_to_none(
    planned: Sequence[ManifestEntry], state: TableState, settled: Sequence[FileScanTask]
) -> list[ManifestEntry]:
    """The planned equality deletes that apply to no live data file, except for settled ones."""
    paths = {task.entry.file.path for task in settled}
    index = DeleteIndex(state)
    others = (entry for entry in state.data if entry.file.path not in paths)
    applying = distinct(index.applying_to(entry).equality for entry in others)
    needed = {delete.file.path for deletes in applying for delete in deletes}
    return [entry for entry in planned if entry.file.path not in needed]


def _standing(head: MarkedHead, task: FileScanTask, is_undone: OncePerTuple[bool]) -> Standing:
    """What became of a data file. It counts as changed, too, if one of its deletes by key is gone."""
    standing = head.standing(task.entry, task.deletes)
    return Standing.CHANGED if standing is Standing.AS_IT_WAS and is_undone(task.deletes.equality) else standing


def _true_marks(
    head: MarkedHead, marks: Sequence[Mark], standings: dict[str, Standing]
) -> tuple[tuple[Mark, ...], dict[str, Standing]]:
    """The marks that are still true. If a mark is wrong for one data file, its other data files have changed, too."""
    found, after = [], dict(standings)
    for mark in marks:
        of_mark = {task.entry.file.path: standings[task.entry.file.path] for task in mark.of}
        if Standing.CHANGED in of_mark.values() or not head.takes(mark):
            after |= {path: Standing.CHANGED for path, was in of_mark.items() if was is not Standing.GONE}
        elif Standing.AS_IT_WAS in of_mark.values():
            found.append(mark)
    return tuple(found), after

"""Marks that other writers made untrue are written once more, from rows that were found: no key is searched again.

asked      a: e kills rows 1, 4               marked      vector of a: 1 4
head       a: another vector has row 2        followed    vector of a: 1 2 4, in place of theirs

Why that is right. Which rows the deletes by key kill in a data file depends on these deletes and that file alone, and
both never change. So while the deletes are there, these rows are dead, and the file's other dead rows are those that
the head's deletes by position name: a vector for both has all of them, whatever came, went, or was lost in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.wording import text_of
from deltacompact.iceberg.marks.marking import FileToMark, Mark
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg_modes.marking import MarkerOf


@dataclass(frozen=True, slots=True)
class MarkAgain:
    """Writes marks of data files as the head has them. None, with a note, where a file is bad: they are asked again."""

    marker: MarkerOf
    notes: list[str]

    def __call__(self, metadata: TableMetadata, dead: Sequence[FileToMark]) -> Sequence[Mark] | None:
        try:
            return self.marker(metadata).marks(dead) if dead else ()
        except (InputError, CorruptionError, NotFoundError) as error:
            self.notes.append(f"deletes of others could not be followed, so files are asked again: {text_of(error)}")
            return None

"""Writes marks once more that other writers made wrong, from the rows found before: no key is searched again.

asked      a: e kills rows 1, 4               marked      vector of a: 1 4
head       a: another vector has row 2        followed    vector of a: 1 2 4, in place of theirs

Why that is right. Which rows the deletes by key kill in a data file depends on these deletes and that file alone, and
both never change. So while the deletes are there, these rows are dead. The file's other dead rows are named by the
head's deletes by position. So a vector of both has all dead rows, whatever came or went in between.
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
    """Writes marks of data files for the current head. None, with a note, if a file is bad: its keys are read again."""

    marker: MarkerOf
    notes: list[str]

    def __call__(self, metadata: TableMetadata, dead: Sequence[FileToMark]) -> Sequence[Mark] | None:
        try:
            return self.marker(metadata).marks(dead) if dead else ()
        except (InputError, CorruptionError, NotFoundError) as error:
            self.notes.append(f"deletes of others could not be followed, so files are asked again: {text_of(error)}")
            return None

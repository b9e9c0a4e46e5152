"""The decoded bytes of a file that a reader holds at once, from what the log says of the file. Pure.

    text                          read whole: held as text once, and decoded twice
    small row groups              decoded together
    a large Parquet row group     decoded bit by bit, but its pages may be large
    the same, rows of any size    decoded in one batch, and held twice: as read, and as it waits to be written
    unknown row groups            (logs of earlier releases) taken to have as many rows as ours, and four times the
                                  stored size

Of the widest row there are several copies besides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deltacompact.base.data_file import DataFile
from deltacompact.base.model import ContentType
from deltacompact.planning.sizing import task_memory
from deltacompact.tabular import formats


@dataclass(frozen=True, slots=True)
class ReaderMemory:
    """How files are read.

    run_bytes         row groups are decoded together up to this size
    row_group_rows    of the files that we write
    has_any_width     whether rows may have any size: some column has texts, bytes or lists
    """

    run_bytes: int
    row_group_rows: int
    has_any_width: bool

    def most(self, files: Iterable[DataFile]) -> int:
        """The bytes that are held of the file of which most is held. Files have rows."""
        return int(max(map(self._of, files), default=0))

    def undivided(self, files: Iterable[DataFile], assumed: bool = False) -> int:
        """The part of `most` that is held however little is read at once: copies of a wide row, and text.

        `assumed`: if nobody measured the widest row of a file, it may fill a row group.
        """

        def of(file: DataFile) -> float:
            if file.content_type in formats.UNTYPED:
                return self._of(file)
            return _copies(self._widest_row(file) if assumed else file.widest_row_bytes or 0)

        return int(max(map(of, files), default=0))

    def _of(self, file: DataFile) -> float:
        """If nobody measured the widest row, it may fill a row group: then its copies are all that is held."""
        held, copies = self._without_copies(file), _copies(self._widest_row(file))
        return max(held, copies) if file.widest_row_bytes is None else held + copies

    def _without_copies(self, file: DataFile) -> float:
        decoded = file.likely_decoded_bytes
        if file.content_type in formats.UNTYPED:
            return (decoded + file.bytes) * 3 / 4
        if file.group_bytes is None:
            share = min(1.0, self.row_group_rows / file.rows)
            return max(4 * file.bytes * share, decoded * share, min(decoded, self.run_bytes))
        if file.content_type is ContentType.PARQUET and file.group_bytes > self.run_bytes and not self.has_any_width:
            return self.run_bytes + file.group_bytes / 4
        at_rest = file.group_bytes / 2 if self.has_any_width else 0.0
        return max(file.group_bytes, min(decoded, self.run_bytes)) + at_rest

    def _widest_row(self, file: DataFile) -> int:
        """Bytes of the widest row, at most: if unknown, those of a row group. 0: all rows have one size."""
        if not self.has_any_width:
            return 0
        known = file.widest_row_bytes or file.group_bytes or file.decoded_bytes
        return task_memory.ROW_BYTES_MAX if known is None else min(task_memory.ROW_BYTES_MAX, known)


def _copies(row_bytes: int) -> float:
    """A task holds four times what a reader does, and so many copies of a row in all."""
    return row_bytes * task_memory.ROW_COPIES / 4

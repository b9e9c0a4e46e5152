"""The answer of `advise`, for both kinds of table: what clustering the table would bring, and cost.

day         depth 3.1 now       1 if files were clustered       a line for each column, and for all together
rewrite     240 files           96 core-seconds                 107 reads pay for it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from deltacompact.base.expected import Expected
from deltacompact.base.wording import counted, size
from deltacompact.layout.boxes import Boxes
from deltacompact.layout.depth import LayoutDepth

READS = 100
"""The default: clustering should pay for itself within so many reads."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The depth of a column, or of all columns together, now and if the files were clustered. None: unknown."""

    now: LayoutDepth
    clustered: LayoutDepth | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Advice:
    """What clustering a table would bring and cost.

    outlooks                        one for each column; if there are several columns, also one for all together
    rewrite_files, rewrite_bytes    the files that overlap, and would be rewritten
    saved_s                         core-seconds that each read would save. None: no columns were named
    pays_after                      the number of reads that pay for the rewrite. None: it never pays
    worth_it                        whether `pays_after` is at most `reads`
    boxes                           the boxes of the files, to draw them
    """

    table_id: str
    columns: tuple[str, ...]
    partitions: int
    files: int
    bytes: int
    outlooks: tuple[Outlook, ...]
    reads: int
    rewrite_files: int = 0
    rewrite_bytes: int = 0
    expected: Expected | None = None
    saved_s: float | None = None
    pays_after: int | None = None
    notes: tuple[str, ...] = ()
    boxes: Boxes | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        depths = ", ".join(f"{' and '.join(outlook.now.columns)} {outlook.now.mean:,.1f}" for outlook in self.outlooks)
        what = f"{counted(self.files, 'file')}, {size(self.bytes)}"
        return f"advice on {self.table_id!r}: {what}; depth: {depths or 'none'}"

    @property
    def worth_it(self) -> bool:
        return self.pays_after is not None and self.pays_after <= self.reads


def left_alone(files: int) -> Iterator[str]:
    """The note on this number of files in cold storage classes. Nothing for 0."""
    if files:
        yield f"{counted(files, 'file')} in S3's classes for infrequent access or archives: left alone"

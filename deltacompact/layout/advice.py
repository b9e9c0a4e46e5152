"""What is said of a table before it is clustered, whatever kind of table it is: the answer of `advise`.

day         depth 3.1 now       1 if files were clustered       one for each column, and for all together
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
"""The default number of reads that are expected to pay for the work."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The depth of a column, or of all together, and what it would be if files were clustered."""

    now: LayoutDepth
    clustered: LayoutDepth | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Advice:
    """What clustering a table would bring and cost. `outlooks`: each column, and where there are several, all of them.

    rewrite_files, rewrite_bytes    what overlaps, and would be written anew
    saved_s                         core-seconds that a read takes less; None: no columns were named
    pays_after                      so many reads pay for the work; None: it never does
    worth_it                        whether that is no more than `reads`
    boxes                           of the files: for those who draw them
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
        depths = ", ".join(f"{' and '.join(one.now.columns)} {one.now.mean:,.1f}" for one in self.outlooks)
        what = f"{counted(self.files, 'file')}, {size(self.bytes)}"
        return f"advice on {self.table_id!r}: {what}; depth: {depths or 'none'}"

    @property
    def worth_it(self) -> bool:
        return self.pays_after is not None and self.pays_after <= self.reads


def left_alone(files: int) -> Iterator[str]:
    """What there is to say of so many files in cold classes."""
    if files:
        yield f"{counted(files, 'file')} in S3's classes for infrequent access or archives: left alone"

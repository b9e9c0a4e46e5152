"""A tabular file of a delta or of the compacted rows, and what is known of it without reading it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.handed_over import HandedOver
from deltacompact.base.model import ContentType
from deltacompact.base.notebooks import UsersWords
from deltacompact.base.numbers import ChainFileNumber, DeltaFileNumber, Ordinal

if TYPE_CHECKING:  # --help imports this module, and must not wait for pyarrow
    import pyarrow as pa

DECODED_TIMES = 4
"""While nothing is known of a file, it is taken to need so many times its stored bytes in memory."""


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The dead rows of a file that still contains them: a live bitmap has no bit for them.

    The bitmap has the key `ordinal` in the object at `masks_path`, a path in the workspace's store or a full URI. The
    object may hold the bitmaps of other files too.
    """

    dead_rows: int
    masks_path: str
    ordinal: Ordinal


@dataclass(frozen=True, slots=True)
class Stamp:
    """Identifies the content of a file that was appended by reference. None: the store does not know the value.

    `modified_s` and `etag` come from the store, `sha256` is the hex digest of the file's bytes.
    """

    modified_s: float | None = None
    etag: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Fill:
    """The values of a column that a file lacks: `value` + `step` x row number; with step 0, `value` in every row.

    `column` carries the field id. `of_nulls`: if the file has the column, the fill replaces its nulls.
    """

    column: pa.Field
    value: pa.Scalar
    step: int = 0
    of_nulls: bool = False


@dataclass(frozen=True, slots=True)
class Clustered:
    """How a compacted file was laid out: by which columns ("day*3,customer"), and by which run (later: greater).

    `ranges`: the least and the greatest value of each of these columns, as `layout/value_ranges.py` stores them; None:
    the column has only nulls. A column that `ranges` does not name may have any value.
    """

    by: str
    run: int
    ranges: tuple[tuple[str, Any, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class LayoutAccount:
    """The amounts that came to a table and that layouts rewrote, both in rows or both in bytes.

    A bound on rewriting over time needs both.
    """

    came: int
    rewritten: int


FarValues = tuple[tuple[str, int, int], ...]
"""The least and the greatest value of each leaf column, where a wider type might not hold them: see far_values.py."""


@dataclass(frozen=True, slots=True)
class DataFile(HandedOver, UsersWords):
    """One tabular file of a delta or of the compacted rows.

    number          a delta's file: its index in the delta; a compacted file: its permanent number in the chain
    path            a path in the workspace's store, or a full URI
    rows, bytes     the size of the file, dead rows included
    schema          the file's columns under the table's names
    deletions       the rows that are dead already; None: all rows live
    name            the file's name when the user appended it
    stamp           identifies the file's content when it was appended; only for files that are not managed
    longest         bytes of the longest value of each string or binary sort column that has been measured
    decoded_bytes   about the memory that all rows take when decoded, so an upper bound for one row; None: not known
    managed         the table owns the file: nobody else changes it, a compaction may keep it as an output, and a
                    vacuum may delete it
    stored          the file's columns under its own names, if columns are matched by field id; None: the same names
    fills           values for columns, matched by field id, that the file lacks or in which it has nulls
    far             the ranges of values that a wider type might not hold; None: not measured
    nulls           (key column, rows with null in it), for key columns with nulls; None: not counted
    group_bytes     about the memory of its largest row group when decoded; None: not known
    widest_row_bytes    at least the memory of its widest row when decoded; None: not known
    ranges          the least and the greatest value of key columns with numbers or text, where no footer has them
    decodes         its pages can be copied unread: all were decoded once, or are of a kind that is known to decode
    fingerprint     the fingerprint of its live rows; None: not computed
    clustered       how its rows were laid out; None: nobody clustered them
    """

    _inside = (
        *("clustered", "decoded_bytes", "decodes", "far", "fills", "group_bytes", "has_one_group"),
        *("likely_decoded_bytes", "longest", "nulls", "ranges", "stored", "widest_row_bytes"),
    )

    number: DeltaFileNumber | ChainFileNumber
    path: str
    content_type: ContentType
    rows: int
    bytes: int
    schema: pa.Schema = field(hash=False)
    deletions: DeletionVector | None = None
    name: str | None = None
    stamp: Stamp | None = None
    longest: tuple[tuple[str, int], ...] = ()
    decoded_bytes: int | None = None
    managed: bool = True
    stored: pa.Schema | None = field(default=None, hash=False)
    fills: tuple[Fill, ...] = field(default=(), hash=False)
    far: FarValues | None = None
    nulls: tuple[tuple[str, int], ...] | None = None
    decodes: bool = False
    group_bytes: int | None = None
    ranges: tuple[tuple[str, Any, Any], ...] = ()
    fingerprint: Fingerprint | None = None
    widest_row_bytes: int | None = None
    clustered: Clustered | None = None

    @property
    def has_one_group(self) -> bool:
        """Whether all rows are known to lie in one row group."""
        return self.group_bytes is not None and self.group_bytes == self.decoded_bytes

    @property
    def likely_decoded_bytes(self) -> int:
        """`decoded_bytes`, or a guess by the stored bytes where the log has none."""
        return self.decoded_bytes or DECODED_TIMES * self.bytes

    @property
    def live_rows(self) -> int:
        """The rows that the deletion vector leaves alive."""
        return self.rows - (self.deletions.dead_rows if self.deletions else 0)

"""What the log of a partition says: deltas, the commits that carry them, and the compacted delta of a version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltacompact.base.data_file import DataFile, FarValues, LayoutAccount
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.model import OperationType, Partition
from deltacompact.base.notebooks import UsersWords
from deltacompact.base.numbers import ChainFileNumber
from deltacompact.base.tokens import Token
from deltacompact.base.wording import counted

if TYPE_CHECKING:  # --help imports this module, and must not wait for pyarrow
    import pyarrow as pa


@dataclass(frozen=True, slots=True, repr=False)
class Delta:
    """Rows committed at one stream position. If an earlier call committed the token, `skipped` says so.

    `new_columns` are the columns that this commit added to those of the partition, nested ones as "s.x".
    """

    position: int
    operation: OperationType
    files: tuple[DataFile, ...] = ()
    skipped: str | None = None
    new_columns: tuple[str, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        """The line that `append` prints."""
        if self.skipped:
            return f"skipped: {self.skipped}"
        what = f"{self.operation} of {counted(self.rows, 'row')} in {counted(len(self.files), 'file')}"
        return f"{what} at position {self.position}"

    @property
    def null_keys(self) -> dict[str, int]:
        """Rows with null in a key column, by column, in the files where they could be counted."""
        return null_keys([self])

    @property
    def committed(self) -> bool:
        """Whether this call committed the delta. False: an earlier call did."""
        return self.skipped is None

    @property
    def rows(self) -> int:
        """Live rows."""
        return sum(file.live_rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True, repr=False)
class Appended(UsersWords):
    """The commits of an append of change events, or of rows of several partitions: one commit for each partition.

    `commits` has the deltas of each partition, deletes before upserts. It is empty if there was no row. The sort keys
    `compared_as_texts` are texts in the events, where "9" is above "10".
    """

    _inside = ("fresh", "rows_of")

    commits: tuple[tuple[Partition, tuple[Delta, ...]], ...] = ()
    compared_as_texts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The line that `append` prints: totals, because there may be thousands of partitions."""
        fresh = self.fresh
        if not fresh.commits:
            return f"skipped: {self.skipped}"
        rows = [(kind, fresh.rows_of(kind)) for kind in OperationType]
        kinds = " and ".join(f"{kind} of {counted(count, 'row')}" for kind, count in rows if count)
        divided = any(partition.values for partition, _ in fresh.commits)
        where = f"of {counted(len(fresh.commits), 'partition')}" if divided else f"at position {fresh.position}"
        return f"{kinds} in {counted(len(fresh.files), 'file')} {where}"

    @property
    def fresh(self) -> Appended:
        """What this call committed: leaves out partitions that had the token already."""
        return Appended(tuple(commit for commit in self.commits if commit[1][0].committed))

    @property
    def deltas(self) -> tuple[Delta, ...]:
        return tuple(delta for _, deltas in self.commits for delta in deltas)

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(file for delta in self.deltas for file in delta.files)

    @property
    def committed(self) -> bool:
        """Whether this call committed a delta. False: earlier calls committed all, or there was no row."""
        return any(delta.committed for delta in self.deltas)

    @property
    def skipped(self) -> str | None:
        """Why nothing was committed; None if something was."""
        return None if self.committed else next((delta.skipped for delta in self.deltas), "there is no row")

    @property
    def position(self) -> int | None:
        """The greatest stream position."""
        return max((delta.position for delta in self.deltas), default=None)

    @property
    def rows(self) -> int:
        """Rows of upserts and deletes. Events that others in their batch supersede are not written."""
        return sum(delta.rows for delta in self.deltas)

    @property
    def bytes(self) -> int:
        return sum(delta.bytes for delta in self.deltas)

    @property
    def new_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for delta in self.deltas for name in delta.new_columns))

    @property
    def null_keys(self) -> dict[str, int]:
        return null_keys(self.deltas)

    def rows_of(self, operation: OperationType) -> int:
        """Rows of one operation."""
        return sum(delta.rows for delta in self.deltas if delta.operation is operation)


def null_keys(deltas: Iterable[Delta]) -> dict[str, int]:
    """The rows with null in each key column, in all files where they were counted."""
    counts: dict[str, int] = {}
    for name, rows in (pair for delta in deltas for file in delta.files for pair in file.nulls or ()):
        counts[name] = counts.get(name, 0) + rows
    return counts


@dataclass(frozen=True, slots=True)
class Commit:
    """One log entry of a writer. Its deltas become visible together. Each append has a new `commit_id`."""

    commit_id: str
    time_ms: int
    deltas: tuple[Delta, ...]
    token: Token | None = None

    @property
    def last_position(self) -> int:
        return max(delta.position for delta in self.deltas)


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An object that a log entry names, with the hash of its content."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class CompactedDelta:
    """The first delta of a compacted version: one live row per key, and the index that points to every live row.

    `source_*` name the table and lineage that were folded: another table's, if this table is its destination.
    `next_file_number` is above every file number that the chain has used. `far` has the far values of all rows that
    were ever folded into this version (None: not known), dead ones too, because a tombstone keeps its sort values.
    `account` counts rows; None: no session laid them out.
    """

    files: tuple[DataFile, ...]
    index: ObjectRef
    watermark: int
    next_file_number: ChainFileNumber
    source_table_id: str
    source_lineage: str
    session_id: str
    schema: pa.Schema = field(hash=False)
    far: FarValues | None = None
    account: LayoutAccount | None = None

    @property
    def rows(self) -> int:
        """Live rows."""
        return sum(file.live_rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def fingerprint(self) -> Fingerprint | None:
        """The fingerprint of the live rows; None: not computed for every file."""
        known = [file.fingerprint for file in self.files if file.fingerprint is not None]
        return sum(known, Fingerprint()) if len(known) == len(self.files) else None

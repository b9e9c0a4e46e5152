"""The vocabulary: frozen values that every other room speaks in.

A table has partitions; a partition has one *partition stream*; a stream is a chain of versions; a version is a log
of commits; a commit carries deltas; a delta has a stream position, an operation type and files:

    ORDERS  order_day=1995-04-03  version 0   position 7  UPSERT  files 0, 1
                                              position 9  DELETE  file 0

Rows are folded per primary key in the order (stream position, file number, row index).
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.numbers import ChainFileNumber, DeltaFileNumber, Ordinal

if TYPE_CHECKING:  # --help reads this vocabulary, and does not wait for pyarrow
    import pyarrow as pa

PARTITION_STREAM_POS_VIRTUAL_COL_NAME = "__partition_stream_position__"
"""Names the stream position where a sort key is asked for; it is the default sort key."""

FORMAT_VERSION = 1
"""Version of everything on disk; a table of a newer one is refused."""

INT64_MAX = 2**63 - 1


class OperationType(enum.StrEnum):
    """What the rows of a delta do to the rows of the same key before them."""

    UPSERT = "upsert"
    DELETE = "delete"


class ContentType(enum.StrEnum):
    """Tabular file formats: all can be read, all but JSON can be written."""

    PARQUET = "application/parquet"
    FEATHER = "application/feather"
    ORC = "application/orc"
    CSV = "text/csv"
    JSON = "application/json"


class LifecycleState(enum.StrEnum):
    """Follows from the seals alone: unreached, reached and unsealed, sealed."""

    UNRELEASED = "unreleased"
    ACTIVE = "active"
    DEPRECATED = "deprecated"


class Direction(enum.StrEnum):
    """ASCENDING keeps the row of the greatest value, DESCENDING that of the smallest."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


@dataclass(frozen=True, slots=True)
class SortKey:
    """One custom sort column: decides which of two rows of a key is kept."""

    name: str
    direction: Direction = Direction.ASCENDING

    @classmethod
    def of(cls, value: SortKey | str | Sequence[str]) -> SortKey:
        """Accept "name", ("name", "descending") or a SortKey."""
        if isinstance(value, SortKey):
            return value
        parts = (value, "ascending") if isinstance(value, str) else value
        if (
            not isinstance(parts, (list, tuple))
            or len(parts) != 2
            or not all(isinstance(part, str) and part for part in parts)
        ):
            raise InputError(f"sort key {value!r} is neither a name nor a pair (name, 'ascending' or 'descending')")
        name, direction = parts
        try:
            return cls(name, Direction(str(direction).lower()))
        except ValueError:
            raise InputError(
                f"sort key {name!r}: direction {direction!r} is neither 'ascending' nor 'descending'"
            ) from None


@dataclass(frozen=True, slots=True)
class TableKeys:
    """Primary key columns, ordered by their UTF-8 bytes, and custom sort keys in order of significance.

    No custom sort keys means: the stream position decides, the later row wins.
    """

    primary: tuple[str, ...]
    sort: tuple[SortKey, ...] = ()

    @classmethod
    def of(cls, primary: Iterable[str], sort: Iterable[SortKey | str | Sequence[str]] | None = ()) -> TableKeys:
        """Validate and normalise what the caller gave.

        A trailing ascending stream position is what breaks ties anyway, so it is dropped.
        """
        names = tuple(sorted(expect.names("primary_keys", primary), key=str.encode))
        if not names:
            raise InputError("no primary key: name at least one column")
        if repeated := _first_repeated(names):
            raise InputError(f"primary key {repeated!r} is named twice")
        if isinstance(sort, str):
            sort = (sort,)
        sort_keys = [SortKey.of(key) for key in expect.several("sort_keys", () if sort is None else sort)]
        if sort_keys and sort_keys[-1] == SortKey(PARTITION_STREAM_POS_VIRTUAL_COL_NAME):
            sort_keys.pop()
        for key in sort_keys:
            if key.name == PARTITION_STREAM_POS_VIRTUAL_COL_NAME:
                raise InputError("the stream position can only be the last sort key, ascending")
        if repeated := _first_repeated([key.name for key in sort_keys]):
            raise InputError(f"sort key {repeated!r} is named twice")
        return cls(names, tuple(sort_keys))

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read before anything is materialized."""
        return (*self.primary, *(key.name for key in self.sort if key.name not in self.primary))


@dataclass(frozen=True, slots=True)
class Partition:
    """The values that all rows of a partition stream share, in the order of the table's partition keys."""

    values: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def of(cls, partition_keys: Sequence[str], values: Mapping[str, Any] | Partition | None) -> Partition:
        """Check the values against the table's partition keys; they are kept as text, None is null."""
        if isinstance(values, Partition):
            values = dict(values.values)
        if values is not None and not isinstance(values, Mapping):
            raise InputError(f"partition is {values!r}, it must be a dict of partition keys and values")
        values = values or {}
        for name in values:
            if name not in partition_keys:
                known = ", ".join(partition_keys) or "none"
                raise InputError(f"unknown partition key {name!r} (the table's partition keys: {known})")
        for name in partition_keys:
            if name not in values:
                raise InputError(f"partition key {name!r} has no value")
            if (text := partition_text(values[name])) is not None and not is_text(text):
                raise InputError(f"partition key {name!r}: {text!r} is not a text that UTF-8 can hold")
        return cls(tuple((name, partition_text(values[name])) for name in partition_keys))

    def __str__(self) -> str:
        return "/".join(f"{name}={'null' if value is None else value}" for name, value in self.values) or "(all)"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.values)


def partition_text(value: Any) -> str | None:
    """The one text by which a partition value is known: 5 and "5" are one partition, None is null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if _is_arrow_scalar(value):
        return partition_text(value.as_py())
    if isinstance(value, (list, tuple, set, frozenset, Mapping, bytes, bytearray)):
        raise InputError(
            f"partition value {value!r} is a {type(value).__name__}, it must be a text, a number or a date"
        )
    return str(value)


def _is_arrow_scalar(value: Any) -> bool:
    import pyarrow as pa

    return isinstance(value, pa.Scalar)


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Rows that are dead and still in their file: those that a live bitmap lacks.

    The bitmap lies under `ordinal` in the object at `masks_path`, which may hold those of other files as well: a path
    in the workspace's store, or a full URI.
    """

    dead_rows: int
    masks_path: str
    ordinal: Ordinal


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a file that was appended by reference looked like then; None: not known of its store.

    `modified_s` and `etag` are what the store said, `sha256` is the hex digest of the file's bytes.
    """

    modified_s: float | None = None
    etag: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """One tabular file of a delta or of the compacted rows.

    number          a delta's file: its place in the delta; a compacted file: its number in the chain, for ever
    path            in the workspace's store, or a full URI
    rows, bytes     those of the file, dead rows included
    schema          its columns, as the table calls them
    deletions       which of its rows are dead already; None: all live
    name            what the user called the file when it was appended
    stamp           what the file looked like when it was appended: only of a file that is not managed
    longest         bytes of the longest value of string and binary sort columns, as far as somebody has looked
    decoded_bytes   about what all rows take in memory, which no single row can exceed, as far as it is known
    managed         written by or handed over to the table: nobody else changes it, it may be kept as an output of a
                    compaction, and a vacuum may delete it
    stored          its columns as the file calls them, where they are matched by field id; None: as the table does
    """

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

    @property
    def live_rows(self) -> int:
        """Rows without those of the deletion vector."""
        return self.rows - (self.deletions.dead_rows if self.deletions else 0)


@dataclass(frozen=True, slots=True)
class Token:
    """By what a commit is recognised when it is sent again.

    Token("nightly")     a name, of which no character has a meaning
    Token("etl", 7)      batch 7 of a producer, which counts upwards

    `joined` says that release 0.1 wrote it, as one text that may stand for both: see catalog/tokens.py.
    """

    name: str
    sequence: int | None = None
    joined: bool = False

    @classmethod
    def of(cls, value: Token | str | Sequence[Any] | None) -> Token | None:
        """Accept "name", ("producer", 7) or a Token. Raises InputError for anything else."""
        if value is None or isinstance(value, cls):
            return value
        name, sequence = (value, None) if isinstance(value, str) else _pair(value)
        if not isinstance(name, str):
            raise InputError(f'token {value!r} is neither a text nor a pair like ("producer", 7)')
        if not 0 < len(name) <= _TOKEN_CHARACTERS_MAX or not is_text(name):
            raise InputError(f"token {name[:40]!r} is not a text of 1 to {_TOKEN_CHARACTERS_MAX:,} characters")
        if sequence is None:
            return cls(name)
        number = whole_number(sequence)
        if number is None or not 0 <= number <= INT64_MAX:
            raise InputError(f"token {name!r}: the sequence number {sequence!r} is not a whole number from 0 on")
        return cls(name, number)

    def __str__(self) -> str:
        return repr(self.name) if self.sequence is None else f"{self.name!r} sequence {self.sequence}"


def _pair(value: Any) -> tuple[Any, Any]:
    """Producer and sequence number; a pair of nothing where it is no pair."""
    pair = tuple(value) if isinstance(value, list | tuple) else ()
    return (pair[0], pair[1]) if len(pair) == 2 and pair[1] is not None else (None, None)


_TOKEN_CHARACTERS_MAX = 1000


def is_text(value: Any) -> bool:
    """Whether it is a text that UTF-8 can hold (half of a surrogate pair is none)."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def whole_number(value: Any) -> int | None:
    """The value as an int where it is a whole number (of NumPy as well; True and 1.0 are none), else None."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


@dataclass(frozen=True, slots=True)
class Delta:
    """Rows committed at one stream position. `skipped` says why nothing was committed: the token was known."""

    position: int
    operation: OperationType
    files: tuple[DataFile, ...] = ()
    skipped: str | None = None

    @property
    def committed(self) -> bool:
        """Whether this call committed it; False where an earlier one did."""
        return self.skipped is None

    @property
    def rows(self) -> int:
        """Live rows."""
        return sum(file.live_rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Commit:
    """One log entry of a writer: its deltas become visible together. `commit_id` is fresh for each append."""

    commit_id: str
    time_ms: int
    deltas: tuple[Delta, ...]
    token: Token | None = None

    @property
    def last_position(self) -> int:
        return max(delta.position for delta in self.deltas)


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An object that a log entry names, with what proves that it is the one that was meant."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class CompactedDelta:
    """The first delta of a compacted version: one live row per key, and the index that points to every one.

    `source_*` say what was folded: table and lineage differ from our own where this is another table's destination.
    `next_file_number` is above every file number that the chain has used.
    """

    files: tuple[DataFile, ...]
    index: ObjectRef
    watermark: int
    next_file_number: ChainFileNumber
    source_table_id: str
    source_lineage: str
    session_id: str
    schema: pa.Schema = field(hash=False)

    @property
    def rows(self) -> int:
        """Live rows."""
        return sum(file.live_rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Table:
    """What table.json (and keys.json, where the keys were not declared) say."""

    table_id: str
    partition_keys: tuple[str, ...] = ()
    keys: TableKeys | None = None
    tombstone_retention: int | None = None
    source_table_id: str | None = None
    """Set where the table is the destination of another: it then refuses appends."""
    holds_streams: bool = False
    """Set where the table was begun by an append: it can be no destination. (Of a table of release 0.1 it is unset.)"""

    def with_keys(self, keys: TableKeys | None) -> Table:
        return replace(self, keys=keys)


def _first_repeated(names: Sequence[str]) -> str | None:
    return next((name for i, name in enumerate(names) if name in names[:i]), None)

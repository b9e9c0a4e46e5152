"""The vocabulary: frozen values that every other room uses.

A table has partitions; a partition has one *partition stream*; a stream is a chain of versions; a version is a log
of commits; a commit carries deltas; a delta has a stream position, an operation type and files:

    ORDERS  order_day=1995-04-03  version 0   position 7  UPSERT  files 0, 1
                                              position 9  DELETE  file 0

Rows are folded per primary key in the order (stream position, file number, row index).
"""

from __future__ import annotations

import enum
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.handed_over import HandedOver
from deltacompact.base.notebooks import UsersWords
from deltacompact.base.numbers import ChainFileNumber, DeltaFileNumber, Ordinal
from deltacompact.base.wording import counted

if TYPE_CHECKING:  # --help imports this module, and must not wait for pyarrow
    import pyarrow as pa

PARTITION_STREAM_POS_VIRTUAL_COL_NAME = "__partition_stream_position__"
"""The name of the stream position among sort keys. It is the default sort key."""

FORMAT_VERSION = 1
"""The version of everything on disk. Tables with a newer version are refused."""

ICEBERG = "iceberg://"
"""Of a catalog's URI: the name follows by which PyIceberg's configuration describes it."""
CATALOG_VARIABLE = "DELTACOMPACT_CATALOG"
"""In the environment: the catalog where none is named."""

DECODED_TIMES = 4
"""A stored byte is taken to become about so many in memory, before anything is known of the file."""
INT64_MAX = 2**63 - 1


class OperationType(enum.StrEnum):
    """What the rows of a delta do to earlier rows with the same key."""

    UPSERT = "upsert"
    DELETE = "delete"

    @classmethod
    def of(cls, value: OperationType | str) -> OperationType:
        """Accept "upsert", "delete" or an OperationType. Raises InputError for anything else."""
        return expect.choice("operation", value, cls)


UPSERT_VALUES = (*"IUCRiucr", "insert", "update", "upsert", "INSERT", "UPDATE", "UPSERT")
DELETE_VALUES = ("D", "d", "delete", "DELETE")
"""The values of an operation column that most writers use: Debezium, AWS DMS, Kafka Connect, SQL MERGE logs."""


class ContentType(enum.StrEnum):
    """Tabular file formats. All can be read, all but JSON can be written."""

    PARQUET = "application/parquet"
    FEATHER = "application/feather"
    ORC = "application/orc"
    CSV = "text/csv"
    JSON = "application/json"


class SchemaMode(enum.StrEnum):
    """What becomes of columns that a partition does not have yet: MERGE adds them, FIXED refuses the append."""

    MERGE = "merge"
    FIXED = "fixed"

    @classmethod
    def of(cls, value: SchemaMode | str) -> SchemaMode:
        """Accept "merge", "fixed" or a SchemaMode. Raises InputError for anything else."""
        return expect.choice("schema_mode", value, cls)


class Readers(enum.StrEnum):
    """Who reads a table's compacted files: FILES reads every row of them, VECTORS leaves out those marked as dead."""

    FILES = "files"
    VECTORS = "vectors"

    @classmethod
    def of(cls, value: Readers | str) -> Readers:
        """Accept "files", "vectors" or a Readers. Raises InputError for anything else."""
        return expect.choice("readers", value, cls)


class LifecycleState(enum.StrEnum):
    """The seals alone decide a version's state: no seal names it; a seal names it; it is sealed itself."""

    UNRELEASED = "unreleased"
    ACTIVE = "active"
    DEPRECATED = "deprecated"


class Direction(enum.StrEnum):
    """ASCENDING keeps the row with the greatest value, DESCENDING the row with the smallest."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


_WITH_DIRECTION = re.compile(r"(.*\S)\s+(?:asc|desc)(?:ending)?", re.I | re.S)
"""A sort key as SQL writes it. A column of such a name would be lacking in all rows, and decide nothing."""


@dataclass(frozen=True, slots=True)
class SortKey:
    """One custom sort column. It decides which of two rows with the same key is kept."""

    name: str
    direction: Direction = Direction.ASCENDING

    @classmethod
    def of(cls, value: SortKey | str | Sequence[str]) -> SortKey:
        """Accept "name", ("name", "descending") or a SortKey."""
        if isinstance(value, SortKey):
            return value
        if isinstance(value, str) and (meant := _WITH_DIRECTION.fullmatch(value)):
            raise InputError(
                f"sort key {value!r}: write {meant[1]!r} to keep the row with the greatest value, and "
                f"({meant[1]!r}, 'descending') (--sort-key {meant[1]}:descending) to keep that with the smallest"
            )
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

    Without custom sort keys, the stream position decides: the later row wins.
    """

    primary: tuple[str, ...]
    sort: tuple[SortKey, ...] = ()

    @classmethod
    def of(cls, primary: Iterable[str], sort: Iterable[SortKey | str | Sequence[str]] | None = ()) -> TableKeys:
        """Validate and normalise the caller's keys.

        A trailing ascending stream position is dropped, because it breaks ties anyway.
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
        """Every column that the steps before materialize read: primary keys, then sort keys."""
        return (*self.primary, *(key.name for key in self.sort if key.name not in self.primary))


@dataclass(frozen=True, slots=True)
class Partition:
    """The values that all rows of a partition stream share, in the order of the table's partition keys."""

    values: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def of(cls, partition_keys: Sequence[str], values: Mapping[str, Any] | Partition | None) -> Partition:
        """Check the values against the table's partition keys. They are kept as text; None is null."""
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
                raise InputError(f"partition key {name!r} has no value: name it (--partition {name}=VALUE)")
            if (text := partition_text(values[name])) is not None and not expect.is_text(text):
                raise InputError(f"partition key {name!r}: {text!r} is not a text that UTF-8 can hold")
        return cls(tuple((name, partition_text(values[name])) for name in partition_keys))

    def __str__(self) -> str:
        return "/".join(f"{name}={'null' if value is None else value}" for name, value in self.values) or "(all)"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.values)


def partition_text(value: Any) -> str | None:
    """The text that identifies a partition value: 5 and "5" are the same partition, None is null."""
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


_INSIDE = (
    *("clustered", "decoded_bytes", "decodes", "far", "fills", "group_bytes", "has_one_group", "likely_decoded_bytes"),
    *("longest", "nulls", "ranges", "stored", "widest_row_bytes"),
)


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

    _inside = _INSIDE

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


@dataclass(frozen=True, slots=True)
class Token:
    """Identifies a commit, so that sending the commit again has no effect.

    Token("nightly")     a name; no character in it has a meaning
    Token("etl", 7)      batch 7 of a producer that counts upwards

    `joined` marks a token that release 0.1 wrote as one text, which may mean either form: see log/tokens.py.
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
        if not 0 < len(name) <= _TOKEN_CHARACTERS_MAX or not expect.is_text(name):
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
    """Producer and sequence number; (None, None) if the value is not a pair."""
    pair = tuple(value) if isinstance(value, list | tuple) else ()
    return (pair[0], pair[1]) if len(pair) == 2 and pair[1] is not None else (None, None)


_TOKEN_CHARACTERS_MAX = 1000


def whole_number(value: Any) -> int | None:
    """The value as an int if it is a whole number (NumPy's too, but not True or 1.0), else None."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


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


@dataclass(frozen=True, slots=True)
class Table:
    """The content of table.json, with the keys of keys.json if they were not declared."""

    table_id: str
    partition_keys: tuple[str, ...] = ()
    keys: TableKeys | None = None
    tombstone_retention: int | None = None
    source_table_id: str | None = None
    """The table whose destination this table is. A destination refuses appends."""
    holds_streams: bool = False
    """An append created the table, so it cannot become a destination. (False for tables of release 0.1.)"""
    publication: str | None = None
    """The Iceberg table that shows the compacted rows ("iceberg://prod/db.orders"); it may change."""
    schema_mode: SchemaMode = SchemaMode.MERGE
    """Whether appends may add columns; it may change."""
    readers: Readers | None = None
    """Who reads the compacted files; it may change. None: not declared, which means plain files."""
    creation: str | None = None
    """A random id: a table that is dropped and created again gets another. None: created before December 2026."""
    cluster_by: str | None = None
    """The columns by which compactions lay rows out ("day*3,customer"); it may change. None: rows keep their order."""
    columns: pa.Schema | None = None
    """The columns with declared types. Files may have others."""

    def with_keys(self, keys: TableKeys | None) -> Table:
        return replace(self, keys=keys)


def _first_repeated(names: Sequence[str]) -> str | None:
    return next((name for number, name in enumerate(names) if name in names[:number]), None)

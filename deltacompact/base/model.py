"""The vocabulary: kinds, partitions and tables, which every other room uses.

A table has partitions; a partition has one *partition stream*; a stream is a chain of versions; a version is a log
of commits; a commit carries deltas; a delta has a stream position, an operation type and files:

    ORDERS  order_day=1995-04-03  version 0   position 7  UPSERT  files 0, 1
                                              position 9  DELETE  file 0

Rows are folded per primary key in the order (stream position, file number, row index).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.table_keys import TableKeys

if TYPE_CHECKING:  # --help imports this module, and must not wait for pyarrow
    import pyarrow as pa

FORMAT_VERSION = 1
"""The version of everything on disk. Tables with a newer version are refused."""

ICEBERG = "iceberg://"
"""How the URI of an Iceberg catalog begins. Then comes the catalog's name in PyIceberg's configuration."""
CATALOG_VARIABLE = "DELTACOMPACT_CATALOG"
"""The environment variable with the URI of the catalog that is used where no other is named."""

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


@dataclass(frozen=True, slots=True)
class Partition:
    """The values that all rows of a partition stream share, in the order of the table's partition keys."""

    values: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def of(cls, partition_keys: Sequence[str], values: PartitionLike) -> Partition:
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


PartitionLike = Partition | Mapping[str, Any] | None
"""How callers name a partition: by the values of its partition keys. None: there are no keys, or all partitions."""


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

"""What a table's metadata file says, as plain values: columns, partition specs, refs and snapshots.

columns     1: id long, 2: name string (dropped since schema 3)     every field of every schema, the newest wins
refs        main -> snapshot 7, audit -> snapshot 5
snapshots   5, 6, 7: where the manifest list of each is
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.iceberg.table.column_bounds import has_order
from deltacompact.iceberg.table.content_files import Spec

T = TypeVar("T")

MAIN = "main"
SESSION = "deltacompact.session"
"""The key in a snapshot's summary that names the deltacompact session which committed it."""
PUBLISHES = "publication-"
"""How the names of sessions that show a delta table's files begin."""
TOKEN = "deltacompact.token"
"""The key in a snapshot's summary that names the batch of rows which it committed."""
RECORDED_FINGERPRINT = "deltacompact.rows-fingerprint"
"""The key in a snapshot's summary with the fingerprint of its live rows, if the session certifies."""
BOOKMARK_TAG, GIVEN_FIRST, GIVEN_NEXT = "bookmark.", ".first", ".next"
"""The tags of a consumer of changes: `bookmark.NAME` is where its batch begins, `bookmark.NAME.next` where it ends. A
first batch begins before all snapshots, and ends at `bookmark.NAME.first`."""
PUBLICATION = "deltacompact.publication"
"""The property of a publishing table that says where the published delta table is."""


_FOLDERS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")


def metadata_folder(location: str, properties: Mapping[str, str]) -> str:
    """Where a table with these properties keeps its metadata. An empty property names no folder."""
    return (properties.get("write.metadata.path") or f"{location.rstrip('/')}/metadata").rstrip("/")


def folders_named(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """All folders into which writers of a table put files, writers of former releases too."""
    return (location, *(properties[name] for name in _FOLDERS if properties.get(name)))


@dataclass(frozen=True, slots=True)
class Column:
    """A field of some schema of the table. `type` is Iceberg's own text of it ("long", "decimal(9, 2)")."""

    field: pa.Field = dataclasses.field(hash=False)
    type: str
    is_top_level: bool
    has_default: bool
    """Files without the column have a value other than null in it (version 3)."""
    default: pa.Scalar | None = dataclasses.field(default=None, hash=False)
    """The default value in the column's Arrow type. None: there is none, or Arrow cannot hold it."""
    is_dropped: bool = False
    """Whether today's schema lacks it."""
    write_default: pa.Scalar | None = dataclasses.field(default=None, hash=False)
    """What a writer puts into rows that come without the column. None: null."""


@dataclass(frozen=True, slots=True)
class SortField:
    """A field of one of the table's sort orders. `transform` is Iceberg's own text of it."""

    source_id: int
    transform: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or a tag, with its retention, which each commit must repeat."""

    snapshot_id: int
    kind: str
    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot as the metadata lists it. `summary` includes the operation."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    timestamp_ms: int
    manifest_list: str
    schema_id: int | None = None
    summary: Mapping[str, str] = field(default_factory=dict, hash=False)
    first_row_id: int | None = None
    added_rows: int | None = None

    @property
    def is_ours(self) -> bool:
        """Whether deltacompact committed it."""
        return SESSION in self.summary

    @property
    def is_upkeep(self) -> bool:
        """Whether deltacompact committed it, and it brought no rows of others, as batches and publications do."""
        is_batch = TOKEN in self.summary or self.summary.get(SESSION, "").startswith(PUBLISHES)
        return self.is_ours and not is_batch

    @property
    def is_first(self) -> bool:
        """Whether nothing was before it. PyIceberg also takes a parent away that expires; version 1 does not tell."""
        return self.parent_id is None and self.sequence_number <= 1


@dataclass(frozen=True, slots=True)
class StatisticsFile:
    """A statistics file of a snapshot. `of_partitions`: statistics of each partition; else of columns (Puffin).

    `footer_bytes`: the length of the footer, if we write the Puffin file.
    """

    snapshot_id: int
    path: str
    file_bytes: int
    of_partitions: bool
    footer_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """A table at one moment. `schema` has today's columns with their field ids (`PARQUET:field_id`)."""

    table_id: str
    uuid: str
    location: str
    metadata_location: str
    format_version: int
    last_sequence_number: int
    schema_id: int
    schema_json: str
    schema: pa.Schema = field(hash=False)
    columns: Mapping[int, Column] = field(hash=False)
    specs: Mapping[int, Spec] = field(hash=False)
    default_spec_id: int
    properties: Mapping[str, str] = field(hash=False)
    refs: Mapping[str, Ref] = field(hash=False)
    snapshots: Mapping[int, Snapshot] = field(hash=False)
    next_row_id: int | None = None
    statistics: tuple[StatisticsFile, ...] = ()
    metadata_log: tuple[str, ...] = ()
    """The former metadata files that the table remembers, the newest last."""
    last_updated_ms: int = 0
    """When the table was changed last, by the clock of whoever changed it."""
    sort_orders: Mapping[int, tuple[SortField, ...]] = field(default_factory=dict, hash=False)
    sort_order_id: int = 0
    """The sort order that writers are asked to write in. 0: none."""

    def branch(self, name: str) -> Snapshot | None:
        """The head of a branch; None: main has no snapshot yet. Raises NotFoundError for an unknown branch, InputError
        for a tag."""
        ref = self.refs.get(name)
        if ref is None:
            if name == MAIN:
                return None
            known = ", ".join(sorted(name for name, ref in self.refs.items() if ref.kind == "branch")) or "none"
            raise NotFoundError(f"table {self.table_id!r} has no branch {name!r} (branches: {known})")
        if ref.kind != "branch":
            raise InputError(f"{name!r} of table {self.table_id!r} is a tag: only branches can be compacted")
        return self.snapshots[ref.snapshot_id]

    def recorded_fingerprint(self, snapshot: Snapshot) -> str | None:
        """The fingerprint in a snapshot's summary. None: it has none, or the table had another schema then."""
        return snapshot.summary.get(RECORDED_FINGERPRINT) if snapshot.schema_id == self.schema_id else None

    def recorded(self, prefix: str, parsed: Callable[[int, dict[str, Any]], T]) -> dict[int, T]:
        """What properties record of snapshots: `prefix` and the snapshot's id name each. Damaged ones, and those that
        were copied from another table, do not count."""
        found = {}
        for name, value in self.properties.items():
            number = name.removeprefix(prefix)
            if name.startswith(prefix) and number.isdecimal():
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                    body = json.loads(value)
                    if body["table"] == self.uuid:
                        found[int(number)] = parsed(int(number), body)
        return found

    @property
    def ordered_columns(self) -> tuple[str, ...]:
        """The top-level columns that have an order, so that files can be laid out by them."""
        known = [column for column in self.columns.values() if column.is_top_level and not column.is_dropped]
        return tuple(column.field.name for column in known if has_order(column.type))

    @property
    def next_sequence_number(self) -> int:
        """The sequence number of the next snapshot. Version 1 has none: all are 0."""
        return 0 if self.format_version == 1 else self.last_sequence_number + 1

    @property
    def identifier_ids(self) -> tuple[int, ...]:
        """The identifier fields of the current schema, by field id; empty: it names none."""
        return tuple(json.loads(self.schema_json).get("identifier-field-ids", ()))

    def ancestors(self, head: Snapshot | None) -> Iterator[Snapshot]:
        """The head and its ancestors, the newest first, up to the first that has expired."""
        while head is not None:
            yield head
            head = None if head.parent_id is None else self.snapshots.get(head.parent_id)

    @property
    def data_folder(self) -> str:
        """Where new files go. An empty property names no folder, as for PyIceberg."""
        return (self.properties.get("write.data.path") or f"{self.location.rstrip('/')}/data").rstrip("/")

    @property
    def metadata_folder(self) -> str:
        return metadata_folder(self.location, self.properties)

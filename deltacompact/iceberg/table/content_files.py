"""The vocabulary of an Iceberg table: content files, the manifest entries that list them, and partition specs.

    a.parquet    data                           partition (day 3)    sequence number 5
    b.parquet    equality deletes, ids {1}      partition (day 3)    sequence number 7    applies to a: 5 < 7
    c.parquet    position deletes               partition (day 3)    sequence number 5    applies to a: 5 <= 5
    d.puffin     deletion vector of a.parquet   partition (day 3)    sequence number 8

Field numbers are those of the Iceberg spec, "Manifests". A partition is a tuple of plain values in the order of its
spec's fields: dates, timestamps and decimals are whole numbers, UUIDs are bytes (partition_values.py).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deltacompact.base.data_file import DECODED_TIMES

PartitionValue = int | float | str | bytes | bool | None
PartitionTuple = tuple[PartitionValue, ...]


class Content(enum.IntEnum):
    """What a content file holds (field 134)."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


class Status(enum.IntEnum):
    """What a manifest says about a file (field 0)."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


class ManifestContent(enum.IntEnum):
    """Whether a manifest lists data files or delete files (field 517)."""

    DATA = 0
    DELETES = 1


@dataclass(frozen=True, slots=True)
class ContentFile:
    """A data file, a delete file, or a deletion vector inside of a Puffin file (spec: `data_file`).

    Counts and bounds are by field id; a bound is a single value in Iceberg's binary form. `path` is the text that the
    manifest has: position deletes name data files by exactly this text.
    """

    content: Content
    path: str
    file_format: str
    spec_id: int
    partition: PartitionTuple
    rows: int
    file_bytes: int
    column_sizes: Mapping[int, int] = field(default_factory=dict, hash=False)
    value_counts: Mapping[int, int] = field(default_factory=dict, hash=False)
    null_value_counts: Mapping[int, int] = field(default_factory=dict, hash=False)
    nan_value_counts: Mapping[int, int] = field(default_factory=dict, hash=False)
    lower_bounds: Mapping[int, bytes] = field(default_factory=dict, hash=False)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict, hash=False)
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] = ()
    equality_ids: tuple[int, ...] = ()
    sort_order_id: int | None = None
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size: int | None = None

    @property
    def key(self) -> tuple[str, int | None]:
        """Identifies the content: several deletion vectors share a Puffin file."""
        return self.path, self.content_offset

    @property
    def is_data(self) -> bool:
        return self.content is Content.DATA

    @property
    def is_equality_delete(self) -> bool:
        return self.content is Content.EQUALITY_DELETES

    @property
    def is_deletion_vector(self) -> bool:
        return self.content is Content.POSITION_DELETES and self.file_format.upper() == "PUFFIN"

    @property
    def content_bytes(self) -> int:
        """The bytes of what it holds: of a deletion vector, its part of the Puffin file, which several share."""
        return self.file_bytes if self.content_size is None else self.content_size

    @property
    def likely_decoded_bytes(self) -> int:
        return DECODED_TIMES * self.file_bytes

    @property
    def manifest_content(self) -> ManifestContent:
        return ManifestContent.DATA if self.content is Content.DATA else ManifestContent.DELETES


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A manifest entry. The sequence numbers of an added file may be None: it inherits them from its manifest.

    sequence_number         the data sequence number: when the rows were written (a rewrite keeps it)
    file_sequence_number    the sequence number of the snapshot that added this very file; None also if an existing
                            entry lost it, as Iceberg up to 1.0 did not store it
    """

    status: Status
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    file: ContentFile

    @property
    def sequence(self) -> int:
        """The data sequence number, which every entry has that was read."""
        assert self.sequence_number is not None, f"{self.file.path}: reading an entry fills in what it inherits"
        return self.sequence_number

    @property
    def added_at(self) -> int:
        """The file sequence number. If it is unknown, that of the rows: a file is as old as its rows, or younger."""
        return self.sequence if self.file_sequence_number is None else self.file_sequence_number


@dataclass(frozen=True, slots=True)
class Manifest:
    """A line of a manifest list. -1 as a sequence number: the snapshot that is being written."""

    path: str
    file_bytes: int
    spec_id: int
    content: ManifestContent
    sequence_number: int
    min_sequence_number: int
    snapshot_id: int
    added_files: int
    existing_files: int
    deleted_files: int
    added_rows: int
    existing_rows: int
    deleted_rows: int
    partitions: tuple[Mapping[str, Any], ...] | None = field(default=None, hash=False)
    key_metadata: bytes | None = None
    first_row_id: int | None = None


@dataclass(frozen=True, slots=True)
class SpecField:
    """One field of a partition spec. `avro` is its definition in the Avro schema of a manifest.

    The type in it is "null" where no schema has the column any more (unknown_types.py).
    """

    field_id: int
    source_id: int
    name: str
    transform: str
    avro: Mapping[str, Any] = field(hash=False)

    @property
    def is_unknown(self) -> bool:
        return bool(self.avro["type"] == "null")


@dataclass(frozen=True, slots=True)
class Spec:
    """A partition spec. `json` is the text of the spec's fields in a manifest's header."""

    spec_id: int
    fields: tuple[SpecField, ...]
    json: str

    @property
    def is_unpartitioned(self) -> bool:
        """Whether the spec has one partition: no field, or only void fields. Its equality deletes are global."""
        return all(part.transform == "void" for part in self.fields)


class _MinusZero(float):
    """-0.0 as a partition value. For Iceberg it is another partition than 0.0; for Python they are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _MinusZero)

    def __hash__(self) -> int:
        return hash(_MinusZero)


def canonical(value: Any) -> PartitionValue:
    """A partition value that equals only the same value, so that tuples of values can be compared."""
    if isinstance(value, float):
        if math.isnan(value):
            return math.nan  # always the same object: tuples of it are equal
        if value == 0 and math.copysign(1, value) < 0:
            return _MinusZero(value)
    found: PartitionValue = value
    return found

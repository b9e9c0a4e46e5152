"""Makes states of Iceberg tables by hand: data files and deletes with the sequence numbers and bounds of a test."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltacompact.iceberg.deletes.matching import PATH_COLUMN
from deltacompact.iceberg.table.content_files import Content, ContentFile, ManifestEntry, Spec, SpecField, Status
from deltacompact.iceberg.table.metadata import MAIN, Column, Snapshot, TableMetadata
from deltacompact.iceberg.table.table_state import TableState

UNPARTITIONED, BY_DAY = 0, 1
_DAY = {"name": "day", "type": ["null", "int"], "default": None, "field-id": 1000}
SPECS = {
    UNPARTITIONED: Spec(UNPARTITIONED, (), "[]"),
    BY_DAY: Spec(BY_DAY, (SpecField(1000, 3, "day", "identity", _DAY),), "[]"),
}
TYPES = {1: "long", 2: "string", 3: "int", 4: "double", 5: "decimal(9, 2)"}


def long(value: int) -> bytes:
    return struct.pack("<q", value)


def data(
    path: str,
    sequence: int,
    day: int | None = None,
    ids: tuple[int, int] | None = None,
    size: int = 100,
    rows: int = 10,
    **others: Any,
) -> ManifestEntry:
    """A data file. `ids` is (least, greatest) of the column id, which has no nulls."""
    return _entry(Content.DATA, path, sequence, day, ids, size, rows, **others)


def equality(
    path: str, sequence: int, day: int | None = None, ids: tuple[int, int] | None = None, by: Sequence[int] = (1,)
) -> ManifestEntry:
    return _entry(Content.EQUALITY_DELETES, path, sequence, day, ids, 10, 1, equality_ids=tuple(by))


def positions(path: str, sequence: int, day: int | None = None, of: Sequence[str] = (), rows: int = 1) -> ManifestEntry:
    """A position-delete file whose paths lie between the first and the last of `of`."""
    bounds = {}
    if of:
        low, high = min(of).encode(), max(of).encode()
        bounds = {"lower_bounds": {PATH_COLUMN: low}, "upper_bounds": {PATH_COLUMN: high}}
    return _entry(Content.POSITION_DELETES, path, sequence, day, None, 10, rows, **bounds)


def vector(path: str, sequence: int, of: str, day: int | None = None, offset: int = 4, rows: int = 1) -> ManifestEntry:
    described = {"referenced_data_file": of, "content_offset": offset, "content_size": 40, "file_format": "PUFFIN"}
    return _entry(Content.POSITION_DELETES, path, sequence, day, None, 10, rows, **described)


def _entry(
    content: Content,
    path: str,
    sequence: int,
    day: int | None,
    ids: tuple[int, int] | None,
    size: int,
    rows: int,
    spec_id: int | None = None,
    file_format: str = "PARQUET",
    **others: Any,
) -> ManifestEntry:
    if ids is not None:
        bounds = {"lower_bounds": {1: long(ids[0])}, "upper_bounds": {1: long(ids[1])}}
        others = bounds | {"value_counts": {1: rows}, "null_value_counts": {1: 0}} | others
    if spec_id is None:
        spec_id = UNPARTITIONED if day is None else BY_DAY
    partition = (day,) if spec_id == BY_DAY else ()
    file = ContentFile(content, path, file_format, spec_id, partition, rows, size, **others)
    return ManifestEntry(Status.EXISTING, 7, sequence, sequence, file)


def state(*entries: ManifestEntry, sequence: int | None = None, version: int = 2, specs: Mapping[int, Spec] = SPECS):
    """The state of a branch with these files. Its sequence number is the greatest among the files."""
    number = max((entry.sequence for entry in entries), default=0) if sequence is None else sequence
    snapshot = Snapshot(number, None, number, number, f"snap-{number}")
    columns = {
        number: Column(pa.field(f"c{number}", pa.int64()), type_, True, False) for number, type_ in TYPES.items()
    }
    metadata = TableMetadata(
        "ns.t", "u", "/t", "/t/m", version, number, 0, "{}", pa.schema([]), columns, specs, 0, {}, {}, {}
    )
    return TableState(
        metadata,
        MAIN,
        snapshot,
        (),
        tuple(entry for entry in entries if entry.file.content is Content.DATA),
        tuple(entry for entry in entries if entry.file.content is not Content.DATA),
    )

"""Manifests and manifest lists: entries to bytes, and back without a loss.

    write_manifest(entries, spec, content, …)  ->  bytes, and the line for the manifest list
    read_manifest(bytes, manifest)             ->  entries, whose sequence numbers and row ids are filled in
    with_row_ids(lines, first row id)          ->  the lines, each new one with its first row id (version 3)

PyIceberg reads every manifest with the schema of format version 2 and drops the fields 142 to 145, and it cannot write
delete manifests. This layer knows all fields up to version 3, also in manifests of version 2, where Java writes 143.
Fields are found by field id, because names of partition fields may be changed to fit Avro.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deltacompact.base.errors import CorruptionError
from deltacompact.iceberg.table import avro
from deltacompact.iceberg.table.content_files import (
    Content,
    ContentFile,
    Manifest,
    ManifestContent,
    ManifestEntry,
    PartitionTuple,
    PartitionValue,
    Spec,
    SpecField,
    Status,
)
from deltacompact.iceberg.table.partition_values import (
    avro_value,
    compared,
    is_decimal,
    not_null,
    shortest_bytes,
)

NEW = -1
"""The sequence number of a new manifest, until the manifest list of its snapshot fills it in."""
UNKNOWN = -1
"""A count that a line lacks, as version 1 allows. It must not be 0: readers skip a manifest without files."""


@dataclass(frozen=True, slots=True)
class ManifestTerms:
    """What the headers of all manifests of a commit share: the format version, the snapshot, the table's schema."""

    version: int
    snapshot_id: int
    schema_json: str


def write_manifest(
    entries: Sequence[ManifestEntry], spec: Spec, content: ManifestContent, terms: ManifestTerms, path: str
) -> tuple[bytes, Manifest]:
    """The bytes of a manifest, and its line in the manifest list. All entries have the same spec and content.

    Raises CorruptionError for an entry that must not be written (rule 4): only an added file inherits sequence numbers.
    """
    for entry in entries:
        if entry.status is not Status.ADDED and (entry.sequence_number is None or entry.file_sequence_number is None):
            raise CorruptionError(f"{entry.file.path}: only an added file may inherit its sequence numbers")
    schema = entry_schema(spec, terms.version)
    records = (_record(entry, spec, terms.version) for entry in entries)
    data = avro.avro_bytes(schema, records, header_of(spec, content, terms))
    live = [entry.sequence_number for entry in entries if entry.status is not Status.DELETED]
    known = [number for number in live if number is not None]
    return data, Manifest(
        path=path,
        file_bytes=len(data),
        spec_id=spec.spec_id,
        content=content,
        sequence_number=NEW,
        min_sequence_number=min(known) if known else NEW,
        snapshot_id=terms.snapshot_id,
        **_counted(entries),
        partitions=tuple(partition_summaries(spec, [entry.file.partition for entry in entries])),
    )


def header_of(spec: Spec, content: ManifestContent, terms: ManifestTerms) -> dict[str, str]:
    """The header of a manifest, without its Avro schema."""
    header = {
        "schema": terms.schema_json,
        "partition-spec": spec.json,
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(terms.version),
    }
    of_version_2 = {"content": "data" if content is ManifestContent.DATA else "deletes"}
    return header | (of_version_2 if terms.version >= 2 else {})


def read_manifest(data: bytes, manifest: Manifest) -> list[ManifestEntry]:
    """The entries of a manifest, deleted ones included, with their inherited values filled in (spec, "Sequence Number
    Inheritance" and "First Row ID Inheritance"). Raises CorruptionError naming the manifest."""
    found, schema, _ = avro.records(data, manifest.path)
    try:
        names = _names_by_id(schema)
        file_names = _names_by_id(_file_schema(schema))
        partition = [(part["name"], part["type"]) for part in partition_fields(schema, manifest.path)]
        entries = [_entry(record, names, file_names, partition, manifest) for record in found]
        return list(_with_inherited_row_ids(entries, manifest))
    except (KeyError, StopIteration, TypeError, ValueError) as error:
        raise CorruptionError(f"{manifest.path} is not a manifest: {error!r}") from error


def partition_fields(schema: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    """The partition fields in the Avro schema of a manifest. Raises CorruptionError for the schema of another file."""
    try:
        file_schema = _file_schema(schema)
        found: list[dict[str, Any]] = _type_of(file_schema, _names_by_id(file_schema)[102])["fields"]
    except (KeyError, StopIteration, TypeError) as error:
        raise CorruptionError(f"{path} is not a manifest: {error!r}") from error
    return found


def _file_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(part["type"] for part in schema["fields"] if part["field-id"] == 2)
    return found


def is_counted(manifest: Manifest) -> bool:
    """Whether a line says how many files and rows the manifest has."""
    return UNKNOWN not in [getattr(manifest, name) for name in _counted(())]


def counted(manifest: Manifest, entries: Sequence[ManifestEntry]) -> Manifest:
    """The line, with the counts of the manifest's entries."""
    return replace(manifest, **_counted(entries))


def _counted(entries: Sequence[ManifestEntry]) -> dict[str, Any]:
    """Files and rows by status, as a line names them."""
    found: dict[str, Any] = {}
    for status, word in ((Status.ADDED, "added"), (Status.EXISTING, "existing"), (Status.DELETED, "deleted")):
        of_status = [entry.file for entry in entries if entry.status is status]
        found |= {f"{word}_files": len(of_status), f"{word}_rows": sum(file.rows for file in of_status)}
    return found


def with_row_ids(manifests: Sequence[Manifest], first_row_id: int) -> tuple[list[Manifest], int]:
    """The lines with row ids for those data manifests that have none, and the next free row id (spec, "First Row ID
    Assignment"). Existing rows are counted too: those of a table that was upgraded to version 3 have no ids yet."""
    numbered = []
    for manifest in manifests:
        if manifest.content is ManifestContent.DATA and manifest.first_row_id is None:
            numbered.append(replace(manifest, first_row_id=first_row_id))
            first_row_id += manifest.existing_rows + manifest.added_rows
        else:
            numbered.append(manifest)
    return numbered, first_row_id


def write_manifest_list(
    manifests: Sequence[Manifest],
    version: int,
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    first_row_id: int | None = None,
) -> bytes:
    """The bytes of a manifest list. Lines of new manifests get the snapshot's sequence number.

    `first_row_id` is the snapshot's (version 3); the lines have their own already.
    """
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
        "format-version": str(version),
    }
    if version == 1:
        del metadata["sequence-number"]
    if version >= 3:
        metadata["first-row-id"] = str(first_row_id)
    lines = [_line(manifest, sequence_number, version) for manifest in manifests]
    return avro.avro_bytes(_list_schema(version), lines, metadata)


def read_manifest_list(data: bytes, path: str) -> list[Manifest]:
    """The lines of a manifest list. Raises CorruptionError naming it."""
    found, schema, _ = avro.records(data, path)
    try:
        names = _names_by_id(schema)
        return [_manifest(record, names) for record in found]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"{path} is not a manifest list: {error!r}") from error


# Schemas: (field id, name, Avro type, optional, since which format version)


def _optional(type_: Any) -> Any:
    return ["null", type_]


def _map(key_id: int, value_id: int, value: str) -> dict[str, Any]:
    """A map with whole numbers as keys is a list of pairs in Avro (spec, appendix A)."""
    fields = [
        {"name": "key", "type": "int", "field-id": key_id},
        {"name": "value", "type": value, "field-id": value_id},
    ]
    pair = {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": fields}
    return {"type": "array", "logicalType": "map", "items": pair}


_DATA_FILE: tuple[tuple[int, str, Any, bool, int], ...] = (
    (134, "content", "int", False, 2),
    (100, "file_path", "string", False, 1),
    (101, "file_format", "string", False, 1),
    (102, "partition", None, False, 1),
    (103, "record_count", "long", False, 1),
    (104, "file_size_in_bytes", "long", False, 1),
    (105, "block_size_in_bytes", "long", False, 1),
    (108, "column_sizes", _map(117, 118, "long"), True, 1),
    (109, "value_counts", _map(119, 120, "long"), True, 1),
    (110, "null_value_counts", _map(121, 122, "long"), True, 1),
    (137, "nan_value_counts", _map(138, 139, "long"), True, 1),
    (125, "lower_bounds", _map(126, 127, "bytes"), True, 1),
    (128, "upper_bounds", _map(129, 130, "bytes"), True, 1),
    (131, "key_metadata", "bytes", True, 1),
    (132, "split_offsets", {"type": "array", "items": "long", "element-id": 133}, True, 1),
    (135, "equality_ids", {"type": "array", "items": "int", "element-id": 136}, True, 2),
    (140, "sort_order_id", "int", True, 1),
    (142, "first_row_id", "long", True, 3),
    (143, "referenced_data_file", "string", True, 2),
    (144, "content_offset", "long", True, 3),
    (145, "content_size_in_bytes", "long", True, 3),
)

_ONLY_IN_VERSION_1 = (105,)
BLOCK_BYTES = 64 << 20
"""Version 1 demands a block size for each file. Nobody reads it; Iceberg's own writers put this number."""

_ENTRY: tuple[tuple[int, str, Any, bool, int], ...] = (
    (0, "status", "int", False, 1),
    (1, "snapshot_id", "long", True, 1),
    (3, "sequence_number", "long", True, 2),
    (4, "file_sequence_number", "long", True, 2),
    (2, "data_file", None, False, 1),
)

_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        {"name": "contains_null", "type": "boolean", "field-id": 509},
        {"name": "contains_nan", "type": ["null", "boolean"], "default": None, "field-id": 518},
        {"name": "lower_bound", "type": ["null", "bytes"], "default": None, "field-id": 510},
        {"name": "upper_bound", "type": ["null", "bytes"], "default": None, "field-id": 511},
    ],
}

_MANIFEST: tuple[tuple[int, str, Any, bool, int], ...] = (
    (500, "manifest_path", "string", False, 1),
    (501, "manifest_length", "long", False, 1),
    (502, "partition_spec_id", "int", False, 1),
    (517, "content", "int", False, 2),
    (515, "sequence_number", "long", False, 2),
    (516, "min_sequence_number", "long", False, 2),
    (503, "added_snapshot_id", "long", False, 1),
    (504, "added_files_count", "int", False, 1),
    (505, "existing_files_count", "int", False, 1),
    (506, "deleted_files_count", "int", False, 1),
    (512, "added_rows_count", "long", False, 1),
    (513, "existing_rows_count", "long", False, 1),
    (514, "deleted_rows_count", "long", False, 1),
    (507, "partitions", {"type": "array", "items": _SUMMARY, "element-id": 508}, True, 1),
    (519, "key_metadata", "bytes", True, 1),
    (520, "first_row_id", "long", True, 3),
)


def _fields(rows: Iterable[tuple[int, str, Any, bool, int]], version: int) -> list[dict[str, Any]]:
    fields = []
    for field_id, name, type_, optional, since in rows:
        if since <= version and (version == 1 or field_id not in _ONLY_IN_VERSION_1):
            field: dict[str, Any] = {"name": name, "type": _optional(type_) if optional else type_}
            fields.append(field | ({"default": None} if optional else {}) | {"field-id": field_id})
    return fields


def entry_schema(spec: Spec, version: int) -> dict[str, Any]:
    """The Avro schema of a manifest of this spec."""
    partition = {"type": "record", "name": "r102", "fields": _defined_once(part.avro for part in spec.fields)}
    rows = [(number, name, partition if number == 102 else type_, *rest) for number, name, type_, *rest in _DATA_FILE]
    data_file = {"type": "record", "name": "r2", "fields": _fields(rows, version)}  # type: ignore[arg-type]
    rows = [(number, name, data_file if number == 2 else type_, *rest) for number, name, type_, *rest in _ENTRY]
    return {"type": "record", "name": "manifest_entry", "fields": _fields(rows, version)}  # type: ignore[arg-type]


def _defined_once(fields: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The fields, each with a definition and a name of its own for its type (decimal, UUID). Avro forbids to define a
    name twice, and PyIceberg cannot read a type that is only named."""
    known: set[str] = set()

    def once(type_: Any, number: int) -> Any:
        if isinstance(type_, list):
            return [once(member, number) for member in type_]
        if not isinstance(type_, dict) or "name" not in type_:
            return type_
        name = f"{type_['name']}_{number}" if type_["name"] in known else type_["name"]
        known.add(name)
        return {**type_, "name": name}

    return [{**part, "type": once(part["type"], part["field-id"])} for part in fields]


def _list_schema(version: int) -> dict[str, Any]:
    return {"type": "record", "name": "manifest_file", "fields": _fields(_MANIFEST, version)}


def _names_by_id(schema: Mapping[str, Any]) -> dict[int, str]:
    return {int(part["field-id"]): part["name"] for part in schema["fields"]}


def _type_of(schema: Mapping[str, Any], name: str) -> Any:
    return not_null(next(part["type"] for part in schema["fields"] if part["name"] == name))


# Entries


def _record(entry: ManifestEntry, spec: Spec, version: int) -> dict[str, Any]:
    file = entry.file
    data_file = {
        "content": int(file.content),
        "file_path": file.path,
        "file_format": file.file_format,
        "partition": {
            part.avro["name"]: avro_value(value, part.avro["type"])
            for part, value in zip(spec.fields, file.partition, strict=True)
        },
        "record_count": file.rows,
        "file_size_in_bytes": file.file_bytes,
        "block_size_in_bytes": BLOCK_BYTES,
        "column_sizes": _pairs(file.column_sizes),
        "value_counts": _pairs(file.value_counts),
        "null_value_counts": _pairs(file.null_value_counts),
        "nan_value_counts": _pairs(file.nan_value_counts),
        "lower_bounds": _pairs(file.lower_bounds),
        "upper_bounds": _pairs(file.upper_bounds),
        "key_metadata": file.key_metadata,
        "split_offsets": list(file.split_offsets) or None,
        "equality_ids": list(file.equality_ids) or None,
        "sort_order_id": file.sort_order_id,
        "referenced_data_file": file.referenced_data_file,
    }
    if version >= 3:
        data_file |= {
            "first_row_id": file.first_row_id,
            "content_offset": file.content_offset,
            "content_size_in_bytes": file.content_size,
        }
    return {
        "status": int(entry.status),
        "snapshot_id": entry.snapshot_id,
        "sequence_number": entry.sequence_number,
        "file_sequence_number": entry.file_sequence_number,
        "data_file": data_file,
    }


def _pairs(values: Mapping[int, Any]) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in values.items()] or None


def _entry(
    record: Mapping[str, Any],
    names: Mapping[int, str],
    file_names: Mapping[int, str],
    partition: Sequence[tuple[str, Any]],
    manifest: Manifest,
) -> ManifestEntry:
    described = record[names[2]]

    def value(number: int) -> Any:
        return described.get(file_names[number]) if number in file_names else None

    def mapping(number: int) -> dict[int, Any]:
        return {pair["key"]: pair["value"] for pair in value(number) or ()}

    def above(number: int) -> Any:
        return record.get(names[number]) if number in names else None

    status = Status(above(0))
    inherits = status is Status.ADDED or manifest.sequence_number == 0  # version 1 has no sequence numbers: all are 0
    sequence, file_sequence = above(3), above(4)
    if sequence is None and inherits:
        sequence = manifest.sequence_number
    if file_sequence is None and inherits:
        file_sequence = manifest.sequence_number
    if sequence is None or file_sequence is None:
        raise ValueError(f"{value(100)} has no sequence number although it is not new")
    snapshot_id = above(1)
    file = ContentFile(
        content=Content(value(134) or 0),
        path=value(100),
        file_format=value(101).upper(),
        spec_id=manifest.spec_id,
        partition=tuple(compared(value(102)[name], avro) for name, avro in partition),
        rows=value(103),
        file_bytes=value(104),
        column_sizes=mapping(108),
        value_counts=mapping(109),
        null_value_counts=mapping(110),
        nan_value_counts=mapping(137),
        lower_bounds=mapping(125),
        upper_bounds=mapping(128),
        key_metadata=value(131),
        split_offsets=tuple(value(132) or ()),
        equality_ids=tuple(value(135) or ()),
        sort_order_id=value(140),
        first_row_id=value(142),
        referenced_data_file=value(143),
        content_offset=value(144),
        content_size=value(145),
    )
    return ManifestEntry(
        status, manifest.snapshot_id if snapshot_id is None else snapshot_id, sequence, file_sequence, file
    )


def _with_inherited_row_ids(entries: Iterable[ManifestEntry], manifest: Manifest) -> Iterator[ManifestEntry]:
    """The entries with row ids: files without one get the next ids of the manifest. If the manifest has no row id, it
    was written before the table was upgraded to version 3, and its files get none."""
    upcoming = manifest.first_row_id
    for entry in entries:
        file = entry.file
        if upcoming is None:
            yield replace(entry, file=replace(file, first_row_id=None)) if file.first_row_id is not None else entry
        elif file.first_row_id is None and entry.status is not Status.DELETED:
            yield replace(entry, file=replace(file, first_row_id=upcoming))
            upcoming += file.rows
        else:
            yield entry


# Lines of a manifest list


def _line(manifest: Manifest, sequence_number: int, version: int) -> dict[str, Any]:
    def numbered(number: int) -> int:
        return sequence_number if number == NEW else number

    line = {
        "manifest_path": manifest.path,
        "manifest_length": manifest.file_bytes,
        "partition_spec_id": manifest.spec_id,
        "content": int(manifest.content),
        "sequence_number": numbered(manifest.sequence_number),
        "min_sequence_number": numbered(manifest.min_sequence_number),
        "added_snapshot_id": manifest.snapshot_id,
        "added_files_count": manifest.added_files,
        "existing_files_count": manifest.existing_files,
        "deleted_files_count": manifest.deleted_files,
        "added_rows_count": manifest.added_rows,
        "existing_rows_count": manifest.existing_rows,
        "deleted_rows_count": manifest.deleted_rows,
        "partitions": None if manifest.partitions is None else list(manifest.partitions),
        "key_metadata": manifest.key_metadata,
    }
    return line | ({"first_row_id": manifest.first_row_id} if version >= 3 else {})


def _manifest(record: Mapping[str, Any], names: Mapping[int, str]) -> Manifest:
    def value(number: int) -> Any:
        return record.get(names[number]) if number in names else None

    def count(number: int) -> int:
        found = value(number)
        return UNKNOWN if found is None else found

    partitions = value(507)
    return Manifest(
        path=value(500),
        file_bytes=value(501),
        spec_id=value(502),
        content=ManifestContent(value(517) or 0),
        sequence_number=value(515) or 0,
        min_sequence_number=value(516) or 0,
        snapshot_id=value(503),
        added_files=count(504),
        existing_files=count(505),
        deleted_files=count(506),
        added_rows=count(512),
        existing_rows=count(513),
        deleted_rows=count(514),
        partitions=None if partitions is None else tuple(partitions),
        key_metadata=value(519),
        first_row_id=value(520),
    )


# Partition summaries (field 507): planners skip manifests by them, so a wrong bound would lose rows


def partition_summaries(spec: Spec, partitions: Sequence[PartitionTuple]) -> list[dict[str, Any]]:
    """The summaries of partition fields in the line of a manifest, one for each field."""
    return [_summary(part, [values[place] for values in partitions]) for place, part in enumerate(spec.fields)]


def _summary(part: SpecField, values: Sequence[PartitionValue]) -> dict[str, Any]:
    known = [value for value in values if value is not None and value == value]
    to_bytes, order = _single_value(part)
    return {
        "contains_null": any(value is None for value in values),
        "contains_nan": any(isinstance(value, float) and value != value for value in values),
        "lower_bound": to_bytes(min(known, key=order)) if known else None,
        "upper_bound": to_bytes(max(known, key=order)) if known else None,
    }


_PACKED = {"int": "<i", "long": "<q", "float": "<f", "double": "<d", "boolean": "<?"}


def _single_value(part: SpecField) -> tuple[Callable[[Any], bytes], Callable[[Any], Any]]:
    """How a value of the partition field is stored as a bound (spec, appendix D), and how values are ordered."""
    type_ = not_null(part.avro["type"])
    name = type_ if isinstance(type_, str) else type_["type"]
    if is_decimal(type_):
        return _shortest, lambda value: value
    if name in ("float", "double"):
        return struct.Struct(_PACKED[name]).pack, lambda value: (float(value), math.copysign(1, value))
    if name in _PACKED:
        return struct.Struct(_PACKED[name]).pack, lambda value: value
    if name == "string":
        return str.encode, str.encode
    return bytes, bytes


def bound_value(part: SpecField) -> Callable[[bytes], Any]:
    """A function from a stored bound of the partition field to a value in the field's order."""
    type_ = not_null(part.avro["type"])
    if is_decimal(type_):
        return lambda bound: int.from_bytes(bound, "big", signed=True)
    name = type_ if isinstance(type_, str) else type_["type"]
    if name not in _PACKED:
        return bytes
    narrow, wide = ("<f", "<d") if name in ("float", "double") else ("<i", "<q")
    by_width = {1: "<?", 4: narrow, 8: wide}  # a column that was widened has bounds of both widths
    return lambda bound: struct.unpack(by_width[len(bound)], bound)[0]


def _shortest(number: int) -> bytes:
    """A decimal without needless leading bytes."""
    return number.to_bytes(shortest_bytes(number), "big", signed=True)

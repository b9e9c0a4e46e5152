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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
        names = _names_by_id(schema, _OF_ENTRIES)
        file_names = _names_by_id(_file_schema(schema), _OF_FILES)
        partition = [(part["name"], part["type"]) for part in partition_fields(schema, manifest.path)]
        entries = [_entry(record, names, file_names, partition, manifest) for record in found]
        return list(_with_inherited_row_ids(entries, manifest))
    except (KeyError, StopIteration, TypeError, ValueError, AttributeError) as error:
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
    first_row_id: int | None,
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
        names = _names_by_id(schema, _OF_LISTS)
        if names.keys() & _OF_VERSION_2:
            names = _names_by_id(schema, _OF_VERSION_2)
        return [_manifest(record, names) for record in found]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"{path} is not a manifest list: {error!r}") from error


# Schemas

_Field = tuple[int, str, Any, bool, int, str]
"""Field id, name, Avro type, whether it is optional, since which format version, and our name; "": we have none."""


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


_DATA_FILE: tuple[_Field, ...] = (
    (134, "content", "int", False, 2, "content"),
    (100, "file_path", "string", False, 1, "path"),
    (101, "file_format", "string", False, 1, "file_format"),
    (102, "partition", None, False, 1, ""),
    (103, "record_count", "long", False, 1, "rows"),
    (104, "file_size_in_bytes", "long", False, 1, "file_bytes"),
    (105, "block_size_in_bytes", "long", False, 1, ""),
    (108, "column_sizes", _map(117, 118, "long"), True, 1, "column_sizes"),
    (109, "value_counts", _map(119, 120, "long"), True, 1, "value_counts"),
    (110, "null_value_counts", _map(121, 122, "long"), True, 1, "null_value_counts"),
    (137, "nan_value_counts", _map(138, 139, "long"), True, 1, "nan_value_counts"),
    (125, "lower_bounds", _map(126, 127, "bytes"), True, 1, "lower_bounds"),
    (128, "upper_bounds", _map(129, 130, "bytes"), True, 1, "upper_bounds"),
    (131, "key_metadata", "bytes", True, 1, "key_metadata"),
    (132, "split_offsets", {"type": "array", "items": "long", "element-id": 133}, True, 1, "split_offsets"),
    (135, "equality_ids", {"type": "array", "items": "int", "element-id": 136}, True, 2, "equality_ids"),
    (140, "sort_order_id", "int", True, 1, "sort_order_id"),
    (142, "first_row_id", "long", True, 3, "first_row_id"),
    (143, "referenced_data_file", "string", True, 2, "referenced_data_file"),
    (144, "content_offset", "long", True, 3, "content_offset"),
    (145, "content_size_in_bytes", "long", True, 3, "content_size"),
)

_OF_FILE = tuple((number, name, type_, since, ours) for number, name, type_, _, since, ours in _DATA_FILE if ours)
_ONLY_IN_VERSION_1 = (105,)
BLOCK_BYTES = 64 << 20
"""Version 1 demands a block size for each file. Nobody reads it; Iceberg's own writers put this number."""

_ENTRY: tuple[_Field, ...] = (
    (0, "status", "int", False, 1, ""),
    (1, "snapshot_id", "long", True, 1, ""),
    (3, "sequence_number", "long", True, 2, ""),
    (4, "file_sequence_number", "long", True, 2, ""),
    (2, "data_file", None, False, 1, ""),
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

_MANIFEST: tuple[_Field, ...] = (
    (500, "manifest_path", "string", False, 1, "path"),
    (501, "manifest_length", "long", False, 1, "file_bytes"),
    (502, "partition_spec_id", "int", False, 1, "spec_id"),
    (517, "content", "int", False, 2, "content"),
    (515, "sequence_number", "long", False, 2, "sequence_number"),
    (516, "min_sequence_number", "long", False, 2, "min_sequence_number"),
    (503, "added_snapshot_id", "long", False, 1, "snapshot_id"),
    (504, "added_files_count", "int", False, 1, "added_files"),
    (505, "existing_files_count", "int", False, 1, "existing_files"),
    (506, "deleted_files_count", "int", False, 1, "deleted_files"),
    (512, "added_rows_count", "long", False, 1, "added_rows"),
    (513, "existing_rows_count", "long", False, 1, "existing_rows"),
    (514, "deleted_rows_count", "long", False, 1, "deleted_rows"),
    (507, "partitions", {"type": "array", "items": _SUMMARY, "element-id": 508}, True, 1, "partitions"),
    (519, "key_metadata", "bytes", True, 1, "key_metadata"),
    (520, "first_row_id", "long", True, 3, "first_row_id"),
)


_OF_ENTRIES, _OF_FILES, _OF_LISTS = (0, 2), (100, 101, 102, 103, 104), (500, 501, 502)
"""The fields that every manifest, and every manifest list, has."""
_OF_VERSION_2 = {515, 516, 517}
"""Lists have all of these fields, or none. Without its sequence number, a delete would apply to nothing."""


def _fields(rows: Iterable[_Field], version: int) -> list[dict[str, Any]]:
    fields = []
    for field_id, name, type_, optional, since, _ in rows:
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


def _names_by_id(schema: Mapping[str, Any], needed: Collection[int] = ()) -> dict[int, str]:
    """The names of a schema's fields. Raises ValueError if it lacks a needed one: a bit of the header has flipped."""
    found = {int(part["field-id"]): part["name"] for part in schema["fields"]}
    if missing := [number for number in needed if number not in found]:
        raise ValueError(f"it has no field {missing[0]}")
    return found


def _type_of(schema: Mapping[str, Any], name: str) -> Any:
    return not_null(next(part["type"] for part in schema["fields"] if part["name"] == name))


# Entries


def _record(entry: ManifestEntry, spec: Spec, version: int) -> dict[str, Any]:
    file = entry.file
    data_file = {name: _stored(getattr(file, ours)) for _, name, _, since, ours in _OF_FILE if since <= version}
    data_file["block_size_in_bytes"] = BLOCK_BYTES
    data_file["partition"] = {
        part.avro["name"]: avro_value(value, part.avro["type"])
        for part, value in zip(spec.fields, file.partition, strict=True)
    }
    return {
        "status": int(entry.status),
        "snapshot_id": entry.snapshot_id,
        "sequence_number": entry.sequence_number,
        "file_sequence_number": entry.file_sequence_number,
        "data_file": data_file,
    }


def _stored(value: Any) -> Any:
    """A value of ours as Avro has it. A mapping or a tuple without members is null."""
    if isinstance(value, Mapping):
        return [{"key": key, "value": value} for key, value in value.items()] or None
    return list(value) or None if isinstance(value, tuple) else value


def _unstored(value: Any, type_: Any) -> Any:
    """The same backwards, by its type."""
    if not isinstance(type_, dict):
        return value
    return {pair["key"]: pair["value"] for pair in value or ()} if "logicalType" in type_ else tuple(value or ())


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
    plain = {ours: _unstored(value(number), type_) for number, _, type_, _, ours in _OF_FILE}
    plain |= {
        "content": Content(value(134) or 0),
        "file_format": value(101).upper(),
        "spec_id": manifest.spec_id,
        "partition": tuple(compared(value(102)[name], avro) for name, avro in partition),
    }
    file = ContentFile(**plain)
    if file.is_equality_delete and not file.equality_ids:
        raise ValueError(f"{file.path} is an equality delete without columns")
    if file.manifest_content is not manifest.content:  # a field of another number makes deletes look like data
        raise ValueError(f"{file.path} has {file.content.name} among {manifest.content.name}")
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
    line = {name: getattr(manifest, ours) for _, name, *_, since, ours in _MANIFEST if since <= version}
    new = {name: sequence_number for name in ("sequence_number", "min_sequence_number") if line.get(name) == NEW}
    return line | new | {"partitions": None if manifest.partitions is None else list(manifest.partitions)}


def _manifest(record: Mapping[str, Any], names: Mapping[int, str]) -> Manifest:
    plain = {ours: record.get(names[number]) if number in names else None for number, *_, ours in _MANIFEST}
    unknown = {name: UNKNOWN for name in _counted(()) if plain[name] is None}
    absent = {name: 0 for name in ("sequence_number", "min_sequence_number") if plain[name] is None}
    partitions = plain["partitions"]
    return Manifest(
        **plain
        | unknown
        | absent
        | {
            "content": ManifestContent(plain["content"] or 0),
            "partitions": None if partitions is None else tuple(partitions),
        }
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

"""The Avro schemas of manifests and manifest lists, and the names of fields in the schemas of other writers.

    102 partition      since version 1               its fields are those of the partition spec
    134 content        since version 2               our name: content
    142 first_row_id   since version 3, optional     our name: first_row_id

PyIceberg reads every manifest with the schema of format version 2 and drops the fields 142 to 145. These tables have
all fields up to version 3, also for manifests of version 2, where Java writes 143. Fields are found by field id,
because names of partition fields may be changed to fit Avro.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from deltacompact.base.errors import CorruptionError
from deltacompact.iceberg.table.content_files import Spec
from deltacompact.iceberg.table.partition_values import not_null

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

FILE_FIELDS = tuple((number, name, type_, since, ours) for number, name, type_, _, since, ours in _DATA_FILE if ours)
"""Field id, name, Avro type, since which format version, and our name: of a content file in a manifest."""
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

_LINE: tuple[_Field, ...] = (
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


LINE_FIELDS = tuple((number, name, since, ours) for number, name, *_, since, ours in _LINE)
"""Field id, name, since which format version, and our name: of a manifest in a manifest list."""

_OF_ENTRIES, _OF_FILES, _OF_LISTS = {0, 2}, {100, 101, 102, 103, 104}, {500, 501, 502}
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


def list_schema(version: int) -> dict[str, Any]:
    """The Avro schema of a manifest list."""
    return {"type": "record", "name": "manifest_file", "fields": _fields(_LINE, version)}


# Names in a schema that another has written. Each raises ValueError for a lack: a bit of the header has flipped


def names_of_entry(schema: Mapping[str, Any]) -> dict[int, str]:
    """The names of the fields of an entry, by field id."""
    return _names_by_id(schema, _OF_ENTRIES)


def names_of_file(schema: Mapping[str, Any]) -> dict[int, str]:
    """The names of the fields of an entry's file."""
    return _names_by_id(_file_schema(schema), _OF_FILES)


def names_of_line(schema: Mapping[str, Any]) -> dict[int, str]:
    """The names of the fields of a line in a manifest list."""
    found = _names_by_id(schema)
    _check_has(found, _OF_LISTS | (_OF_VERSION_2 if found.keys() & _OF_VERSION_2 else set()))
    return found


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


def _names_by_id(schema: Mapping[str, Any], needed: Collection[int] = ()) -> dict[int, str]:
    found = {int(part["field-id"]): part["name"] for part in schema["fields"]}
    _check_has(found, needed)
    return found


def _check_has(names: Collection[int], needed: Collection[int]) -> None:
    if missing := sorted(set(needed).difference(names)):
        raise ValueError(f"it has no field {missing[0]}")


def _type_of(schema: Mapping[str, Any], name: str) -> Any:
    return not_null(next(part["type"] for part in schema["fields"] if part["name"] == name))

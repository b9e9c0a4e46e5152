"""Copies manifest entries as stored bytes, so that rewriting a manifest loses no field (rule 24).

    stored     ADDED      9     null  null   a.parquet, 17 counts and bounds, first_row_id, a field of next year
    written    EXISTING   9     5     5      the same bytes

Only status and sequence numbers of an entry change (rule 4), and in version 3 a row id that it inherits. The bytes of
its data file are copied, so that column statistics cost nothing. If another writer has other fields, or another order,
its entries are decoded and encoded anew, by field id. So are entries from before a partition column was widened,
because a decimal has more bytes now.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltacompact.base.errors import CorruptionError, InputError
from deltacompact.iceberg.table import avro
from deltacompact.iceberg.table.avro import Codec, SplitRecord
from deltacompact.iceberg.table.content_files import (
    Manifest,
    PartitionTuple,
    Spec,
    Status,
)
from deltacompact.iceberg.table.manifest_schemas import entry_schema
from deltacompact.iceberg.table.manifests import sequence_numbers
from deltacompact.iceberg.table.partition_values import avro_value, compared, is_decimal

_FILE, _PARTITION, _ROWS, _FIRST_ROW_ID = 2, 102, 103, 142
_NULL = b"\0"
"""How Avro stores a null whose type comes first in its union."""

Fields = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest as it is stored, and the schema of its writer."""

    manifest: Manifest
    data: bytes
    schema: Mapping[str, Any]

    @classmethod
    def of(cls, manifest: Manifest, data: bytes) -> StoredManifest:
        """Raises CorruptionError if it is not a manifest, InputError if it is encrypted."""
        if manifest.key_metadata is not None:
            raise InputError(f"{manifest.path} is encrypted: encrypted Iceberg tables cannot be maintained")
        schema = avro.schema_of(data, manifest.path)
        if not {0, 1, _FILE} <= {field.get("field-id") for field in schema.get("fields", ())}:
            raise CorruptionError(f"{manifest.path} is not a manifest: it lacks the fields 0 to 2")
        return cls(manifest, data, schema)

    @property
    def file_fields(self) -> Fields:
        return _file_fields(self.schema)


@dataclass(frozen=True, slots=True)
class EncodedEntry:
    """A live entry: its bytes in the common schema (`record`), and the fields that sort and count it."""

    partition: PartitionTuple
    rows: int
    sequence_number: int
    record: bytes


def common_schema(stored: Sequence[StoredManifest], spec: Spec, version: int) -> dict[str, Any]:
    """The schema of the format version, plus every unknown field that one of the manifests has."""
    schema = entry_schema(spec, version)
    file_schema = _field(schema["fields"], _FILE)["type"]
    others = [field for field in schema["fields"] if field["field-id"] != _FILE]
    file_fields = _with_unknown(file_schema["fields"], [source.file_fields for source in stored])
    above = _with_unknown(others, [_above(source.schema) for source in stored])
    data_file = {"name": "data_file", "type": file_schema | {"fields": file_fields}, "field-id": _FILE}
    known = len(others)
    return schema | {"fields": [*above[:known], data_file, *above[known:]]}


def encoded_entries(source: StoredManifest, schema: Mapping[str, Any], spec: Spec) -> list[EncodedEntry]:
    """The live entries, each EXISTING with explicit sequence numbers. Raises CorruptionError naming the manifest."""
    try:
        return list(_EntryEncoding(source, schema, spec).entries())
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise CorruptionError(f"{source.manifest.path} is not a manifest: {error!r}") from error


class _EntryEncoding:
    """Turns the entries of one manifest into bytes of a common schema."""

    def __init__(self, source: StoredManifest, schema: Mapping[str, Any], spec: Spec) -> None:
        self._manifest = source.manifest
        self._source = source
        self._above = {int(field["field-id"]): str(field["name"]) for field in _above(source.schema)}
        fields, wanted = source.file_fields, _file_fields(schema)
        self._names = {int(field["field-id"]): str(field["name"]) for field in fields}
        self._partition_fields = _partition_fields(fields, spec)
        place = next(place for place, field in enumerate(schema["fields"]) if field["field-id"] == _FILE)
        self._before = _Renamed(_above(source.schema), schema["fields"][:place])
        self._after = _Renamed(_above(source.schema), schema["fields"][place + 1 :])
        shape = _shape(wanted)
        as_stored = _shape(fields) == shape[: len(fields)] and all(
            _is_optional(field) for field in wanted[len(fields) :]
        )
        self._missing = _NULL * (len(wanted) - len(fields)) if as_stored else None
        self._file = Codec(_field(source.schema["fields"], _FILE)["type"])
        self._renamed_file = _Renamed(fields, wanted)
        last = [number for number, field in enumerate(wanted) if field["field-id"] == _FIRST_ROW_ID]
        self._end = _Renamed(fields, wanted[last[0] :]) if last else None

    def entries(self) -> list[EncodedEntry]:
        seen = {self._names[number] for number in (_PARTITION, _ROWS)}
        if self._end is not None:
            seen |= {name for name, _ in self._end.names}
        path = self._manifest.path
        found = []
        row_id = self._manifest.first_row_id
        for part in avro.split(self._source.data, path, _field(self._source.schema["fields"], _FILE)["name"], seen):
            if part.around[self._above[0]] == Status.DELETED:
                continue
            rows = part.seen[self._names[_ROWS]]
            inherited = None
            if self._end is not None and self._value(part, _FIRST_ROW_ID) is None and row_id is not None:
                inherited, row_id = row_id, row_id + rows
            found.append(self._entry(part, rows, inherited))
        return found

    def _entry(self, part: SplitRecord, rows: int, row_id: int | None) -> EncodedEntry:
        sequence, file_sequence = self._sequence_numbers(part)
        snapshot_id = part.around[self._above[1]]
        head = {
            **self._before.record(part.around),
            "status": int(Status.EXISTING),
            "snapshot_id": self._manifest.snapshot_id if snapshot_id is None else snapshot_id,
            "sequence_number": sequence,
            "file_sequence_number": file_sequence,
        }
        file = self._stored_file(part, row_id)
        record = self._before.encoded(head) + file + self._after.encoded(self._after.record(part.around))
        values = part.seen[self._names[_PARTITION]]
        partition = tuple(compared(values[field["name"]], field["type"]) for field in self._partition_fields)
        return EncodedEntry(partition, rows, sequence, record)

    def _sequence_numbers(self, part: SplitRecord) -> tuple[int, int | None]:
        data, file = (part.around.get(self._above[number]) if number in self._above else None for number in (3, 4))
        return sequence_numbers(part.around[self._above[0]], data, file, self._manifest)

    def _stored_file(self, part: SplitRecord, row_id: int | None) -> bytes:
        """The data file's bytes in the common schema."""
        drops = self._end is not None and self._manifest.first_row_id is None
        changes = row_id is not None or (drops and self._value(part, _FIRST_ROW_ID) is not None)
        if self._missing is not None:
            file = part.stored + self._missing
            if not changes:
                return file
            assert self._end is not None
            end = self._end.record(part.seen)
            old = self._end.encoded(end)
            if file.endswith(old):
                return file[: len(file) - len(old)] + self._end.encoded(end | {"first_row_id": row_id})
        record = self._renamed_file.record(self._file.decoded(part.stored))
        return self._renamed_file.encoded(record | {"first_row_id": row_id} if changes else record)

    def _value(self, part: SplitRecord, number: int) -> Any:
        return part.seen[self._names[number]] if number in self._names else None


class _Renamed:
    """Records of one writer under the names of the common schema. Fields are the same if their ids are."""

    def __init__(self, fields: Fields, wanted: Fields) -> None:
        by_id = {field["field-id"]: field for field in fields}
        self._wanted = {field["name"]: field for field in wanted}
        found = [(by_id.get(field["field-id"]), field) for field in wanted]
        self.names = [(str(source["name"]), str(field["name"])) for source, field in found if source is not None]
        self._defaults = {
            str(field["name"]): 0 for source, field in found if source is None and not _is_optional(field)
        }
        """Manifests of version 1 do not say that they have data files, content 0."""
        self._decimals = [
            (str(field["name"]), source["type"], field["type"])
            for source, field in found
            if source is not None and source["type"] != field["type"] and is_decimal(source["type"])
        ]
        self._partition: tuple[str, _Renamed] | None = None
        for source, field in found:
            if source is not None and field["field-id"] == _PARTITION:
                self._partition = str(field["name"]), _Renamed(source["type"]["fields"], field["type"]["fields"])
        self._codec = Codec({"type": "record", "name": "renamed", "fields": list(wanted)}) if wanted else None

    def record(self, values: Mapping[str, Any]) -> dict[str, Any]:
        record = {name: values.get(source) for source, name in self.names}
        if self._partition is not None:
            name, renamed = self._partition
            record[name] = renamed.record(record[name] or {})
        for name, before, now in self._decimals:
            record[name] = avro_value(compared(record[name], before), now)
        return self._defaults | record

    def encoded(self, record: Mapping[str, Any]) -> bytes:
        return self._codec.encoded(record) if self._codec is not None else b""


def order_of(entry: EncodedEntry) -> tuple[tuple[int, Any], ...]:
    """The sort key of an entry, by its partition: null, then values, then NaN, field by field."""
    return tuple(_order_of_value(value) for value in entry.partition)


def _order_of_value(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def _field(fields: Fields, number: int) -> Mapping[str, Any]:
    return next(field for field in fields if field["field-id"] == number)


def _above(schema: Mapping[str, Any]) -> Fields:
    """The fields of an entry besides the data file."""
    return [field for field in schema["fields"] if field["field-id"] != _FILE]


def _file_fields(schema: Mapping[str, Any]) -> Fields:
    found: Fields = _field(schema["fields"], _FILE)["type"]["fields"]
    return found


def _partition_fields(fields: Fields, spec: Spec) -> list[Mapping[str, Any]]:
    """The writer's partition fields, in the order of the spec."""
    by_id = {int(field["field-id"]): field for field in _field(fields, _PARTITION)["type"]["fields"]}
    return [by_id[part.field_id] for part in spec.fields]


def _with_unknown(known: Fields, writers: Sequence[Fields]) -> list[dict[str, Any]]:
    """The known fields, and behind them every other one, which need not have a value."""
    found = {int(field["field-id"]): dict(field) for field in known}
    for fields in writers:
        for field in fields:
            number = int(field["field-id"])
            if number not in found:
                type_ = field["type"] if _is_optional(field) else ["null", field["type"]]
                found[number] = {"name": field["name"], "type": type_, "default": None, "field-id": number}
    return list(found.values())


def _is_optional(field: Mapping[str, Any]) -> bool:
    return isinstance(field["type"], list) and field["type"][0] == "null"


def _shape(schema: Any) -> Any:
    """How values of the schema are laid out in bytes, and which fields they are. Names do not matter."""
    if isinstance(schema, (list, tuple)):
        return tuple(_shape(member) for member in schema)
    if not isinstance(schema, dict):
        return schema
    if "field-id" in schema:
        return schema["field-id"], _shape(schema["type"])
    inner = {"record": "fields", "array": "items", "map": "values", "fixed": "size"}.get(schema["type"])
    return (schema["type"], _shape(schema[inner])) if inner else _shape(schema["type"])

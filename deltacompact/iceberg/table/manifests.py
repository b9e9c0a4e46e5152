"""Manifests and manifest lists: entries to bytes, and back without a loss.

    write_manifest(entries, spec, content, …)  ->  bytes, and the line for the manifest list
    read_manifest(bytes, manifest)             ->  entries, whose sequence numbers and row ids are filled in
    with_row_ids(lines, first row id)          ->  the lines, each new one with its first row id (version 3)

PyIceberg drops fields of version 3 when it reads, and cannot write delete manifests. This layer knows all fields
(manifest_schemas.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    Spec,
    Status,
)
from deltacompact.iceberg.table.manifest_schemas import (
    BLOCK_BYTES,
    FILE_FIELDS,
    LINE_FIELDS,
    entry_schema,
    list_schema,
    names_of_entry,
    names_of_file,
    names_of_line,
    partition_fields,
)
from deltacompact.iceberg.table.partition_summaries import partition_summaries
from deltacompact.iceberg.table.partition_values import avro_value, compared

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
        if entry.status is not Status.ADDED and entry.sequence_number is None:
            raise CorruptionError(f"{entry.file.path}: only an added file may inherit its sequence number")
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
        names, file_names = names_of_entry(schema), names_of_file(schema)
        partition = [(part["name"], part["type"]) for part in partition_fields(schema, manifest.path)]
        entries = [_entry(record, names, file_names, partition, manifest) for record in found]
        return list(_with_inherited_row_ids(entries, manifest))
    except (KeyError, StopIteration, TypeError, ValueError, AttributeError) as error:
        raise CorruptionError(f"{manifest.path} is not a manifest: {error!r}") from error


def sequence_numbers(status: int, data: int | None, file: int | None, manifest: Manifest) -> tuple[int, int | None]:
    """The data and file sequence number of an entry: as stored, or inherited. Version 1 has none: all are 0.

    Iceberg up to 1.0 stored no file sequence numbers, so that of an existing or deleted file may be unknown (None).
    """
    inherits = status == Status.ADDED or manifest.sequence_number == 0
    if data is None and (inherits or status == Status.DELETED):
        data = manifest.sequence_number
    if data is None:
        raise ValueError("a live file has no sequence number although it is not new")
    return data, manifest.sequence_number if file is None and inherits else file


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
    return avro.avro_bytes(list_schema(version), lines, metadata)


def read_manifest_list(data: bytes, path: str) -> list[Manifest]:
    """The lines of a manifest list. Raises CorruptionError naming it."""
    found, schema, _ = avro.records(data, path)
    try:
        names = names_of_line(schema)
        return [_manifest(record, names) for record in found]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"{path} is not a manifest list: {error!r}") from error


# Entries


def _record(entry: ManifestEntry, spec: Spec, version: int) -> dict[str, Any]:
    file = entry.file
    data_file = {name: _stored(getattr(file, ours)) for _, name, _, since, ours in FILE_FIELDS if since <= version}
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
    sequence, file_sequence = sequence_numbers(status, above(3), above(4), manifest)
    snapshot_id = above(1)
    plain = {ours: _unstored(value(number), type_) for number, _, type_, _, ours in FILE_FIELDS}
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
    line = {name: getattr(manifest, ours) for _, name, since, ours in LINE_FIELDS if since <= version}
    new = {name: sequence_number for name in ("sequence_number", "min_sequence_number") if line.get(name) == NEW}
    return line | new | {"partitions": None if manifest.partitions is None else list(manifest.partitions)}


def _manifest(record: Mapping[str, Any], names: Mapping[int, str]) -> Manifest:
    plain = {ours: record.get(names[number]) if number in names else None for number, *_, ours in LINE_FIELDS}
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

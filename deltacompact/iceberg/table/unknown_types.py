"""Finds the types of partition fields whose columns no schema has any more, in the manifests with their values.

    spec 0     day: identity(3)          column 3 was dropped, and an expiry cleaned the schemas that had it
    m1.avro    partition {day: int}      so `day` is an int: entries of spec 0 are carried on with their values

Iceberg's Java takes such a field for one of type `unknown`, and stores null for it (lost_partitions.py). Values that
are not null still tell apart which deletes apply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import Any

from deltacompact.base.errors import InputError
from deltacompact.iceberg.table import avro, locations, manifests
from deltacompact.iceberg.table.content_files import Manifest, Spec
from deltacompact.iceberg.table.manifest_schemas import partition_fields
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg.table.partition_values import decimal_bytes, is_decimal, not_null
from deltacompact.storage.objects import ObjectStore

Field = tuple[int, int]
"""Spec id and field id."""


def with_stored_types(metadata: TableMetadata, store: Callable[[], ObjectStore]) -> TableMetadata:
    """The metadata with types for unknown partition fields, from the manifests of all branches and tags.

    Reads manifests only if there are such fields, and only those of their specs. A field that no manifest has stays
    unknown. Raises InputError if manifests have values of several types, and no one type holds all of them.
    """
    unknown = {spec_id for spec_id, spec in metadata.specs.items() if any(part.is_unknown for part in spec.fields)}
    if not unknown:
        return metadata
    opened = store()
    stored = _stored_types(opened, _listed(metadata, opened, unknown))
    found = {spec_id: _completed(metadata.specs[spec_id], stored, metadata.table_id) for spec_id in unknown}
    return replace(metadata, specs={**metadata.specs, **found})


def _listed(metadata: TableMetadata, store: ObjectStore, spec_ids: Iterable[int]) -> list[Manifest]:
    heads = {metadata.snapshots[ref.snapshot_id].manifest_list for ref in metadata.refs.values()}
    lists = [manifests.read_manifest_list(locations.fetched(store, path), path) for path in sorted(heads)]
    by_path = {manifest.path: manifest for listed in lists for manifest in listed}
    return [manifest for manifest in by_path.values() if manifest.spec_id in spec_ids and manifest.key_metadata is None]


def _stored_types(store: ObjectStore, listed: Iterable[Manifest]) -> Mapping[Field, list[Any]]:
    found: dict[Field, list[Any]] = defaultdict(list)

    def schema(manifest: Manifest) -> tuple[Manifest, Mapping[str, Any]]:
        return manifest, avro.schema_of(locations.fetched(store, manifest.path), manifest.path)

    with ThreadPoolExecutor(locations.READS_AT_ONCE) as pool:
        for manifest, of_entries in pool.map(schema, listed):
            for field in partition_fields(of_entries, manifest.path):
                if (type_ := not_null(field["type"])) != "null":
                    found[manifest.spec_id, int(field["field-id"])].append(type_)
    return found


def _completed(spec: Spec, stored: Mapping[Field, list[Any]], table_id: str) -> Spec:
    parts = []
    for part in spec.fields:
        types = stored.get((spec.spec_id, part.field_id), [])
        if part.is_unknown and types:
            try:
                type_ = reduce(_wider, types)
            except ValueError as error:
                raise InputError(
                    f"partition field {part.name!r} of Iceberg table {table_id!r} has values of {error}, and no schema "
                    "has its column any more"
                ) from None
            part = replace(part, avro={**part.avro, "type": ["null", type_]})
        parts.append(part)
    return replace(spec, fields=tuple(parts))


_PROMOTIONS = {("int", "long"): "long", ("float", "double"): "double"}


def _wider(one: Any, other: Any) -> Any:
    """The type that holds the values of both types. Raises ValueError naming them if there is none."""
    if is_decimal(one) and is_decimal(other):
        return max(one, other, key=decimal_bytes)
    names = _name(one), _name(other)
    if names[0] == names[1] and decimal_bytes(one) == decimal_bytes(other):
        return one
    found = _PROMOTIONS.get(names) or _PROMOTIONS.get((names[1], names[0]))
    if found is None:
        raise ValueError(f"{names[0]} and of {names[1]}")
    return found


def _name(type_: Any) -> str:
    return str(type_["type"]) if isinstance(type_, dict) else str(type_)

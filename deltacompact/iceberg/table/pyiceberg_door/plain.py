"""PyIceberg's table metadata as our own plain values.

    plain_metadata("ns.t", …)     TableMetadata: refs, snapshots, columns by field id, partition specs with their Avro

`columns` has what Arrow's type does not tell: whether a column is top-level or dropped, and its default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata as PyTableMetadata
from pyiceberg.table.snapshots import Snapshot as PySnapshot
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.table.sorting import SortField as PySortField
from pyiceberg.transforms import UnknownTransform
from pyiceberg.types import IcebergType, NestedField, UnknownType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from deltacompact.iceberg.table.content_files import Spec, SpecField
from deltacompact.iceberg.table.metadata import (
    Column,
    Ref,
    Snapshot,
    SortField,
    StatisticsFile,
    TableMetadata,
)
from deltacompact.iceberg.table.partition_values import scalar_of
from deltacompact.tabular.field_ids import fields_by_id


def plain_metadata(table_id: str, metadata: PyTableMetadata, location: str) -> TableMetadata:
    schema = metadata.schema()
    types = {number: field.field_type for number, (field, _) in _newest(metadata).items()}
    return TableMetadata(
        table_id=table_id,
        uuid=str(metadata.table_uuid),
        location=metadata.location,
        metadata_location=location,
        format_version=metadata.format_version,
        last_sequence_number=getattr(metadata, "last_sequence_number", 0) or 0,
        schema_id=schema.schema_id,
        schema_json=schema.model_dump_json(),
        schema=schema_to_pyarrow(schema),
        columns=_columns(metadata),
        specs={spec.spec_id: _spec(spec, types) for spec in metadata.partition_specs},
        default_spec_id=metadata.default_spec_id,
        properties=dict(metadata.properties),
        refs={
            name: Ref(
                ref.snapshot_id,
                str(ref.snapshot_ref_type.value),
                ref.max_ref_age_ms,
                ref.max_snapshot_age_ms,
                ref.min_snapshots_to_keep,
            )
            for name, ref in metadata.refs.items()
        },
        snapshots={snapshot.snapshot_id: _snapshot(snapshot) for snapshot in metadata.snapshots},
        next_row_id=getattr(metadata, "next_row_id", None),
        statistics=tuple(
            StatisticsFile(file.snapshot_id, file.statistics_path, file.file_size_in_bytes, of_partitions)
            for files, of_partitions in ((metadata.statistics, False), (metadata.partition_statistics, True))
            for file in files
        ),
        metadata_log=tuple(entry.metadata_file for entry in metadata.metadata_log),
        last_updated_ms=metadata.last_updated_ms,
        sort_orders={order.order_id: tuple(map(_sort_field, order.fields)) for order in metadata.sort_orders},
        sort_order_id=metadata.default_sort_order_id,
    )


def _sort_field(found: PySortField) -> SortField:
    is_descending = found.direction is SortDirection.DESC
    transform = found.transform
    name = transform._transform if isinstance(transform, UnknownTransform) else str(transform)
    return SortField(found.source_id, name, is_descending, found.null_order is NullOrder.NULLS_FIRST)


def _snapshot(found: PySnapshot) -> Snapshot:
    summary: dict[str, str] = {}
    if found.summary is not None:
        summary = {"operation": found.summary.operation.value, **found.summary.additional_properties}
    return Snapshot(
        found.snapshot_id,
        found.parent_snapshot_id,
        found.sequence_number or 0,
        found.timestamp_ms,
        found.manifest_list,
        found.schema_id,
        summary,
        found.first_row_id,
        found.added_rows,
    )


def _columns(metadata: PyTableMetadata) -> dict[int, Column]:
    """Every field of every schema."""
    current = metadata.schema()
    arrow = dict(fields_by_id(schema_to_pyarrow(current)))  # at once: a wide table takes long field by field
    columns: dict[int, Column] = {}
    for number, (field, is_top_level) in _newest(metadata).items():
        in_arrow = arrow[number] if number in arrow else schema_to_pyarrow(Schema(field)).field(0)
        default, for_writers = (
            None if value is None else scalar_of(value, in_arrow.type)
            for value in (field.initial_default, field.write_default)
        )
        columns[number] = Column(
            in_arrow,
            str(field.field_type),
            is_top_level,
            has_default=field.initial_default is not None,
            default=default,
            is_dropped=number not in current.field_ids,
            write_default=for_writers,
        )
    return columns


def _newest(metadata: PyTableMetadata) -> dict[int, tuple[NestedField, bool]]:
    """Every field of every schema, and whether it is at the top level. The current schema wins, then the newest."""
    newest: dict[int, tuple[NestedField, bool]] = {}
    for schema in [*sorted(metadata.schemas, key=lambda schema: schema.schema_id), metadata.schema()]:
        top_level = {field.field_id for field in schema.fields}
        newest |= {number: (schema.find_field(number), number in top_level) for number in schema.field_ids}
    return newest


def _spec(spec: PartitionSpec, types: Mapping[int, IcebergType]) -> Spec:
    """The spec, with the Avro definition of its partition struct. `types`: of columns by field id.

    Each field may be null, also of a required column: once that is dropped, there are rows without it.
    """
    fields = tuple(
        SpecField(part.field_id, part.source_id, part.name, str(part.transform), _avro(part, types.get(part.source_id)))
        for part in spec.fields
    )
    described = [
        {"name": part.name, "transform": part.transform, "source-id": part.source_id, "field-id": part.field_id}
        for part in fields
    ]
    return Spec(spec.spec_id, fields, json.dumps(described))


def _avro(part: PartitionField, source: IcebergType | None) -> dict[str, Any]:
    type_ = UnknownType() if source is None else part.transform.result_type(source)
    field = NestedField(part.field_id, part.name, type_, required=False)
    converted: Any = AvroSchemaConversion().iceberg_to_avro(Schema(field), "r102")
    (found,) = converted["fields"]
    return {**found, "type": "null"} if source is None else dict(found)

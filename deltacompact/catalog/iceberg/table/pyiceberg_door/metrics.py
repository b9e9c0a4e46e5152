"""Column counts and bounds of a Parquet file, from its footer, by the table's `write.metadata.metrics` properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import MetricModeTypes, compute_statistics_plan, parquet_path_to_id_mapping
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata as PyTableMetadata
from pyiceberg.types import LongType, NestedField

from deltacompact.catalog.iceberg.table.column_metrics import Measured, metrics_of
from deltacompact.catalog.iceberg.table.content_files import ContentFile
from deltacompact.catalog.iceberg.table.row_lineage import LAST_UPDATED, ROW_ID
from deltacompact.tabular.field_ids import field_id

_LINEAGE = tuple(NestedField(field_id(column), column.name, LongType()) for column in (ROW_ID, LAST_UPDATED))
"""Columns of version 3 that are in files, but in no schema."""


def file_with_metrics(file: ContentFile, footer: pq.FileMetaData, metadata: PyTableMetadata) -> ContentFile:
    """The data file with the counts and bounds that its footer gives."""
    schema: Schema = metadata.schema()
    if metadata.format_version >= 3:
        schema = Schema(*schema.fields, *_LINEAGE)
    found = metrics_of(footer, _measured(schema, metadata.properties))
    return replace(
        file,
        column_sizes=found.column_sizes,
        value_counts=found.value_counts,
        null_value_counts=found.null_value_counts,
        lower_bounds=found.lower_bounds,
        upper_bounds=found.upper_bounds,
        split_offsets=found.split_offsets,
    )


def _measured(schema: Schema, properties: Mapping[str, str]) -> dict[str, Measured]:
    """What is to be said of each column, by its path in a Parquet file with the schema's names."""
    plan = compute_statistics_plan(schema, dict(properties))
    measured = {}
    for path, number in parquet_path_to_id_mapping(schema).items():
        column = plan[number]
        mode = column.mode.type
        counts, bounds = mode is not MetricModeTypes.NONE, mode in (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL)
        measured[path] = Measured(number, str(column.iceberg_type), counts, bounds, column.mode.length)
    return measured

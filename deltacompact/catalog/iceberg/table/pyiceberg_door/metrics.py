"""Column counts and bounds of a Parquet file, from its footer, by the table's `write.metadata.metrics` properties."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata as PyTableMetadata
from pyiceberg.types import LongType, NestedField

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
    found = data_file_statistics_from_parquet_metadata(
        footer,
        compute_statistics_plan(schema, dict(metadata.properties)),
        parquet_path_to_id_mapping(schema),
    ).to_serialized_dict()
    return replace(
        file,
        column_sizes=found["column_sizes"] or {},
        value_counts=found["value_counts"] or {},
        null_value_counts=found["null_value_counts"] or {},
        nan_value_counts=found["nan_value_counts"] or {},
        lower_bounds=found["lower_bounds"] or {},
        upper_bounds=found["upper_bounds"] or {},
        split_offsets=tuple(found["split_offsets"] or ()),
    )

"""Column counts and bounds of a Parquet file, by the table's `write.metadata.metrics` properties.

The footer has all of them but the counts of NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import MetricModeTypes, compute_statistics_plan, parquet_path_to_id_mapping
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata as PyTableMetadata
from pyiceberg.types import LongType, NestedField

from deltacompact.iceberg.table.column_metrics import MeasuredColumn, metrics_of
from deltacompact.iceberg.table.content_files import ContentFile
from deltacompact.iceberg.table.row_lineage import LAST_UPDATED, ROW_ID
from deltacompact.tabular.field_ids import field_id

BOUND_LENGTH = 128
"""The length of bounds (characters or bytes) of columns that the layout orders rows by."""
_LINEAGE = tuple(NestedField(field_id(column), column.name, LongType()) for column in (ROW_ID, LAST_UPDATED))
"""Columns of version 3 that are in files, but in no schema."""


def file_with_metrics(
    file: ContentFile,
    footer: pq.FileMetaData,
    metadata: PyTableMetadata,
    nan_counts: Mapping[int, int],
    bounded: Collection[str] = (),
) -> ContentFile:
    """The data file with the counts and bounds that its footer gives, and these counts of NaN.

    `bounded`: columns at the top level that have counts and bounds whatever the table's modes are.
    """
    found = metrics_of(footer, _measured(metadata, bounded), nan_counts)
    return replace(
        file,
        column_sizes=found.column_sizes,
        value_counts=found.value_counts,
        null_value_counts=found.null_value_counts,
        nan_value_counts=found.nan_value_counts,
        lower_bounds=found.lower_bounds,
        upper_bounds=found.upper_bounds,
        split_offsets=found.split_offsets,
    )


def counted_for_nan(metadata: PyTableMetadata, bounded: Collection[str] = ()) -> dict[str, int]:
    """The field ids of columns whose NaN are to be counted, by path in a Parquet file with the schema's names."""
    return {
        path: column.field_id
        for path, column in _measured(metadata, bounded).items()
        if column.may_be_nan and column.counts
    }


def _measured(metadata: PyTableMetadata, bounded: Collection[str]) -> dict[str, MeasuredColumn]:
    """Which metrics each column gets, by its path in a Parquet file with the schema's names."""
    schema: Schema = metadata.schema()
    if metadata.format_version >= 3:
        schema = Schema(*schema.fields, *_LINEAGE)
    plan = compute_statistics_plan(schema, dict(metadata.properties))
    measured = {}
    for path, number in parquet_path_to_id_mapping(schema).items():
        column = plan[number]
        mode = column.mode.type
        counts, bounds = mode is not MetricModeTypes.NONE, mode in (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL)
        length = column.mode.length if bounds else None
        if path in bounded:  # values often begin alike: "https://www."
            is_cut = str(column.iceberg_type) in ("string", "binary")
            counts, bounds, length = True, True, max(length or 0, BOUND_LENGTH) if is_cut else None
        measured[path] = MeasuredColumn(number, str(column.iceberg_type), counts, bounds, length)
    return measured

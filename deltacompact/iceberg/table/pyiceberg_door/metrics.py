"""Column counts and bounds of a Parquet file, by the table's `write.metadata.metrics` properties.

The footer has all of them but the counts of NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode, match_metrics_mode, parquet_path_to_id_mapping
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata as PyTableMetadata
from pyiceberg.types import LongType, NestedField

from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.column_metrics import MeasuredColumn, metrics_of
from deltacompact.iceberg.table.content_files import ContentFile
from deltacompact.iceberg.table.row_lineage import LAST_UPDATED, ROW_ID
from deltacompact.tabular.field_ids import field_id

BOUND_LENGTH = 128
"""The length of bounds (characters or bytes) of columns that the layout orders rows by."""
_LINEAGE = tuple(NestedField(field_id(column), column.name, LongType()) for column in (ROW_ID, LAST_UPDATED))
"""Columns of version 3 that are in files, but in no schema."""
_TABLES_MODE = TableProperties.DEFAULT_WRITE_METRICS_MODE
_WITH_BOUNDS = (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL)


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
    """Which metrics each column gets, by its path in a Parquet file with the schema's names.

    Columns inside of structs have bounds, as Iceberg's own writers give them; PyIceberg's plan has none. Those inside
    of lists and maps have counts. Raises InputError for a mode that Iceberg does not know.
    """
    schema: Schema = metadata.schema()
    if metadata.format_version >= 3:
        schema = Schema(*schema.fields, *_LINEAGE)
    measured = {}
    for path, number in parquet_path_to_id_mapping(schema).items():
        name, type_ = schema.find_column_name(number), str(schema.find_type(number))
        mode = _mode_of(name or path, metadata.properties)
        counts, bounds = mode.type is not MetricModeTypes.NONE, mode.type in _WITH_BOUNDS and name == path
        length = mode.length
        if path in bounded:  # values often begin alike: "https://www."
            counts, bounds, length = True, True, max(length or 0, BOUND_LENGTH)
        is_cut = bounds and type_ in ("string", "binary")
        measured[path] = MeasuredColumn(number, type_, counts, bounds, length if is_cut else None)
    return measured


def _mode_of(name: str, properties: Mapping[str, str]) -> MetricsMode:
    """The mode of a column by its name in the schema: its own, else the table's."""
    for option in (f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{name}", _TABLES_MODE):
        if mode := properties.get(option):
            try:
                return match_metrics_mode(mode)
            except ValueError:
                raise InputError(
                    f"the table's property {option}: {mode!r} is none of none, counts, truncate(LENGTH) and full"
                ) from None
    return match_metrics_mode(TableProperties.DEFAULT_WRITE_METRICS_MODE_DEFAULT)

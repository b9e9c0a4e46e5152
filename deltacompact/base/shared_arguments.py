"""The arguments that several calls of users share: `**terms: Unpack[AppendTerms]`. See also user_calls.py.

orders.append(rows, token="a", force_position=True)     AppendTerms: a Delta
orders.append(rows, operation_column="op")              ChangeEventTerms: an Appended
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict

from deltacompact.base.model import ContentType, SchemaMode
from deltacompact.base.settings import Settings
from deltacompact.base.table_keys import SortKey


class AppendTerms(TypedDict, total=False):
    """How rows are committed, for `append` and `append_files`: see `DeltaStreamTable.append`."""

    force_position: bool
    schema_mode: SchemaMode | str | None


class ChangeEventOptions(TypedDict, total=False):
    """What rows say of themselves, for `append` and `append_files`."""

    operation_column: str | None
    upsert_values: Sequence[Any] | None
    delete_values: Sequence[Any] | None
    partition_by: Sequence[str] | str | None
    format: str | None


class ChangeEventTerms(AppendTerms, ChangeEventOptions, total=False):
    """How change events are committed, and what they say of themselves."""


class Selection(TypedDict, total=False):
    """Which part of a table to read; every field is optional.

    columns   names; default: all columns
    filter    an expression of pyarrow.compute, or a list of (column, operator, value) as in pyarrow.parquet.read_table;
              a list lets the scan read only its columns
    as_of     name or number of a retained version of one partition, or a time: the rows that lived then, without those
              of deltas that were retracted since; default: now
    version   the same
    """

    columns: Sequence[str] | None
    filter: Any
    as_of: str | datetime | None
    version: str | datetime | None


class ChangesOptions(TypedDict, total=False):
    """The fields of ChangesRequest that users give."""

    per_commit: bool
    before: bool
    columns: Sequence[str] | None
    where: Any
    key: Sequence[str] | None
    memory_bytes: int | None


class ReportedReads(TypedDict, total=False):
    """Reads of a table that others tell: see `IcebergCatalogTable.advise`."""

    scan_reports: Iterable[Any]
    spark_logs: Iterable[str | Path]


class CompactionArguments(TypedDict, total=False):
    """Those of `deltacompact.compact` that say what is done: see there."""

    primary_keys: Iterable[str] | None
    sort_keys: Sequence[SortKey | str | Sequence[str]] | None
    destination_compacted_table_id: str | None
    rows_per_primary_key_index_file: int
    rows_per_compacted_file: int
    hash_bucket_count: int | None
    compacted_file_content_type: ContentType | str
    partitions: Sequence[Mapping[str, Any]] | None
    settings: Settings | None
    purge: bool
    cluster_by: str | Sequence[str] | None
    attempt: str | None


ARGUMENTS_OF_STREAMS = tuple(
    name for name in CompactionArguments.__annotations__ if name not in ("settings", "cluster_by", "attempt")
)
"""The arguments that a compaction of an Iceberg table does not take."""

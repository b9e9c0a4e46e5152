"""compact(): the table's own `compact`, by the names of catalog and table.

a table of delta streams         DeltaStreamTable.compact: every partition in its own session
a table of an Iceberg catalog    IcebergCatalogTable.compact: rewrite, convert or upsert, as `mode` says
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from deltacompact.arguments import attempt_named, clustering
from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.events import EventSink
from deltacompact.base.model import ContentType
from deltacompact.base.settings import DEFAULTS, Settings
from deltacompact.base.table_keys import SortKey
from deltacompact.base.user_calls import user_call
from deltacompact.catalog.delta_stream_table import DeltaStreamTable
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.catalog.opening import is_iceberg_catalog, open_catalog
from deltacompact.results import CompactionResult

if TYPE_CHECKING:  # importing PyIceberg takes a second
    from deltacompact.catalog.iceberg import IcebergCatalog
    from deltacompact.iceberg_modes.result import ModeResult


@overload
def compact(
    source_table_id: str,
    *,
    delta_catalog_client: IcebergCatalog,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    branch: str = "main",
    settings: Settings | None = None,
    event_sinks: Sequence[EventSink] = (),
    attempt: str | None = None,
) -> ModeResult: ...


@overload
def compact(
    source_table_id: str,
    primary_keys: Iterable[str] | None = None,
    sort_keys: Sequence[SortKey | str | Sequence[str]] | None = None,
    desired_sla: int | None = None,
    delta_catalog_client: DeltaStreamCatalog | None = None,
    destination_compacted_table_id: str | None = None,
    rows_per_primary_key_index_file: int = DEFAULTS.rows_per_primary_key_index_file,
    rows_per_compacted_file: int = DEFAULTS.rows_per_compacted_file,
    hash_bucket_count: int | None = DEFAULTS.hash_bucket_count,
    sns_event_topic_arn: str | None = None,
    compacted_file_content_type: ContentType | str = DEFAULTS.content_type,
    *,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    settings: Settings | None = None,
    purge: bool = DEFAULTS.purge,
    cluster_by: str | Sequence[str] | None = None,
    event_sinks: Sequence[EventSink] = (),
    attempt: str | None = None,
) -> CompactionResult: ...


@user_call
def compact(
    source_table_id: str,
    primary_keys: Iterable[str] | None = None,
    sort_keys: Sequence[SortKey | str | Sequence[str]] | None = None,
    desired_sla: int | None = None,
    delta_catalog_client: DeltaStreamCatalog | IcebergCatalog | None = None,
    destination_compacted_table_id: str | None = None,
    rows_per_primary_key_index_file: int = DEFAULTS.rows_per_primary_key_index_file,
    rows_per_compacted_file: int = DEFAULTS.rows_per_compacted_file,
    hash_bucket_count: int | None = DEFAULTS.hash_bucket_count,
    sns_event_topic_arn: str | None = None,
    compacted_file_content_type: ContentType | str = DEFAULTS.content_type,
    *,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    settings: Settings | None = None,
    purge: bool = DEFAULTS.purge,
    cluster_by: str | Sequence[str] | None = None,
    event_sinks: Sequence[EventSink] = (),
    attempt: str | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    branch: str = "main",
) -> CompactionResult | ModeResult:
    """Fold the deltas of a table into compacted files with one live row per primary key (paper, compaction job runs).

        source_table_id                   the table; of an Iceberg catalog "namespace.table"
        primary_keys, sort_keys           needed if the table declares none and was never compacted
        desired_sla                       seconds; sent with the events
        delta_catalog_client              what open_catalog returned; default: the catalog at $DELTACOMPACT_CATALOG
        destination_compacted_table_id    write to this table; default: in place
        rows_per_…, hash_bucket_count     see `deltacompact.base.settings.Options`, also for purge and cluster_by
        sns_event_topic_arn               send events to this SNS topic
        compacted_file_content_type       "parquet", "feather", "orc" or "csv"
        partitions                        a list of dicts of values; default: all partitions
        settings                          with what means to work
        event_sinks                       callables that get every event
        attempt                           a name of this call with a slash in it, "run-1/3": a scheduler that gave the
                                          call up fences it by this name; then it raises ConflictError and publishes
                                          nothing
        mode, options, branch             only for a table of an Iceberg catalog ("namespace.table"): "rewrite"
                                          (default), "convert" or "upsert", the options of that mode, and the branch

    A session's error is in its result; if every session fails, the first error is raised. Raises InputError for bad
    arguments, before any work.

    Of the other arguments, an Iceberg table takes `settings`, `cluster_by`, `event_sinks` and `attempt` alone. Its
    result is a ModeResult: that of `IcebergCatalog.rewrite`, `convert` or `upsert`, whose types say more. There the
    name of an attempt ends in numbers ("run-1/3/2"). The summary of each snapshot has it, and once a later attempt has
    committed, the earlier one commits no more.

    Examples:
        >>> result = deltacompact.compact("orders", delta_catalog_client=catalog)
        >>> result
        compaction of 'orders': 1 partition: 1 compacted, 0 with nothing to do, 0 failed
        >>> (result.sessions[0].live, result.sessions[0].deleted)
        (2, 1)
    """
    attempt = attempt_named(attempt)
    primary_keys = None if primary_keys is None else expect.names("primary_keys", primary_keys)  # or a catalog, perhaps
    catalog = open_catalog() if delta_catalog_client is None else delta_catalog_client
    of_streams: dict[str, Any] = {
        "primary_keys": primary_keys,
        "sort_keys": sort_keys,
        "desired_sla": desired_sla,
        "destination_compacted_table_id": destination_compacted_table_id,
        "rows_per_primary_key_index_file": rows_per_primary_key_index_file,
        "rows_per_compacted_file": rows_per_compacted_file,
        "hash_bucket_count": hash_bucket_count,
        "sns_event_topic_arn": sns_event_topic_arn,
        "compacted_file_content_type": compacted_file_content_type,
        "partitions": partitions,
        "purge": purge,
    }
    if is_iceberg_catalog(catalog):
        for name, value in of_streams.items():
            if value != _DEFAULTS[name]:
                raise InputError(f"{name} is for delta streams, and {source_table_id!r} is an Iceberg table")
        from deltacompact.catalog.iceberg_table import IcebergCatalogTable

        if cluster_by is not None:
            options = {"cluster-by": clustering(cluster_by), **(options or {})}
        table = IcebergCatalogTable(catalog, source_table_id)
        return table.compact(mode, options, branch, settings=settings, event_sinks=event_sinks, attempt=attempt)
    if mode is not None or options is not None or branch != "main":
        raise InputError("mode, options and branch are for tables of Iceberg catalogs")
    catalog = expect.instance("delta_catalog_client", catalog, DeltaStreamCatalog)
    return DeltaStreamTable(catalog, source_table_id).compact(
        settings=settings, cluster_by=cluster_by, event_sinks=event_sinks, attempt=attempt, **of_streams
    )


_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(compact).parameters.items()}

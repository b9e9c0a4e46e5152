"""compact(): checks its arguments, and hands them to the engine of the catalog.

a table of delta streams         a Request for job.py: every partition in its own session
a table of an Iceberg catalog    rewrite, convert or upsert, as `mode` says
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.events import EventSink, fan_out
from deltacompact.base.model import ContentType, SortKey
from deltacompact.base.settings import DEFAULTS, Options, Settings, at_least
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.catalog.opening import is_iceberg_catalog, open_catalog
from deltacompact.iceberg_modes.modes import mode_named
from deltacompact.job import Request, compact_job
from deltacompact.results import CompactionResult
from deltacompact.tabular.formats import suffix_of

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
    event_sinks: Sequence[EventSink] = (),
    attempt: str | None = None,
) -> CompactionResult: ...


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
    event_sinks: Sequence[EventSink] = (),
    attempt: str | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    branch: str = "main",
) -> CompactionResult | ModeResult:
    """Fold the deltas of a table into compacted files with one live row per primary key (paper, compaction job runs).

        primary_keys, sort_keys           needed if the table declares none and was never compacted
        desired_sla                       seconds; sent with the events
        delta_catalog_client              what open_catalog returned; default: the catalog at $DELTACOMPACT_CATALOG
        destination_compacted_table_id    write to this table; default: in place
        rows_per_primary_key_index_file   most entries of an index file
        rows_per_compacted_file           most rows of a compacted file
        hash_bucket_count                 of the index; default: by the number of rows
        sns_event_topic_arn               send events to this SNS topic
        compacted_file_content_type       "parquet", "feather", "orc" or "csv"
        partitions                        a list of dicts of values; default: all partitions
        settings                          with what means to work
        purge                             rewrite every file that has dead rows
        event_sinks                       callables that get every event
        attempt                           a name of this call with a slash in it, "run-1/3": a scheduler that gave the
                                          call up fences it by this name; then it raises ConflictError and publishes
                                          nothing
        mode, options, branch             only for a table of an Iceberg catalog ("namespace.table"): "rewrite"
                                          (default), "convert" or "upsert", the options of that mode, and the branch

    A session's error is in its result; if every session fails, the first error is raised. Raises InputError for bad
    arguments, before any work.

    Of the other arguments, only `settings`, `event_sinks` and `attempt` apply to an Iceberg table. Its result is a
    ModeResult: that of `IcebergCatalog.rewrite`, `convert` or `upsert`, whose types say more. There the name of an
    attempt ends in numbers ("run-1/3/2"). The summary of each snapshot has it, and once a later attempt has committed,
    the earlier one commits no more.
    """
    if (attempt := expect.text_or_none("attempt", attempt)) is not None and "/" not in attempt:
        raise InputError(f"attempt {attempt!r} has no slash in it: a session's own name looks like that")
    primary_keys = None if primary_keys is None else expect.names("primary_keys", primary_keys)
    catalog = open_catalog() if delta_catalog_client is None else delta_catalog_client
    if is_iceberg_catalog(catalog):
        from deltacompact.iceberg.commit.attempts import attempt_named

        with attempt_named(attempt):
            return _compact_iceberg(catalog, source_table_id, mode, options, branch, settings, event_sinks)
    if mode is not None or options is not None or branch != "main":
        raise InputError("mode, options and branch are for tables of Iceberg catalogs")
    settings = Settings() if settings is None else expect.instance("settings", settings, Settings)
    if desired_sla is not None:
        at_least("desired_sla", desired_sla, 1)
    expect.text_or_none("destination_compacted_table_id", destination_compacted_table_id)
    sinks = [expect.callable_("event_sinks", sink) for sink in expect.several("event_sinks", event_sinks)]
    catalog = expect.instance("delta_catalog_client", catalog, DeltaStreamCatalog)
    chosen = Options.of(
        settings,
        rows_per_primary_key_index_file=rows_per_primary_key_index_file,
        rows_per_compacted_file=rows_per_compacted_file,
        hash_bucket_count=hash_bucket_count,
        content_type=content_type(compacted_file_content_type),
        purge=purge,
    )
    request = Request(
        source_table_id, primary_keys, sort_keys, destination_compacted_table_id, partitions, chosen, attempt
    )
    return compact_job(catalog, request, [*sinks, *topic_sinks(sns_event_topic_arn, desired_sla)])


def _compact_iceberg(
    catalog: IcebergCatalog,
    table_id: str,
    mode: str | None,
    options: Mapping[str, Any] | None,
    branch: str,
    settings: Settings | None,
    event_sinks: Sequence[EventSink],
) -> ModeResult:
    chosen = mode_named(mode)
    settings = Settings() if settings is None else expect.instance("settings", settings, Settings)
    emit = fan_out([expect.callable_("event_sinks", sink) for sink in expect.several("event_sinks", event_sinks)])
    result: ModeResult = catalog.run(chosen, table_id, options, branch, settings, emit=emit)
    return result


def topic_sinks(topic_arn: str | None, desired_sla: int | None) -> list[EventSink]:
    """The sink that sends events to an SNS topic; none without a topic."""
    if topic_arn is None:
        return []
    from deltacompact.sinks.sns import sns_sink

    return [sns_sink(topic_arn, desired_sla)]


def content_type(name: ContentType | str) -> ContentType:
    """Accept ContentType.ORC, "application/orc" and "orc". Raises InputError for a format that cannot be written."""
    try:
        found = ContentType(name)
    except ValueError:
        try:
            found = ContentType[str(name).upper()]
        except KeyError:
            known = ", ".join(known_type.name.lower() for known_type in ContentType)
            raise InputError(f"content type {name!r} is none of {known}") from None
    suffix_of(found)
    return found

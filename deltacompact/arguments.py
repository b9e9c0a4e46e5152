"""The arguments of a compaction of delta streams, checked: they make a Request for job.py, and the sinks of its events.

request_of("orders", partitions=[{"day": "1"}], purge=True)     Request("orders", …, Options(purge=True, …))
request_of("orders", attempt="run-1")                           InputError: attempt 'run-1' has no slash in it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType
from deltacompact.base.settings import DEFAULTS, Options, Settings, at_least
from deltacompact.base.table_keys import SortKey
from deltacompact.job import Request
from deltacompact.layout.cluster_by import cluster_columns, text_of_columns
from deltacompact.planning.within_memory import within_memory
from deltacompact.tabular.formats import suffix_of

if TYPE_CHECKING:
    from deltacompact.base.events import EventSink


def clustering(cluster_by: str | Sequence[str] | None) -> str | None:
    """The columns in the one spelling that sessions compare; None: nothing is said. Raises InputError."""
    return None if cluster_by is None else text_of_columns(cluster_columns("cluster_by", cluster_by))


def request_of(
    source_table_id: str,
    primary_keys: Iterable[str] | None = None,
    sort_keys: Sequence[SortKey | str | Sequence[str]] | None = None,
    destination_compacted_table_id: str | None = None,
    rows_per_primary_key_index_file: int = DEFAULTS.rows_per_primary_key_index_file,
    rows_per_compacted_file: int = DEFAULTS.rows_per_compacted_file,
    hash_bucket_count: int | None = DEFAULTS.hash_bucket_count,
    compacted_file_content_type: ContentType | str = DEFAULTS.content_type,
    *,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    settings: Settings | None = None,
    purge: bool = DEFAULTS.purge,
    cluster_by: str | Sequence[str] | None = None,
    attempt: str | None = None,
) -> Request:
    """The request. Raises InputError for bad arguments."""
    attempt = attempt_named(attempt)
    primary_keys = None if primary_keys is None else expect.names("primary_keys", primary_keys)
    settings = within_memory(Settings() if settings is None else expect.instance("settings", settings, Settings))
    expect.text_or_none("destination_compacted_table_id", destination_compacted_table_id)
    chosen = Options.of(
        settings,
        rows_per_primary_key_index_file=rows_per_primary_key_index_file,
        rows_per_compacted_file=rows_per_compacted_file,
        hash_bucket_count=hash_bucket_count,
        content_type=content_type(compacted_file_content_type),
        purge=purge,
        cluster_by=clustering(cluster_by),
    )
    return Request(
        source_table_id, primary_keys, sort_keys, destination_compacted_table_id, partitions, chosen, attempt
    )


def attempt_named(attempt: str | None) -> str | None:
    """The name of a call, "run-1/3". Raises InputError for what could be a session's own name."""
    if (attempt := expect.text_or_none("attempt", attempt)) is not None and "/" not in attempt:
        raise InputError(f"attempt {attempt!r} has no slash in it: a session's own name looks like that")
    return attempt


def sinks_of(event_sinks: Sequence[EventSink], topic_arn: str | None, desired_sla: int | None) -> list[EventSink]:
    """The sinks, and that of an SNS topic, which tells of the desired SLA (seconds). Raises InputError."""
    if desired_sla is not None:
        at_least("desired_sla", desired_sla, 1)
    return [*expect.callables("event_sinks", event_sinks), *topic_sinks(topic_arn, desired_sla)]


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

"""Sinks that the environment asks for, whoever calls: OPENLINEAGE_… lineage, OTEL_… spans."""

from __future__ import annotations

from deltacompact.base.events import EventSink
from deltacompact.sinks.openlineage import lineage_sinks
from deltacompact.sinks.opentelemetry import tracing_sinks


def sinks_asked_for(catalog_uri: str) -> list[EventSink]:
    """Those of a compaction in this catalog. None imports its library where it is not asked for."""
    return [*lineage_sinks(catalog_uri), *tracing_sinks(catalog_uri)]

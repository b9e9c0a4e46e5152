"""Compactions as OpenTelemetry spans, one for each phase: where the time of a run went, beside the rest of a pipeline.

    SessionStarted ‥ SessionFinished      deltacompact.session       of one partition
      StageStarted ‥ StageFinished          deltacompact.dedupe        of one round; two may run side by side
    ModeStarted ‥ ModeFinished            deltacompact.rewrite       GroupsCommitted is an event of the span

The environment asks for spans, and says where they go, as everywhere: OTEL_TRACES_EXPORTER, OTEL_SERVICE_NAME,
OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SDK_DISABLED and the others. Where the process has a tracer provider already, that one
is used, and under TRACEPARENT the spans continue the trace of whoever started the process.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deltacompact.base.events import (
    Event,
    EventSink,
    GroupsCommitted,
    ModeFinished,
    ModeStarted,
    RoundCompleted,
    SessionFinished,
    SessionStarted,
    StageFinished,
    StageStarted,
    logger,
)
from deltacompact.base.missing import importing
from deltacompact.base.model import Partition
from deltacompact.base.wording import one_line

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_EXPORTERS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_FLUSHED_WITHIN_S = 5.0
"""A collector that does not answer delays the process no longer than this."""

_Key = tuple[str, Partition, str]


def tracing_sinks(catalog_uri: str) -> list[EventSink]:
    """The sink of a compaction in this catalog; none where the environment does not ask for spans."""
    if not _is_asked_for(os.environ):
        return []
    try:
        return [Spans(catalog_uri, _provider())]
    except Exception as error:
        logger.warning("no OpenTelemetry spans: %s", one_line(error))
        return []


def _is_asked_for(environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    return exporter != "none" and bool(exporter or any(environment.get(name) for name in _ENDPOINTS))


@functools.cache
def _provider() -> TracerProvider:
    """The provider of this process, or one that is made as the environment says."""
    with importing("opentelemetry"):
        from opentelemetry import trace
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    known = trace.get_tracer_provider()
    if isinstance(known, TracerProvider):
        return known
    named = {"service.name": "deltacompact", **OTELResourceDetector().detect().attributes}
    provider = TracerProvider(resource=Resource.create(named))  # the environment names the sampler, and more
    for name in (os.environ.get("OTEL_TRACES_EXPORTER") or "otlp").split(","):
        provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip())))
    return provider


def _exporter(name: str) -> Any:
    from importlib.metadata import entry_points

    if name == "otlp":
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        name = _EXPORTERS.get(protocol or "http/protobuf", protocol or "")
    for entry_point in entry_points(group="opentelemetry_traces_exporter", name=name):
        return entry_point.load()()
    raise LookupError(f"no exporter {name!r} is installed")


class Spans:
    """An event sink."""

    def __init__(self, catalog_uri: str, provider: TracerProvider) -> None:
        from deltacompact import __version__  # reads the metadata of the installation

        self._catalog_uri = catalog_uri
        self._provider = provider
        self._tracer = provider.get_tracer("deltacompact", __version__)
        self._open: dict[_Key, Span] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case SessionStarted():
                self._begin(event, "", "session", rounds=event.rounds, delta_rows=event.delta_rows)
            case ModeStarted():
                self._begin(event, "", event.mode, groups=event.groups, rows=event.rows, bytes=event.bytes)
            case StageStarted():
                self._begin(event, event.stage, event.stage, tasks=event.tasks, rows=event.rows)
            case StageFinished():
                self._end(event, event.stage)
            case RoundCompleted():
                self._add(event, "round_completed", round=event.round, rows=event.rows)
            case GroupsCommitted():
                self._add(event, "committed", snapshot_id=str(event.snapshot_id), groups=event.groups)
            case ModeFinished():
                self._end_all(event, event.error and "the mode failed", {})
            case SessionFinished():
                error = event.error and (event.error_named or "the session failed")
                version = {} if event.version is None else {"version": event.version}
                self._end_all(event, error, {"live_rows": event.live, **version})

    def _begin(self, event: Event, stage: str, name: str, **details: Any) -> None:
        from opentelemetry.trace import set_span_in_context

        whole = self._open.get((event.table_id, event.partition, ""))
        around = set_span_in_context(whole) if stage and whole else _around()
        details |= {"catalog": self._catalog_uri, "table": event.table_id, "partition": str(event.partition)}
        attributes = {f"deltacompact.{key}": value for key, value in details.items()}
        span = self._tracer.start_span(f"deltacompact.{name}", around, attributes=attributes)
        self._open[event.table_id, event.partition, stage] = span

    def _add(self, event: Event, name: str, **details: Any) -> None:
        if span := self._open.get((event.table_id, event.partition, "")):
            span.add_event(name, {f"deltacompact.{key}": value for key, value in details.items()})

    def _end(self, event: Event, stage: str) -> None:
        if span := self._open.pop((event.table_id, event.partition, stage), None):
            span.end()

    def _end_all(self, event: Event, error: str | None, details: Mapping[str, Any]) -> None:
        """The end of a run, and of the stages in which it failed. One that had nothing to do has begun none."""
        from opentelemetry.trace import StatusCode

        whole = self._open.get((event.table_id, event.partition, ""))
        if whole is None:
            return
        whole.set_attributes({f"deltacompact.{key}": value for key, value in details.items()})
        ours = [key for key in self._open if key[:2] == (event.table_id, event.partition)]
        for key in reversed(ours):  # the stages first
            span = self._open.pop(key)
            if error:
                span.set_status(StatusCode.ERROR, error)
            span.end()
        self._flush()

    def _flush(self) -> None:
        """Processes of job runs end without a farewell, so spans go out when a run ends."""
        flushing = threading.Thread(target=self._provider.force_flush, name="spans", daemon=True)
        flushing.start()
        flushing.join(_FLUSHED_WITHIN_S)


def _around() -> Any:
    """The span that is current here, or the one that TRACEPARENT names; None: a new trace begins."""
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if trace.get_current_span().get_span_context().is_valid or "TRACEPARENT" not in os.environ:
        return None
    return TraceContextTextMapPropagator().extract({"traceparent": os.environ["TRACEPARENT"]})

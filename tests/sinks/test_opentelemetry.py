"""Compactions as spans, by the real SDK: stages lie in their session, errors show no values, and nobody is held up."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pyarrow as pa
import pytest
from iceberg_fixtures import lake  # noqa: F401  (fixture)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import deltacompact
from deltacompact import Settings, compact
from deltacompact.base.events import ModeFinished, SessionFinished, SessionStarted, StageStarted
from deltacompact.base.model import Partition
from deltacompact.sinks import opentelemetry
from deltacompact.sinks.opentelemetry import Spans, tracing_sinks

LOCAL = Settings(executor="local", local_threads=1)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("OTEL_") or name == "TRACEPARENT"]:
        monkeypatch.delenv(name)


@pytest.fixture
def told(monkeypatch):
    """The spans that have ended, of an SDK that keeps them in memory."""
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    monkeypatch.setattr(opentelemetry, "_provider", lambda: provider)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    return memory.get_finished_spans


def ended(spans, name):
    return [span for span in spans if span.name == f"deltacompact.{name}"]


def test_each_stage_is_a_span_in_that_of_its_session(tmp_path, told):
    catalog = deltacompact.open_catalog(tmp_path)
    catalog.create_table("orders", primary_keys=["id"], partition_keys=["day"])
    for day in ("a", "b"):
        catalog.append("orders", pa.table({"id": [1, 2], "name": ["John", "Jane"]}), partition={"day": day})
    result = compact("orders", delta_catalog_client=catalog, settings=LOCAL)
    sessions = ended(told(), "session")
    assert {span.attributes["deltacompact.partition"] for span in sessions} == {"day=a", "day=b"}
    assert {span.attributes["deltacompact.version"] for span in sessions} == {
        session.version for session in result.sessions
    }
    for session in sessions:
        inside = [span for span in told() if span.parent and span.parent.span_id == session.context.span_id]
        assert {span.name for span in inside} >= {"deltacompact.hash_bucket", "deltacompact.materialize"}
        assert all(session.start_time <= span.start_time <= span.end_time <= session.end_time for span in inside)
        assert all(span.context.trace_id == session.context.trace_id for span in inside)
        assert session.attributes["deltacompact.live_rows"] == 2 and session.status.status_code is StatusCode.UNSET
    assert "John" not in "".join(span.to_json() for span in told())
    before = len(told())
    compact("orders", delta_catalog_client=catalog, settings=LOCAL)
    assert len(told()) == before, "what has nothing to do is no span"


def test_a_mode_is_a_span_with_its_commits(lake, told):
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    lake.create("ns.t", rows.schema)
    for _ in range(3):
        lake.append("ns.t", rows)
    catalog = deltacompact.open_catalog(lake.catalog)
    result = compact("ns.t", delta_catalog_client=catalog, options={"rewrite-all": "true"}, settings=LOCAL)
    (span,) = told()
    assert span.name == "deltacompact.rewrite" and span.attributes["deltacompact.rows"] == 6
    (committed,) = span.events
    assert committed.attributes["deltacompact.snapshot_id"] == str(result.snapshots[-1])


def test_what_fails_ends_its_stages_and_shows_no_value(told):
    (sink,) = tracing_sinks("s3://lake/tables")
    here = ("orders", Partition())
    sink(ModeFinished(*here, "rewrite", None))  # nothing had begun
    sink(SessionStarted(*here, "5c", 1, 10, "1 delta"))
    sink(StageStarted(*here, "dedupe", 4, 10))
    sink(SessionFinished(*here, "'John' is no int64", 0, "SchemaError: a.csv, column 'total'"))
    stage, session = told()
    assert (stage.name, session.name) == ("deltacompact.dedupe", "deltacompact.session")
    for span in (stage, session):
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "SchemaError: a.csv, column 'total'"
    assert sink._open == {}


def test_the_trace_of_whoever_started_the_process_goes_on(told, monkeypatch):
    monkeypatch.setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    (sink,) = tracing_sinks("s3://lake/tables")
    sink(SessionStarted("orders", Partition(), "5c", 1, 10, "1 delta"))
    sink(SessionFinished("orders", Partition(), None, 3, version="1-a"))
    (session,) = told()
    assert f"{session.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{session.parent.span_id:016x}" == "b7ad6b7169203331"


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_SERVICE_NAME": "lake"},
    ],
)
def test_nobody_is_told_where_nobody_asks(said, monkeypatch):
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert tracing_sinks("s3://lake") == []


def test_an_exporter_that_is_not_there_fails_nothing(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "pigeon")
    opentelemetry._provider.cache_clear()
    assert tracing_sinks("s3://lake") == []
    assert "no OpenTelemetry spans: LookupError: no exporter 'pigeon' is installed" in caplog.text


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({}, "deltacompact"),
        ({"OTEL_SERVICE_NAME": "nightly"}, "nightly"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=etl,team=a"}, "etl"),
    ],
)
def test_the_service_has_a_name(said, name, monkeypatch):
    """Operators saw spans of `unknown_service:python`."""
    for variable, value in {"OTEL_TRACES_EXPORTER": "console", **said}.items():
        monkeypatch.setenv(variable, value)
    provider = opentelemetry._provider.__wrapped__()
    assert provider.resource.attributes["service.name"] == name
    provider.shutdown()


def test_a_collector_that_does_not_answer_holds_nobody_up(monkeypatch):
    answered = threading.Event()

    class Stuck(TracerProvider):
        def force_flush(self, timeout_millis=30_000):
            return answered.wait(60)

    monkeypatch.setattr(opentelemetry, "_FLUSHED_WITHIN_S", 0.05)
    sink = Spans("s3://lake", Stuck())
    began = time.monotonic()
    sink(SessionStarted("orders", Partition(), "5c", 1, 10, "1 delta"))
    sink(SessionFinished("orders", Partition(), None, 3))
    assert time.monotonic() - began < 30
    answered.set()


@pytest.mark.processes
def test_the_command_sends_its_spans_to_a_collector(tmp_path):
    """By OTLP over HTTP, as the environment says; a process without it does not even import OpenTelemetry."""
    requests = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *said):
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    program = textwrap.dedent("""
        import sys, deltacompact, pyarrow as pa
        catalog = deltacompact.open_catalog(sys.argv[1])
        catalog.create_table("t", primary_keys=["id"])
        catalog.append("t", pa.table({"id": [1]}))
        deltacompact.compact("t", delta_catalog_client=catalog, settings=deltacompact.Settings(executor="local"))
        print("opentelemetry.sdk" in sys.modules)
    """)

    def run(folder, **environment):
        command = [sys.executable, "-c", program, str(tmp_path / folder)]
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    try:
        assert run("quiet") == "False" and requests == []
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        assert run("told", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_SERVICE_NAME="lake") == "True"
    finally:
        server.shutdown()
    resources = [spans for request in requests for spans in request.resource_spans]
    names = {span.name for spans in resources for scope in spans.scope_spans for span in scope.spans}
    assert {"deltacompact.session", "deltacompact.dedupe"} <= names
    named = {pair.value.string_value for spans in resources for pair in spans.resource.attributes}
    assert "lake" in named

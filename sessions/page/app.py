"""The page's server. It reads records and changes nothing; by default it listens on loopback alone.

/                                     the page; it takes nothing from elsewhere, and its policy forbids it
/api/changes?job_run=run-1            a stream: the summary and the sessions of run-1, then what changes
/api/overview                         the summary
/api/job-runs/run-1                   a job run with its sessions
/api/job-runs/run-1/sessions/day=…    why a session was planned as it was
/api/triggers                         what triggers decided, and why
/metrics  /healthz                    for machines
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from deltacompact.base.wording import one_line
from sessions.metrics.collector import RecordsCollector
from sessions.overview.next_steps import Places
from sessions.overview.overview import JobRunSeen, Overview, OverviewReader
from sessions.page.documents import details, row, summary, triggers
from sessions.page.server import LOOPBACK, Server, kept_to_itself, scraped

_EVERY_S = 1.0
_METRICS_S, _HEALTH_S = 15.0, 60.0
"""Machines ask often and for ever: what was read so long ago is good enough for them, and each look costs requests."""
_STATIC = Path(__file__).with_name("static")
_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}

logger = logging.getLogger("sessions")


def app(
    reader: OverviewReader,
    healthy: Callable[[], str | None],
    hosts: list[str] | None,
    stopping: threading.Event | None,
) -> Starlette:
    """The application. `healthy` says what is wrong, or None; `hosts` are names that it may be called by.

    Streams end once `stopping` is set.
    """
    page = _Page(reader, healthy, stopping or threading.Event())
    routes = [Route(path, _file(*named)) for path, named in _FILES.items()]
    routes += [
        Route("/api/overview", page.overview),
        Route("/api/changes", page.changes),
        Route("/api/job-runs/{job_run_id}", page.job_run),
        Route("/api/job-runs/{job_run_id}/sessions/{session_id:path}", page.session),
        Route("/api/triggers", page.triggers),
        Route("/metrics", page.metrics),
        Route("/healthz", page.healthz),
    ]
    return kept_to_itself(routes, hosts)


class _Page:
    def __init__(self, reader: OverviewReader, healthy: Callable[[], str | None], stopping: threading.Event) -> None:
        self._reader = reader
        self._collector = RecordsCollector(lambda: reader.read(_METRICS_S))
        self._healthy = healthy
        self._stopping = stopping
        self._summarizing = threading.Lock()
        self._summary: tuple[Overview, dict[str, Any]] | None = None
        self._places = Places(reader.state_uri, reader.queue_uri, reader.named_dead_letters)

    async def overview(self, request: Request) -> Response:
        _, said = await to_thread.run_sync(self._summarized)
        return JSONResponse(said)

    async def job_run(self, request: Request) -> Response:
        seen = _job_run_seen(await self._read(), request.path_params["job_run_id"])
        if seen is None:
            return _not_found()
        return JSONResponse({"sessions": [row(session) for session in seen.sessions]})

    async def session(self, request: Request) -> Response:
        seen = _job_run_seen(await self._read(), request.path_params["job_run_id"])
        wanted = request.path_params["session_id"]
        session = next((session for session in seen.sessions if session.id == wanted), None) if seen else None
        if seen is None or session is None:
            return _not_found()
        logs = await to_thread.run_sync(lambda: self._reader.logs(seen.run.id))
        return JSONResponse(details(session, seen.run, logs))

    async def changes(self, request: Request) -> Response:
        return StreamingResponse(self._stream(request.query_params.get("job_run")), media_type="text/event-stream")

    async def triggers(self, request: Request) -> Response:
        return JSONResponse(triggers(await to_thread.run_sync(self._reader.decisions)))

    async def metrics(self, request: Request) -> Response:
        return await scraped(self._collector)

    async def healthz(self, request: Request) -> Response:
        wrong = self._healthy()
        if wrong is None:
            try:
                await to_thread.run_sync(lambda: self._reader.check(_HEALTH_S))
            except Exception as error:
                wrong = one_line(error)
        answer = {"status": "ok" if wrong is None else wrong, "unreadable": self._reader.unreadable()}
        return JSONResponse(answer, 200 if wrong is None else 503)

    async def _stream(self, job_run_id: str | None) -> AsyncIterator[str]:
        """What changed since the last message: the summary where it did, and rows of the job run that is looked at."""
        sent: dict[str, Any] = {}
        rows: dict[str, dict[str, Any]] = {}
        while not self._stopping.is_set():
            try:
                overview, said = await to_thread.run_sync(self._summarized)
            except Exception as error:
                yield _event("trouble", {"text": one_line(error)})
                await asyncio.sleep(_EVERY_S)
                continue
            seen = _job_run_seen(overview, job_run_id) if job_run_id else None
            now = {session.id: row(session) for session in seen.sessions} if seen else {}
            changed = [session for name, session in now.items() if rows.get(name) != session]
            if changed or {**said, "at_s": 0} != {**sent, "at_s": 0}:
                yield _event("change", {"summary": said, "job_run": job_run_id, "sessions": changed})
            else:
                yield _event("tick", {"at_s": overview.at_s})
            sent, rows = said, now
            await asyncio.sleep(_EVERY_S)

    def _summarized(self) -> tuple[Overview, dict[str, Any]]:
        """An overview and its summary, which takes a while for thousands of sessions: once for all open pages."""
        overview = self._reader.read(_EVERY_S)
        with self._summarizing:
            if self._summary is None or self._summary[0] is not overview:
                self._summary = overview, summary(overview, self._places)
            return self._summary

    async def _read(self) -> Overview:
        return await to_thread.run_sync(lambda: self._reader.read(_EVERY_S))


class PageServer(Server):
    """The page in a thread of this process."""

    def __init__(
        self,
        reader: OverviewReader,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        healthy: Callable[[], str | None] = lambda: None,
    ) -> None:
        super().__init__(lambda hosts, stopping: app(reader, healthy, hosts, stopping), host=host, port=port)


def _file(name: str, media_type: str) -> Callable[[Request], Response]:
    data = (_STATIC / name).read_bytes()

    def respond(request: Request) -> Response:
        return Response(data, media_type=media_type)

    return respond


def _job_run_seen(overview: Overview, job_run_id: str) -> JobRunSeen | None:
    return next((seen for seen in overview.job_runs if seen.run.id == job_run_id), None)


def _event(kind: str, data: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def _not_found() -> Response:
    return JSONResponse({"error": "no such job run or session"}, 404)

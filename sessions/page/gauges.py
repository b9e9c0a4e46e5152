"""What a watcher serves: the gauges of its tables, as of its last look, and whether it still looks.

/metrics  /healthz
"""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sessions.metrics.tables import TablesCollector, TablesSeen
from sessions.page.server import LOOPBACK, Server, kept_to_itself, scraped

_LOOKS_MISSED = 10
_PATIENCE_S = 600.0
"""Of one table: each that was looked at is a sign of life, for a look at a thousand takes a while."""


class GaugesServer(Server):
    """The gauges in a thread of this process. `every_s`: so often the watcher looks at its tables."""

    def __init__(
        self,
        seen: Callable[[], TablesSeen],
        every_s: float,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._seen, self._clock, self._began_s = seen, clock, clock()
        self._patience_s = max(_PATIENCE_S, _LOOKS_MISSED * every_s)
        self._collector = TablesCollector(seen, clock)
        routes = [Route("/metrics", self._metrics), Route("/healthz", self._healthz)]
        super().__init__(lambda hosts, _: kept_to_itself(routes, hosts), host=host, port=port)

    async def _metrics(self, request: Request) -> Response:
        return await scraped(self._collector)

    async def _healthz(self, request: Request) -> Response:
        seen = self._seen()
        silent_s = self._clock() - (self._began_s if seen.alive_s is None else seen.alive_s)
        wrong = f"the watcher has not looked at a table for {silent_s:.0f} s" if silent_s > self._patience_s else None
        answer = {"status": wrong or "ok", "unreadable": seen.unreadable}
        return JSONResponse(answer, 200 if wrong is None else 503)

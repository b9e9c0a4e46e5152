"""A server in a thread: it listens on loopback by default, and keeps what it serves to itself.

A name in the Host header that is none of this machine's is refused: a page elsewhere cannot read this one by a name
that leads to 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import uvicorn
from anyio import to_thread
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deltacompact.base.errors import InputError
from sessions.metrics.families import exposition

_LOG = logging.getLogger("sessions")

LOOPBACK = "127.0.0.1"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_THIS_MACHINE = ["127.0.0.1", "localhost", "[::1]"]


def kept_to_itself(routes: list[Route], hosts: list[str] | None) -> Starlette:
    """An application that may be called by these names (None: by any), and is shown in no other page."""
    middleware = [Middleware(_Headers)]
    if hosts is not None:
        middleware.append(Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False))
    return Starlette(routes=routes, middleware=middleware)


async def scraped(collector: Collector) -> Response:
    """What Prometheus gets. Collecting may make requests, so it runs in another thread."""
    text = await to_thread.run_sync(lambda: exposition(collector))
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


class _Headers:
    """Adds the headers that keep the page to itself."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
            await send(message)

        await self._inner(scope, receive, sending)


class Server:
    """Serves an application in a thread. Port 0 takes a free one; `address` says which.

    `application` makes it from the host names by which it may be called (None: any) and an event that ends its streams.
    """

    def __init__(
        self,
        application: Callable[[list[str] | None, threading.Event], Starlette],
        *,
        host: str = LOOPBACK,
        port: int = 0,
    ) -> None:
        self._socket = socket.create_server((host, port), family=_family(host))
        bound_host, bound_port = self._socket.getsockname()[:2]
        self.address = f"http://{f'[{bound_host}]' if ':' in bound_host else bound_host}:{bound_port}/"
        self._stopping = threading.Event()
        hosts = _THIS_MACHINE if _is_loopback(bound_host) else None
        config = uvicorn.Config(
            application(hosts, self._stopping),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    def start(self) -> None:
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)

    def stop(self) -> None:
        self._stopping.set()
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])


@contextlib.contextmanager
def listening(what: str, port: int | None, host: str, make: Callable[[int], Server]) -> Iterator[Server | None]:
    """What `make` makes is served in this block, where a port is given. Raises InputError where it cannot be."""
    if port is None:
        yield None
        return
    try:
        server = make(port)
    except OSError as error:
        raise InputError(f"{what} cannot listen on port {port} of {host}: {error.strerror or error}") from None
    server.start()
    _LOG.info("%s at %s", what, server.address)
    try:
        yield server
    finally:
        server.stop()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback

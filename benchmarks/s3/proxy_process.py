"""The proxy in a process of its own, so that neither its CPU nor its pauses are its client's.

with Proxy("http://127.0.0.1:9000", Conditions(latency_s=0.03)) as proxy:
    AWS_ENDPOINT_URL_S3=proxy.url ...
    proxy.counts().requests             Counter({"ranged GET": 204, "part": 40, ...})
    proxy.behave(Conditions())          from now on as fast as the server
"""

from __future__ import annotations

import asyncio
import signal
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from benchmarks.s3.certificate import Certificate
from benchmarks.s3.proxy import Conditions, Counts, S3Proxy

_START_S = 30.0


class Proxy:
    """A handle on the process. It ends with this handle, or with the process that holds it.

    `signed`: it speaks TLS with this certificate.
    """

    def __init__(self, upstream: str, conditions: Conditions | None = None, signed: Certificate | None = None) -> None:
        here, there = get_context("spawn").Pipe()
        self._control = here
        arguments = (upstream, conditions or Conditions(), signed, there)
        self._process = get_context("spawn").Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        there.close()
        if not here.poll(_START_S):
            self.close()
            raise TimeoutError("the proxy did not start")
        self.url = f"{'https' if signed else 'http'}://127.0.0.1:{here.recv()}"

    def counts(self) -> Counts:
        """Since the proxy started."""
        self._control.send(None)
        counts: Counts = self._control.recv()
        return counts

    def behave(self, conditions: Conditions) -> None:
        """From the next request on."""
        self._control.send(conditions)

    def close(self) -> None:
        self._control.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()


def _serve(upstream: str, conditions: Conditions, signed: Certificate | None, control: Connection) -> None:
    """The whole life of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its owner ends it
    asyncio.run(_serving(S3Proxy(upstream, conditions, signed), control))


async def _serving(proxy: S3Proxy, control: Connection) -> None:
    ended = asyncio.Event()

    def asked() -> None:
        try:
            message = control.recv()
        except (EOFError, OSError):
            ended.set()
            return
        if message is None:
            control.send(proxy.counts)
        else:
            proxy.behave(message)

    control.send(await proxy.listen())
    asyncio.get_running_loop().add_reader(control.fileno(), asked)
    await ended.wait()

"""What a starting Spark says on stderr is told only if it does not start.

quiet_session("validate")
    :: loading settings :: …                        Ivy names every jar that it finds
    WARNING: Using incubator modules: …             Java, of a flag that Spark itself gives it
    Unable to access jarfile …                      … all are held back, and printed if no session comes of it
afterwards
    ERROR TaskSetManager …                          goes where it always went

The Java process gets this process's stderr when it starts, and keeps it. So it gets a pipe, which a thread reads.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from deltacompact.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def quiet_session(app_name: str, **conf: str) -> SparkSession:
    """A session as `spark_session` makes it, for a command: nobody reads what its Java says of itself."""
    with said_if_it_fails():
        return spark_session(app_name, **conf)


@contextlib.contextmanager
def said_if_it_fails() -> Iterator[None]:
    """Around the start of a process that writes to our stderr as long as it lives."""
    real, (reading, writing) = os.dup(2), os.pipe()
    relay = _Relay(reading, real)
    threading.Thread(target=relay.run, name="deltacompact-stderr", daemon=True).start()
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    except BaseException:
        os.dup2(real, 2)
        relay.tell(with_held=True)
        raise
    os.dup2(real, 2)
    relay.tell(with_held=False)


class _Relay:
    """Holds back what comes, and from a moment on hands it on."""

    def __init__(self, reading: int, real: int) -> None:
        self._reading, self._real = reading, real
        self._held: list[bytes] | None = []
        self._lock = threading.Lock()

    def run(self) -> None:
        while self._readable(None):
            with self._lock:  # read with the lock held, so that `tell` finds all that came before it
                if self._readable(0) and not self._pass_on():
                    return

    def tell(self, with_held: bool) -> None:
        with self._lock:
            while self._readable(0) and self._pass_on():
                pass
            held, self._held = self._held or [], None
            if with_held:
                os.write(self._real, b"".join(held))

    def _readable(self, wait_ms: int | None) -> bool:
        poll = select.poll()  # `select` knows only the first 1,024 descriptors
        poll.register(self._reading, select.POLLIN)
        return bool(poll.poll(wait_ms))

    def _pass_on(self) -> bool:
        """Read once. Returns False at the end of what is said."""
        data = os.read(self._reading, 1 << 16)
        if self._held is None:
            os.write(self._real, data)
        else:
            self._held.append(data)
        return bool(data)

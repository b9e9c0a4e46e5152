"""The requests that this process sends to S3, for benchmarks and tests.

with listening(print):
    store.get("t/table.json")              StoreRequest(operation='GetObject', key='lake/t/table.json', bytes=83)
    store.put_if_absent("t/table.json", …) StoreRequest(operation='PutObject', key='lake/t/table.json', bytes=83)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """One attempt at a request, under S3's name of its operation. `bytes` is the size of its body, 0 if unknown."""

    operation: str
    key: str
    bytes: int


Listener = Callable[[StoreRequest], None]

_LISTENERS: list[Listener] = []


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call the listener with each request of the process, from the thread that sends it, until the block ends."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


def tell(operation: str, key: str, length: int) -> None:
    for listener in tuple(_LISTENERS):
        listener(StoreRequest(operation, key, length))

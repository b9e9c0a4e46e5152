"""Prefetch: another thread makes the next values while this thread uses the earlier ones.

    ahead(encoded row groups, 2)    thread: encodes 1, 2, waits     caller: copies, writes 1    thread: encodes 3 …

This helps if one side waits for the disk or the network, and the other for a core.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

T = TypeVar("T")

_END = object()


@contextlib.contextmanager
def ahead(values: Generator[T], count: int) -> Iterator[Iterator[T]]:
    """The same values in the same order. Up to `count` values are made ahead.

    An error is raised where its value would come. The end of the block waits for a value that is being made, and
    closes the generator.
    """
    with contextlib.closing(values), ThreadPoolExecutor(1, "ahead") as pool:
        under_way = deque(pool.submit(next, values, _END) for _ in range(count))

        def taken() -> Iterator[T]:
            while (value := under_way.popleft().result()) is not _END:
                under_way.append(pool.submit(next, values, _END))
                yield cast(T, value)

        try:
            yield taken()
        finally:
            for future in under_way:
                future.cancel()

"""Values that are made in another thread while those before them are used.

    ahead(encoded row groups, 2)    there: encodes 1, 2, waits      here: copies, writes 1      there: encodes 3 …

For work that waits for the disk or the network on one side, and for a core on the other.
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
    """The same values in the same order, up to `count` of them made before they are asked for.

    An error is raised in the place of its value. The block's end waits for a value that is being made, and closes
    the generator.
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

"""Divides items, in their order, into batches of a bounded size.

sizes 3 3 3 9 1, at most 6        [3 3] [3] [9] [1]        a larger item is a batch of its own
the same, at most 1 item each     [3] [3] [3] [9] [1]
divided, exactly 6                [3 3] [3 3] [6] [1]      a larger item is divided: here the last but one
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def batched(
    items: Iterable[Item], size_of: Callable[[Item], int], size_max: float, count_max: int | None = None
) -> Iterator[list[Item]]:
    """Batches of at most `size_max` together and `count_max` items. An item larger than `size_max` is alone."""
    batch: list[Item] = []
    size = 0
    for item in items:
        item_size = size_of(item)
        if (size and size + item_size > size_max) or (count_max is not None and len(batch) >= count_max):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item_size
    if batch:
        yield batch


def divided(sizes: Iterable[int], size: int) -> Iterator[list[tuple[int, int, int]]]:
    """Shares of exactly `size`; the last may be smaller. A share has parts of items: (item's place, start, stop)."""
    share: list[tuple[int, int, int]] = []
    room = size
    for place, whole in enumerate(sizes):
        start = 0
        while start < whole:
            stop = min(whole, start + room)
            share.append((place, start, stop))
            room -= stop - start
            start = stop
            if not room:
                yield share
                share, room = [], size
    if share:
        yield share

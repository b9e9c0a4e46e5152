"""The same work for every partition. If one partition fails, the others are still done.

done_for_each(["a", "b", "c"], work)      b fails  ->  ([result of a, result of c], [("b", its error)])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

P = TypeVar("P")
T = TypeVar("T")


def done_for_each(partitions: Iterable[P], work: Callable[[P], T]) -> tuple[list[T], list[tuple[P, Exception]]]:
    """The results in order, and the errors with their partitions. Ctrl-C stops at once."""
    results, errors = [], []
    for partition in partitions:
        try:
            results.append(work(partition))
        except Exception as error:
            errors.append((partition, error))
    return results, errors


def all_done(partitions: Iterable[P], work: Callable[[P], T]) -> list[T]:
    """The results of all partitions. Raises the first error after every partition has been tried."""
    results, errors = done_for_each(partitions, work)
    if errors:
        raise errors[0][1]
    return results

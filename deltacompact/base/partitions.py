"""Does the same work for every partition, one after another or several at a time. A failure does not stop the others.

done_for_each(["a", "b", "c"], work)      b fails  ->  ([result of a, result of c], [("b", its error)])
side_by_side(["a", "b", "c"], work, 64)   all begin at once; the results are in order
both(read_table, read_source, 64)         two pieces of work that do not wait for each other
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar, cast

P = TypeVar("P")
T = TypeVar("T")

READ_AT_ONCE = 64
"""How many partitions of a remote store are opened at a time: opening one is almost only waiting."""


def side_by_side(partitions: Iterable[P], work: Callable[[P], T], at_once: int) -> list[T]:
    """The results in order, from up to `at_once` threads. Raises the first error, in order.

    The work sees the caller's context variables. After an error or Ctrl-C, work that has not begun never begins, and
    the call does not wait for work that has.
    """
    chosen = list(partitions)
    if at_once == 1 or len(chosen) <= 1:
        return [work(partition) for partition in chosen]
    threads = ThreadPoolExecutor(min(at_once, len(chosen)), "deltacompact-partitions")
    try:
        futures = [threads.submit(copy_context().run, work, partition) for partition in chosen]
        return [future.result() for future in futures]
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def both(first: Callable[[], P], second: Callable[[], T], at_once: int) -> tuple[P, T]:
    """The results of two pieces of work, side by side as above. With `at_once` 1, the second begins after the first."""
    one, other = side_by_side([first, second], lambda work: work(), at_once)
    return cast(P, one), cast(T, other)


def done_for_each(
    partitions: Iterable[P], work: Callable[[P], T], at_once: int = 1
) -> tuple[list[T], list[tuple[P, Exception]]]:
    """The results in order, and the errors with their partitions. Ctrl-C stops at once."""

    def outcome(partition: P) -> tuple[list[T], list[tuple[P, Exception]]]:
        try:
            return [work(partition)], []
        except Exception as error:
            return [], [(partition, error)]

    outcomes = side_by_side(partitions, outcome, at_once)
    return [item for done, _ in outcomes for item in done], [failed for _, errors in outcomes for failed in errors]


def all_done(partitions: Iterable[P], work: Callable[[P], T], at_once: int = 1) -> list[T]:
    """The results of all partitions. Raises the first error after every partition has been tried."""
    results, errors = done_for_each(partitions, work, at_once)
    if errors:
        raise errors[0][1]
    return results

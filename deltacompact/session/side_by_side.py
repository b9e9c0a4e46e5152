"""Runs sessions side by side: each in a thread, as many as have room, results in the order of the partitions.

waiting     c (pool), d, e (inline)      admitted says how many start: d
running     a (pool), b (inline)         b ends: e starts
Ctrl-C      waiting sessions never start; running ones are told to stop and get time to end: one may be publishing
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass
from typing import Generic, TypeVar

from deltacompact.planning.lanes import Claim, Lane, LaneBounds, admitted

T = TypeVar("T")

ENDS_WITHIN_S = 60.0
"""Sessions that are told to stop end at their next wait for a task. After this many seconds, give up on them."""


@dataclass(frozen=True, slots=True)
class ClaimedSession(Generic[T]):
    """A session, and what it claims of its lane. `claim` None: `work` only says why there is no session."""

    claim: Claim | None
    work: Callable[[], T]


def run_side_by_side(
    sessions: Sequence[ClaimedSession[T]],
    bounds_of: Mapping[Lane, LaneBounds],
    stop: Callable[[], None],
    at_once: int | None = None,
) -> list[T]:
    """The results in order. If only one may run at a time, all run in the caller's thread, in order.

    An error of a session, or Ctrl-C, ends all: it calls `stop`, which makes those under way end soon.
    """
    several = (
        sum(session.claim is not None for session in sessions) > 1
        and sum(bounds.sessions for bounds in bounds_of.values()) > 1
    )
    if at_once == 1 or not several:
        try:
            return [session.work() for session in sessions]
        except BaseException:
            stop()
            raise
    queues: dict[Lane, deque[tuple[int, Claim]]] = {lane: deque() for lane in bounds_of}
    threads = ThreadPoolExecutor(len(sessions), "deltacompact-session")
    running: dict[Future[T], tuple[int, Claim]] = {}
    done: dict[int, T] = {}

    def start() -> None:
        for lane, queue in queues.items():
            inside = [claim for _, claim in running.values() if claim.lane is lane]
            free = None if at_once is None else at_once - len(running)
            for _ in range(admitted((claim for _, claim in queue), inside, bounds_of[lane], free)):
                number, claim = queue.popleft()
                running[threads.submit(copy_context().run, sessions[number].work)] = number, claim

    try:
        for number, session in enumerate(sessions):
            if session.claim is None:
                done[number] = session.work()
            else:
                queues[session.claim.lane].append((number, session.claim))
        start()
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number, _ = running.pop(future)
                done[number] = future.result()
            start()
    except BaseException:
        stop()
        wait(running, ENDS_WITHIN_S)
        raise
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
    return [done[number] for number in range(len(sessions))]

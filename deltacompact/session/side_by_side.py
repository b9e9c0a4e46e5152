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

from deltacompact.planning.lanes import Claim, Lane, Room, admitted

T = TypeVar("T")

ENDS_WITHIN_S = 60.0
"""Sessions that are told to stop end at their next wait for a task. After this many seconds, give up on them."""


@dataclass(frozen=True, slots=True)
class ClaimedRun(Generic[T]):
    """A session to run, and the room that it claims. `claim` None: `work` only says why there is no session."""

    claim: Claim | None
    work: Callable[[], T]


def run_side_by_side(
    runs: Sequence[ClaimedRun[T]], room_of: Mapping[Lane, Room], stop: Callable[[], None], at_once: int | None = None
) -> list[T]:
    """The results in order. If only one may run at a time, all run in the caller's thread, in order.

    An error of a run, or Ctrl-C, ends all runs: it calls `stop`, which makes the runs under way end soon.
    """
    several = sum(run.claim is not None for run in runs) > 1 and sum(room.sessions for room in room_of.values()) > 1
    if at_once == 1 or not several:
        try:
            return [run.work() for run in runs]
        except BaseException:
            stop()
            raise
    queues: dict[Lane, deque[tuple[int, Claim]]] = {lane: deque() for lane in room_of}
    threads = ThreadPoolExecutor(len(runs), "deltacompact-session")
    running: dict[Future[T], tuple[int, Claim]] = {}
    done: dict[int, T] = {}

    def start() -> None:
        for lane, queue in queues.items():
            inside = [claim for _, claim in running.values() if claim.lane is lane]
            free = None if at_once is None else at_once - len(running)
            for _ in range(admitted((claim for _, claim in queue), inside, room_of[lane], free)):
                number, claim = queue.popleft()
                running[threads.submit(copy_context().run, runs[number].work)] = number, claim

    try:
        for number, run in enumerate(runs):
            if run.claim is None:
                done[number] = run.work()
            else:
                queues[run.claim.lane].append((number, run.claim))
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
    return [done[number] for number in range(len(runs))]

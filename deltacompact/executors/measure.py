"""Runs one task and measures it: seconds, and the peak of the process's unshared memory."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from deltacompact.executors.executor import TaskStats

if TYPE_CHECKING:
    import psutil

_SAMPLE_EVERY_S = 0.05


def run_measured(task: Callable[..., Any], inputs: tuple[Any, ...], returns: int) -> Iterator[Any]:
    """The task's values, then its TaskStats."""
    began = time.perf_counter()
    with _watching() as peak:
        result = task(*inputs)
        if inspect.isgenerator(result):
            count = 0
            for value in result:
                count += 1
                yield value
            if count != returns:
                raise AssertionError(f"{task.__name__} yielded {count} values instead of {returns}")
        else:
            yield result
    yield TaskStats(time.perf_counter() - began, max(peak))


def unshared_bytes() -> int:
    """Resident memory that belongs to this process alone, without files and the object store.

    It is RSS less shared memory, which the kernel counts. Summing up the page tables (USS) would take milliseconds with
    an object store mapped, and we sample twenty times a second.
    """
    memory = _process(os.getpid()).memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


@functools.lru_cache(1)
def _process(pid: int) -> psutil.Process:
    """Made once in each process: making it takes longer than reading its memory."""
    import psutil  # a plan measures nothing

    return psutil.Process(pid)


@contextlib.contextmanager
def _watching() -> Iterator[list[int]]:
    peak, done = [unshared_bytes()], threading.Event()

    def sample() -> None:
        while not done.wait(_SAMPLE_EVERY_S):
            peak[0] = max(peak[0], unshared_bytes())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        peak[0] = max(peak[0], unshared_bytes())

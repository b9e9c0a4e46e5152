"""Which of Arrow's allocators a session decodes and encodes with.

    mimalloc, Arrow's own choice    a 2 MiB page, cleared by the kernel, for the first 64 KiB of each buffer that grows
    jemalloc                        4 KiB pages as they are touched; those that were freed are kept for ten seconds

Two row groups of 32 MiB, decoded, filtered and encoded in a process that had not done so before, took 0.5 to 0.9 s with
the one and 0.2 s with the other: the difference is the kernel's. jemalloc gives back what was freed by a thread of its
own, by default after a second, which is too soon for a row group. Who has chosen an allocator keeps it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import pyarrow as pa

_CHOSEN_BY = "ARROW_DEFAULT_MEMORY_POOL"
_KEPT_MS = 10_000

_lock = threading.Lock()
_sessions = 0
_before: pa.MemoryPool | None = None


def choose() -> None:
    """For as long as the process lives: that of a worker, who does nothing else."""
    if _free_to_choose():
        pa.jemalloc_set_decay_ms(_KEPT_MS)
        pa.set_memory_pool(pa.jemalloc_memory_pool())


@contextlib.contextmanager
def session_memory() -> Iterator[None]:
    """Arrow's default allocator inside the block, in all threads of this process; blocks may overlap.

    After the last of them the process has the allocator that it had before, and is soon as small.
    """
    global _sessions, _before
    if not _free_to_choose():
        yield
        return
    with _lock:
        if _sessions == 0:
            _before = pa.default_memory_pool()
            choose()
        _sessions += 1
    try:
        yield
    finally:
        with _lock:
            _sessions -= 1
            if _sessions == 0:
                pa.set_memory_pool(_before)
                _before = None


def _free_to_choose() -> bool:
    return _CHOSEN_BY not in os.environ and "jemalloc" in pa.supported_memory_backends()

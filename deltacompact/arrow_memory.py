"""Which of Arrow's allocators a session decodes and encodes with.

    mimalloc, Arrow's own choice    a 2 MiB page, cleared by the kernel, for the first 64 KiB of each buffer that grows
    jemalloc                        4 KiB pages as they are touched; those that were freed are kept for ten seconds

Two row groups of 32 MiB, decoded, filtered and encoded in a process that had not done so before, took 0.5 to 0.9 s with
the one and 0.2 s with the other: the difference is the kernel's. Arrow has jemalloc give back what is freed at once; so
it takes twice as long as either for a large table. Who has chosen an allocator keeps it.
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


@contextlib.contextmanager
def session_memory() -> Iterator[None]:
    """Arrow's default allocator inside the block, in all threads of this process; blocks may overlap."""
    global _sessions, _before
    if _CHOSEN_BY in os.environ or "jemalloc" not in pa.supported_memory_backends():
        yield
        return
    with _lock:
        if _sessions == 0:
            _before = pa.default_memory_pool()
            pa.jemalloc_set_decay_ms(_KEPT_MS)
            pa.set_memory_pool(pa.jemalloc_memory_pool())
        _sessions += 1
    try:
        yield
    finally:
        with _lock:
            _sessions -= 1
            if _sessions == 0:
                pa.set_memory_pool(_before)
                _before = None

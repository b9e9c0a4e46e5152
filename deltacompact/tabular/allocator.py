"""Chooses a session's allocators: Arrow has its own, NumPy and the kernels use the C library's malloc. While sessions
work, Python looks for garbage seldom (base/garbage.py).

    mimalloc, Arrow's default       a 2 MiB page, cleared by the OS, for the first 64 KiB of each growing buffer
    jemalloc                        4 KiB pages as they are touched; freed pages are kept for ten seconds

    malloc by default               the entries of a bucket come from the OS and go back to it with each task
    malloc in a session             256 MiB of freed memory are kept for the next task, and returned after the session

The operating system clears each page that it hands out. A new process decoded, filtered and encoded two row groups of
32 MiB in 0.5 to 0.9 s with mimalloc and in 0.2 s with jemalloc. A first compaction of 16 M rows took 7.3 CPU seconds,
3.9 of them in the OS; with kept memory 4.2 and 1.3, at the same peak. By default, jemalloc returns freed pages after a
second, which is too soon for a row group. An allocator that the user has chosen stays. So
does the one heap with which programs of ours begin (base/one_heap.py).
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

import pyarrow as pa

from deltacompact.base import garbage, one_heap
from deltacompact.base.one_heap import ARROW_CHOSEN_BY, set_malloc

_KEPT_MS = 10_000
_KEPT_BOUNDED_MS = 0
"""For a small memory bound: a session of 1.8 GB took 217 MiB instead of 297. Programs of our own have one heap then."""

_KEPT_BYTES, _KEPT_BLOCK_BYTES = 256 << 20, 64 << 20
"""Freed memory that malloc keeps at the end of its heap, and the largest block that comes from the heap."""
_SMALL_BYTES = 1 << 30
"""A memory bound of at least this leaves room for what each thread keeps."""
_USUAL_BYTES, _USUAL_BLOCK_BYTES = 64 << 20, 32 << 20
"""The values that glibc itself reaches in a process that frees large blocks."""

_lock = threading.Lock()
_sessions = 0
_before: tuple[pa.MemoryPool, tuple[int, int, int]] | None = None
"""Of this process: Arrow's allocator, and when Python looks for garbage."""


def choose(memory_bytes: int | None = None) -> None:
    """Use jemalloc and keep freed memory until the process ends: for worker processes, which do nothing else."""
    garbage.look_seldom()
    if one_heap.is_shared():
        one_heap.keep(memory_bytes)
        return
    is_short = memory_bytes is not None and memory_bytes < _SMALL_BYTES
    if _free_to_choose():
        pa.jemalloc_set_decay_ms(_KEPT_BOUNDED_MS if is_short else _KEPT_MS)
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    if not is_short:
        set_malloc(_KEPT_BYTES, _KEPT_BLOCK_BYTES)


@contextlib.contextmanager
def session_memory(memory_bytes: int | None = None) -> Iterator[None]:
    """`choose` for the time of the block, in all threads of this process. Blocks may overlap.

    `memory_bytes` bounds the process (None: no bound). With a small bound, freed pages are returned at once. After the
    last block the process has its former allocator again, and soon returns the memory.
    """
    global _sessions, _before
    with _lock:
        if _sessions == 0:
            _before = pa.default_memory_pool(), gc.get_threshold()
            choose(memory_bytes)
        _sessions += 1
    try:
        yield
    finally:
        with _lock:
            _sessions -= 1
            if _sessions == 0 and _before is not None:
                if _free_to_choose():
                    pa.set_memory_pool(_before[0])
                gc.set_threshold(*_before[1])
                set_malloc(_USUAL_BYTES, _USUAL_BLOCK_BYTES)
                _before = None


def _free_to_choose() -> bool:
    return ARROW_CHOSEN_BY not in os.environ and "jemalloc" in pa.supported_memory_backends()

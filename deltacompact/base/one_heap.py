"""Lets a program of our own, whose memory is bounded, keep what it frees in one heap.

    300 MB for a process            jemalloc, which may keep nothing     one heap for Arrow, NumPy and the kernels
    2.3 GB of rows of 1 KB          6.9 CPU seconds, 4.1 in the OS       3.8 CPU seconds, 1.1 in the OS

The operating system clears each page that it hands out. Within a small bound an allocator may keep little, and by
default each thread has its own heap. Where all share one, a thread uses what another has freed, and all is kept until
the process nears its bound. Then free pages are given back wherever they lie: small blocks that stay divide what is
free, and 30 MB of a sorted table held 650 MB.

It has to be said before pyarrow is imported and before threads begin, so processes of users do without, and who has
chosen an allocator keeps it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time

ARROW_CHOSEN_BY = "ARROW_DEFAULT_MEMORY_POOL"
MALLOC_CHOSEN_BY = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "LD_PRELOAD")
SMALL_BYTES = 1 << 30
"""A memory bound of at least this leaves room for what each thread keeps."""
_HEAP_BLOCK_BYTES = 32 << 20
"""The largest block that comes from the heap, and so is kept when it is freed."""
_FULL_SHARE, _LOOK_EVERY_S = 0.7, 0.02
"""The share of the bound from which on free pages are given back, and how often the process looks."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def share_one_heap(memory_bytes: int | None) -> None:
    """Use one heap in this process from now on, if its memory has a small bound and nobody has chosen otherwise."""
    if memory_bytes is None or memory_bytes >= SMALL_BYTES or "pyarrow" in sys.modules or ARROW_CHOSEN_BY in os.environ:
        return
    if set_malloc(memory_bytes, _HEAP_BLOCK_BYTES, heaps=1):
        os.environ[ARROW_CHOSEN_BY] = "system"
        threading.Thread(target=_return_pages, args=(memory_bytes,), daemon=True, name="memory-bound").start()


def _return_pages(memory_bytes: int) -> None:
    """Give all free pages back, as often as the process is full, and half of what was left is used up."""
    libc, page_bytes, used = ctypes.CDLL(None), os.sysconf("SC_PAGE_SIZE"), 0

    def own_bytes() -> int:
        _, resident, shared, *_ = map(int, os.pread(pages.fileno(), 256, 0).split())
        return (resident - shared) * page_bytes

    with contextlib.suppress(OSError), open("/proc/self/statm", "rb", buffering=0) as pages:
        while True:
            time.sleep(_LOOK_EVERY_S)
            own = own_bytes()
            used = min(used, own)
            if own > max(_FULL_SHARE * memory_bytes, (used + memory_bytes) / 2):
                libc.malloc_trim(0)
                used = own_bytes()


def set_malloc(kept_bytes: int, block_bytes: int, heaps: int | None = None) -> bool:
    """Make malloc keep `kept_bytes` of freed memory at the end of a heap, from blocks of at most `block_bytes`.

    `heaps`: the most heaps for threads to come. Returns whether it can: only glibc's, if the user has not set it.
    """
    if os.name != "posix" or any(name in os.environ for name in MALLOC_CHOSEN_BY):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        return False
    libc.mallopt(_M_TRIM_THRESHOLD, kept_bytes)
    libc.mallopt(_M_MMAP_THRESHOLD, block_bytes)
    if heaps is not None and "MALLOC_ARENA_MAX" not in os.environ:
        libc.mallopt(_M_ARENA_MAX, heaps)
    libc.malloc_trim(0)
    return True

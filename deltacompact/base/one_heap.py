"""Lets a program of our own keep what it frees in one heap.

    2.3 GB of rows of 1 KB    allocators of their own            one heap for Arrow, NumPy and the kernels
    within 300 MB             6.9 CPU s, 4.1 in the OS           3.8 CPU s, 1.1 in the OS
    without a bound           5.8 CPU s, 2.0 in the OS, 1 GB     5.5 CPU s, 1.1 in the OS, 0.66 GB

The operating system clears each page that it hands out, so what is freed should be used again. By default Arrow has its
own allocator, and each thread a heap. Where all share one heap, a thread uses what another has freed. NumPy's huge
pages come and go whole, so without a bound it asks for none: narrow rows took a tenth more CPU with them.

    no bound       freed memory is kept until the session ends
    a bound        until the process nears it: then free pages are given back wherever they lie. Small blocks that stay
                   divide what is free, and 30 MB of a sorted table held 650 MB

It has to be said before NumPy and pyarrow are imported and before threads begin: programs of ours say it themselves
(`share_one_heap`), and processes that they start get ENVIRONMENT. Processes of users do without, and who has chosen an
allocator keeps it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time

from deltacompact.base import machine

ARROW_CHOSEN_BY, _HEAPS_CHOSEN_BY = "ARROW_DEFAULT_MEMORY_POOL", "MALLOC_ARENA_MAX"
MALLOC_CHOSEN_BY = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "LD_PRELOAD")
_HEAPS = max(1, machine.cpus() // 8)
"""One, but with many CPUs: there many threads would wait for each other."""
_ONE_HEAP = {ARROW_CHOSEN_BY: "system", _HEAPS_CHOSEN_BY: str(_HEAPS)}
ENVIRONMENT = {**_ONE_HEAP, "NUMPY_MADVISE_HUGEPAGE": "0"}
"""Of a process that shares one heap. Within a bound, NumPy is better off with huge pages."""
_KEPT_BYTES, _BLOCK_BYTES = 1 << 30, 256 << 20
"""Without a bound: freed memory that stays at the end of the heap, and the largest block that comes from the heap."""
_BOUNDED_BLOCK_BYTES = 32 << 20
"""Within a bound, larger blocks go back to the operating system at once."""
_FULL_SHARE, _LOOK_EVERY_S = 0.7, 0.02
"""The share of the bound from which on free pages are given back, and how often the process looks."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8

_bound_bytes: int | None = None
"""The bound that a thread of this process watches over."""
_watching = threading.Lock()


def share_one_heap(memory_bytes: int | None) -> None:
    """Use one heap in this process from now on, if nobody has chosen otherwise. `memory_bytes` bounds the process."""
    if "pyarrow" in sys.modules or ARROW_CHOSEN_BY in os.environ:
        return
    if keep(memory_bytes, _HEAPS):
        for name, value in (ENVIRONMENT if memory_bytes is None else _ONE_HEAP).items():
            os.environ.setdefault(name, value)


def is_shared() -> bool:
    """Whether this process began with one heap, by itself or by its environment."""
    return all(os.environ.get(name) == value for name, value in _ONE_HEAP.items())


def keep(memory_bytes: int | None, heaps: int | None = None) -> bool:
    """Keep what is freed from now on; within `memory_bytes`, give back free pages where little is left.

    Returns whether malloc can be told: see `set_malloc`.
    """
    global _bound_bytes
    kept, block = (_KEPT_BYTES, _BLOCK_BYTES) if memory_bytes is None else (memory_bytes, _BOUNDED_BLOCK_BYTES)
    if not set_malloc(kept, block, heaps):
        return False
    _bound_bytes = memory_bytes
    if memory_bytes is not None and _watching.acquire(blocking=False):
        threading.Thread(target=_return_pages, daemon=True, name="memory-bound").start()
    return True


def _return_pages() -> None:
    """Give all free pages back, as often as the process is full, and half of what was left is used up."""
    libc, page_bytes, used = ctypes.CDLL(None), os.sysconf("SC_PAGE_SIZE"), 0

    def own_bytes() -> int:
        _, resident, shared, *_ = map(int, os.pread(pages.fileno(), 256, 0).split())
        return (resident - shared) * page_bytes

    with contextlib.suppress(OSError), open("/proc/self/statm", "rb", buffering=0) as pages:
        while True:
            time.sleep(_LOOK_EVERY_S)
            if (memory_bytes := _bound_bytes) is None:
                continue
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

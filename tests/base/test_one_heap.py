"""A program of ours has one heap; a process of users has what it had."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from deltacompact.base.one_heap import ARROW_CHOSEN_BY, ENVIRONMENT, MALLOC_CHOSEN_BY, share_one_heap

pytestmark = pytest.mark.processes

CHOSEN_BY = {ARROW_CHOSEN_BY, "MALLOC_ARENA_MAX", *MALLOC_CHOSEN_BY}

HEAPS = """
import ctypes, sys, threading
from deltacompact.base.one_heap import share_one_heap
{before}
{share}
import pyarrow
done, held = threading.Event(), threading.Barrier(4)

def holds():
    block = bytes(100)
    held.wait()
    done.wait()

threads = [threading.Thread(target=holds) for _ in range(3)]
for thread in threads: thread.start()
held.wait()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
done.set()
print(pyarrow.default_memory_pool().backend_name, open(sys.argv[1]).read().count("<heap nr"))
"""
"""Prints the pool of Arrow, and how many heaps three threads and the main thread have."""


def pool_and_heaps(path: os.PathLike[str], share: str, before: str = "", **chosen: str) -> tuple[str, int]:
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN_BY} | chosen
    program = [sys.executable, "-c", HEAPS.format(share=share, before=before), os.fspath(path)]
    said = subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout
    pool, heaps = said.split()
    return pool, int(heaps)


SHARE, SHARE_300_MIB = "share_one_heap(None)", "share_one_heap(300 << 20)"


def test_threads_and_arrow_share_one_heap(tmp_path: os.PathLike[str]) -> None:
    usual, ours = pool_and_heaps(tmp_path / "usual", ""), ("system", min(4, int(ENVIRONMENT["MALLOC_ARENA_MAX"])))
    assert usual[0] != "system" and usual[1] > 1
    for share in (SHARE, SHARE_300_MIB, "share_one_heap(2 << 30)"):
        assert pool_and_heaps(tmp_path / "ours", share) == ours
    assert pool_and_heaps(tmp_path / "late", SHARE, "import pyarrow") == usual
    assert pool_and_heaps(tmp_path / "child", "", **ENVIRONMENT) == ours


def test_who_has_chosen_keeps_it(tmp_path: os.PathLike[str]) -> None:
    usual, _ = pool_and_heaps(tmp_path / "usual", "")
    for share in (SHARE, SHARE_300_MIB):
        assert pool_and_heaps(tmp_path / "pool", share, **{ARROW_CHOSEN_BY: usual})[0] == usual
        assert pool_and_heaps(tmp_path / "malloc", share, LD_PRELOAD="")[0] == usual
        assert pool_and_heaps(tmp_path / "heaps", share, MALLOC_ARENA_MAX="3") == ("system", 3)


HOLES = """
import os, time
from deltacompact.base.one_heap import share_one_heap
from deltacompact.tabular.allocator import choose
{share}
page_bytes = os.sysconf("SC_PAGE_SIZE")
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * page_bytes >> 20
blocks = [(b"x" * (1 << 20), b"y" * 2_000) for _ in range(300)]
full = resident()
kept = [small for _, small in blocks]
del blocks
end = time.monotonic() + 10
while resident() > full - 250 and time.monotonic() < end:
    time.sleep(0.02)
print(full - resident())
"""
"""Prints how many of 300 MiB came back that lie between small blocks, which stay."""


@pytest.mark.parametrize(("share", "chosen"), [(SHARE_300_MIB, {}), ("choose(300 << 20)", ENVIRONMENT)])
def test_what_lies_between_kept_blocks_is_given_back(share: str, chosen: dict[str, str]) -> None:
    """A forked job run learns its bound when its heap is there already."""
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN_BY} | chosen
    program = [sys.executable, "-c", HOLES.format(share=share)]
    said = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    assert int(said.stdout) >= 250


def test_a_process_that_has_arrow_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ARROW_CHOSEN_BY, raising=False)
    import pyarrow  # noqa: F401

    share_one_heap(300 << 20)
    assert ARROW_CHOSEN_BY not in os.environ

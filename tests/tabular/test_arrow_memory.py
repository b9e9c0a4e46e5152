"""A session's allocators are its own affair: the process has what it had before."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

from deltacompact import Settings, compact
from deltacompact.base.one_heap import MALLOC_CHOSEN_BY
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular.allocator import choose, session_memory


def backend() -> str:
    return str(pa.default_memory_pool().backend_name)


@pytest.fixture(autouse=True)
def unchosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)


def test_blocks_may_overlap_in_any_order() -> None:
    before, entered, leave = backend(), threading.Event(), threading.Event()

    def other() -> None:
        with session_memory():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with session_memory():
        thread.start()
        assert entered.wait(10)
    assert backend() == "jemalloc"  # the other block's
    leave.set()
    thread.join()
    assert backend() == before


KEPT_BLOCKS = """
import resource
from deltacompact.tabular.allocator import session_memory

def pages_for_a_block():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = b"x" * (40 << 20)
    del block
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

for memory_bytes in (None, 2 << 30, 300 << 20):
    with session_memory(memory_bytes):
        pages_for_a_block()
        print(pages_for_a_block())
    print(pages_for_a_block())
"""
"""How many pages come from the kernel for 40 MiB that are freed at once: in a session and after it.

In a process of its own: in one that has worked for minutes, free memory lies in holes, and a block may find another."""


@pytest.mark.processes
def test_freed_blocks_are_kept_until_the_session_ends() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in MALLOC_CHOSEN_BY}
    seen = subprocess.run([sys.executable, "-c", KEPT_BLOCKS], env=environment, capture_output=True, check=True).stdout
    kept, returned, much, after_much, little, after_little = map(int, seen.split())
    assert max(kept, much) < 1_000 and min(returned, after_much, little, after_little) > 9_000


def test_it_ends_with_a_session_that_fails() -> None:
    before = backend()
    with pytest.raises(KeyError), session_memory():
        raise KeyError
    assert backend() == before


def test_who_has_chosen_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = backend()
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", before)
    with session_memory():
        assert backend() == before


def test_a_compaction_works_in_it_and_leaves_none_behind() -> None:
    seen = []
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1]}))
    before = backend()
    compact(
        "t",
        delta_catalog_client=catalog,
        settings=Settings(executor="local"),
        event_sinks=[lambda event: seen.append((type(event).__name__, backend()))],
    )
    assert ("SessionStarted", "jemalloc") in seen and backend() == before


def test_a_worker_chooses_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    before = pa.default_memory_pool()
    try:
        choose()
        assert backend() == "jemalloc"
        with session_memory():
            pass
        assert backend() == "jemalloc"
    finally:
        pa.set_memory_pool(before)
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", backend())
    choose()
    assert backend() == before.backend_name

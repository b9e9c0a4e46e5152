"""Sessions of one process share a store in memory: one lists while another puts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from deltacompact.storage.memory import MemoryStore


@pytest.fixture
def hurried() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_folders_and_objects_are_listed_while_others_come(hurried: None) -> None:
    store, done = MemoryStore(), threading.Event()
    for number in range(2_000):
        store.put(f"{number % 3}/{number}", b"")

    def put() -> None:
        number = 2_000
        while not done.is_set():
            store.put(f"{number % 3}/{number}", b"")
            store.delete([f"{number % 3}/{number}"])
            number += 1

    thread = threading.Thread(target=put)
    thread.start()
    try:
        for _ in range(200):
            assert list(store.folders()) == ["0", "1", "2"]
            assert len(list(store.list("1/"))) >= 667
    finally:
        done.set()
        thread.join()

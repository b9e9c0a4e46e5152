"""Folders of numbered objects, documents with a checksum, and batches: what many rooms build on."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import InterceptedStore

from deltacompact.base.batching import batched, divided
from deltacompact.base.errors import StoreError
from deltacompact.storage.checksummed import is_whole, with_checksum
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.numbered import listed, newest_of_each, number_in, numbered_path, read_newest


def filled(*numbers: int, folder: str = "a/") -> MemoryStore:
    store = MemoryStore()
    for number in numbers:
        store.put(numbered_path(folder, number), str(number).encode())
    return store


def test_other_objects_of_the_folder_are_skipped() -> None:
    store = filled(0, 7, 10**19)
    for name in ("7.json", "00000000000000000008.json.bak", "0000000000000000000x.json", "b/00000000000000000009.json"):
        store.put(f"a/{name}", b"")
    assert list(listed(store, "a/")) == [0, 7, 10**19]
    assert list(listed(store, "a/", after=0)) == [7, 10**19]
    assert {folder: newest.number for folder, newest in newest_of_each(store.list("")).items()} == {
        "a/": 10**19,
        "a/b/": 9,
    }


@pytest.mark.parametrize("path", ["a/7.json", "b/00000000000000000007.json", "a/b/00000000000000000007.json", "a/"])
def test_what_is_no_object_of_the_folder_has_no_number(path: str) -> None:
    assert number_in("a/", path) is None
    assert number_in("a/", numbered_path("a/", 7)) == 7


def test_a_version_that_is_removed_before_it_is_read_leads_to_the_next_one() -> None:
    store = filled(1)

    def replaced(kind: str, path: str, act: Any) -> Any:
        if (kind, path) == ("get", numbered_path("a/", 1)):
            store.put(numbered_path("a/", 2), b"2")
            store.delete([path])
        return act()

    found = read_newest(InterceptedStore(store, replaced), "a/")
    assert found is not None and (found[0].number, found[1]) == (2, b"2")


def test_one_that_is_never_there_when_it_is_read_is_an_error() -> None:
    def gone(kind: str, path: str, act: Any) -> Any:
        return filled().get(path) if kind == "get" else act()

    with pytest.raises(StoreError, match="replaced faster than it can be read"):
        read_newest(InterceptedStore(filled(1), gone), "a/")


def test_an_empty_folder_is_looked_at_as_often_as_asked() -> None:
    looks = []

    def counted(kind: str, path: str, act: Any) -> Any:
        looks.append(kind)
        return act()

    assert read_newest(InterceptedStore(MemoryStore(), counted), "a/", looks=2) is None
    assert looks == ["list", "list"]


def test_a_document_that_was_changed_is_not_whole() -> None:
    document = with_checksum("plan", {"b": [1, 2], "a": None}, format=1, kind="plan")
    assert list(document) == ["format", "kind", "sha256", "plan"]
    again = json.loads(json.dumps(document, indent=2, sort_keys=True))
    assert is_whole(again, "plan") and not is_whole(again, "index")
    again["plan"]["b"].append(3)
    assert not is_whole(again, "plan") and not is_whole({}, "plan")


@given(st.lists(st.integers(0, 9)), st.integers(1, 20), st.none() | st.integers(1, 5))
def test_batches_keep_order_and_are_as_large_as_they_may_be(sizes: list[int], most: int, count: int | None) -> None:
    batches = list(batched(sizes, int, most, count))
    assert [size for batch in batches for size in batch] == sizes and all(batches)
    for batch in batches:
        assert sum(batch) <= most or sum(size > 0 for size in batch[:-1]) == 0
        assert count is None or len(batch) <= count
    for batch, after in pairwise(batches):
        assert sum(batch) + after[0] > most or len(batch) == count


@given(st.lists(st.integers(0, 30)), st.integers(1, 20))
def test_shares_have_all_of_each_item_in_order(sizes: list[int], most: int) -> None:
    shares = list(divided(sizes, most))
    cells = [(place, cell) for share in shares for place, start, stop in share for cell in range(start, stop)]
    assert cells == [(place, cell) for place, size in enumerate(sizes) for cell in range(size)]
    assert all(sum(stop - start for _, start, stop in share) == most for share in shares[:-1])
    assert all(start < stop for share in shares for _, start, stop in share)

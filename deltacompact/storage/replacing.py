"""Replaces an object of which several writers change different parts, so that none of them is lost.

S3, memory               If-Match: the writer that was slower reads again
a folder                 one writer of this machine at a time
S3 without If-Match      the last writer wins
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from deltacompact.base.errors import StoreError
from deltacompact.storage.objects import Locks, ObjectStore, Swaps

_SWAPS_MAX = 20


def replace_object(store: ObjectStore, path: str, change: Callable[[bytes], bytes]) -> None:
    """Put what `change` makes of an object. Raises NotFoundError if it is gone, and StoreError."""
    if not isinstance(store, Swaps):
        with alone(store, path):
            store.put(path, change(store.get(path)))
        return
    for _ in range(_SWAPS_MAX):
        found = store.get_tagged(path)
        if store.put_if_same(path, change(found.data), found.etag) is not None:
            return
    raise StoreError(f"{store.uri}{path} is replaced faster than it can be changed")


def alone(store: ObjectStore, path: str) -> contextlib.AbstractContextManager[None]:
    """In a folder: a block in which no other such block of this machine changes the object."""
    return store.alone(path) if isinstance(store, Locks) else contextlib.nullcontext()

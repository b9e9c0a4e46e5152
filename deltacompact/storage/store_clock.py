"""The present time, for ages of objects: the store dates objects, so its clock must also say what "now" is.

our clock 12:00:00, the store's 12:00:01                 now is 12:00:00
our clock is four days ahead, the store's says 12:00     now is 12:00: by our clock, a file of a minute ago would be
                                                         four days old, and a cleanup would take it from its writer
"""

from __future__ import annotations

from deltacompact.base.events import logger
from deltacompact.storage.objects import ObjectStore

_AGREES_S = 30.0
"""Clocks that differ by less than this agree. Java's Iceberg bears a minute."""


def store_now_s(store: ObjectStore, path: str) -> float:
    """The store's time now in seconds: that of an empty object at `path`, a new name, which is deleted again."""
    store.put(path, b"")
    try:
        return store.stat(path).modified_s
    finally:
        store.delete([path])


def agreed_now_s(store: ObjectStore, path: str, clock_s: float) -> float:
    """The time now in seconds: `clock_s`, which our clock says, or the store's time if the two disagree.

    `path`: a new name, for `store_now_s`.
    """
    return clock_s - ahead_s(store, clock_s, store_now_s(store, path))


def ahead_s(store: ObjectStore, clock_s: float, store_s: float) -> float:
    """The seconds by which our clock is ahead of the store's; 0 if the two agree."""
    if abs(clock_s - store_s) < _AGREES_S:
        return 0.0
    logger.warning(
        "the clock of this machine and that of %s differ by %.0f s: the store's counts",
        store.uri,
        abs(clock_s - store_s),
    )
    return clock_s - store_s

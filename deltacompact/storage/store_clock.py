"""The time of now, for ages of objects: an age is the store's time less the store's time.

our clock 12:00:00, the store says 12:00:01         12:00:00
our clock is four days ahead, the store says 12:00  12:00: else a file of a minute ago counts as four days old, and
                                                    a cleanup takes it from a writer that is at work
"""

from __future__ import annotations

from deltacompact.base.events import logger
from deltacompact.storage.objects import ObjectStore

_AGREES_S = 60.0
"""Two clocks that differ by less agree."""


def agreed_now_s(store: ObjectStore, path: str, clock_s: float) -> float:
    """The time now in seconds: `clock_s` by our clock, or the store's time where that disagrees.

    Puts an empty object at `path`, a new name, and deletes it again.
    """
    store.put(path, b"")
    try:
        store_s = store.stat(path).modified_s
    finally:
        store.delete([path])
    if abs(clock_s - store_s) < _AGREES_S:
        return clock_s
    logger.warning(
        "the clock of this machine and that of %s differ by %.0f s: ages count by the store's",
        store.uri,
        abs(clock_s - store_s),
    )
    return store_s

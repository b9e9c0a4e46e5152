"""What a report tells while it opens many things."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

Counting = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Tells what is being done, and to how many: what it yields is called for each. On a terminal it is a bar."""


@contextlib.contextmanager
def silently(doing: str, partitions: int) -> Iterator[Callable[[], None]]:
    """Tells nobody."""
    yield lambda: None

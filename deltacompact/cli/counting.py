"""A bar that counts partitions or tables while they are opened or checked.

checking orders  ━━━━━━━━━━━━━━━━━━━━━━━╸         1,812 of 3,000    on a terminal; elsewhere nothing is shown
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextlib.contextmanager
def counting(console: Console, doing: str, partitions: int) -> Iterator[Callable[[], None]]:
    """Each call of the yielded function, from any thread, moves the bar on by one."""
    if not console.is_terminal:
        yield lambda: None
        return
    from deltacompact.cli.bars import counter

    with counter(console, doing, partitions) as move_on:
        yield move_on


def opening(doing: str, partitions: int) -> contextlib.AbstractContextManager[Callable[[], None]]:
    """Such a bar on stderr."""
    from deltacompact.cli.console import err

    return counting(err, doing, partitions)

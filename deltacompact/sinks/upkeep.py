"""Tells sinks of upkeep: when it begins, and how it ended. A dry run does nothing, and is not told."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from deltacompact.base.events import EventSink, UpkeepFinished, UpkeepStarted
from deltacompact.base.model import Partition

Result = TypeVar("Result")


def announced(
    emit: EventSink,
    table_id: str,
    partition: Partition,
    work: str,
    version: Callable[[], str | None],
    do: Callable[[], Result],
) -> Result:
    """What `do` returns. `version` is asked before and afterwards: which version or snapshot the table has."""
    emit(UpkeepStarted(table_id, partition, work, _version_now(version)))
    try:
        done = do()
    except BaseException as error:
        emit(UpkeepFinished(table_id, partition, work, type(error).__name__))
        raise
    emit(UpkeepFinished(table_id, partition, work, None, _version_now(version)))
    return done


def _version_now(version: Callable[[], str | None]) -> str | None:
    """None where it cannot be had: the work itself says why."""
    with contextlib.suppress(Exception):
        return version()
    return None

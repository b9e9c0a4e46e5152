"""Compares rows in a sort order value by value: the oracle for code that sorts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltacompact.layout.sort_order import OrderedColumn


def compared(items: Sequence[OrderedColumn], one: Sequence[Any], other: Sequence[Any]) -> int:
    """Below 0 if `one` sorts before `other`, 0 if they are equal, above 0 if `one` sorts after `other`."""
    for item, mine, theirs in zip(items, one, other, strict=True):
        if mine == theirs:
            continue
        if mine is None or theirs is None:
            return -1 if (mine is None) == item.nulls_first else 1
        return -1 if (mine < theirs) != item.descending else 1
    return 0

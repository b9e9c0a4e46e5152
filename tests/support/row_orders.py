"""Rows in a sort order, by the plainest comparison: the oracle of what sorts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltacompact.layout.sort_order import OrderedColumn


def compared(items: Sequence[OrderedColumn], one: Sequence[Any], other: Sequence[Any]) -> int:
    """Below, at or above 0, as one row comes before, with or after another."""
    for item, mine, theirs in zip(items, one, other, strict=True):
        if mine == theirs:
            continue
        if mine is None or theirs is None:
            return -1 if (mine is None) == item.nulls_first else 1
        return -1 if (mine < theirs) != item.descending else 1
    return 0

"""The time that work is expected to take, for both kinds of table: pure, by the rates of work.py.

    write      40 M rows of 60 stored bytes                                 a rewrite that keeps their order
    arrange    the same, sent to their places first and read there again    a rewrite that clusters or sorts them
    expected   25 core-seconds

This is an estimate: the rates are those of one machine, without the time to wait for a store.
"""

from __future__ import annotations

from deltacompact.planning.statistics import decoded_bytes
from deltacompact.planning.work import FIRST_RATES


def written_s(rows: int, size: int = 0) -> float:
    """Core-seconds to write rows that keep their order. `size`: their stored bytes."""
    return rows * FIRST_RATES["base_row"] + size * FIRST_RATES["base_byte"]


def arranged_s(rows: int, size: int) -> float:
    """Core-seconds to write rows in another order: they are sent to their places first, and read there again."""
    return written_s(rows, size) + decoded_bytes(rows, size) * FIRST_RATES["arranged_byte"]

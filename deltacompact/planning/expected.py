"""What work is expected to take, whatever kind of table it is done on: pure, by the rates of work.py.

    write      40 M rows of 60 stored bytes                                 a rewrite that keeps their order
    arrange    the same, sent to their places first and read there again    one by columns
    expected   3 s, 25 core-seconds; at 0.05 USD for a core and hour: 0.0004 USD

A start, not a promise: the rates are those of one machine, and waiting for a store is not in them.
"""

from __future__ import annotations

from deltacompact.planning.statistics import decoded_bytes
from deltacompact.planning.work import FIRST_RATES


def written_s(rows: int, size: int = 0) -> float:
    """Core-seconds that it takes to write rows of so many stored bytes."""
    return rows * FIRST_RATES["base_row"] + size * FIRST_RATES["base_byte"]


def arranged_s(rows: int, size: int) -> float:
    """The same of rows that get another order: they are sent to their places first, and read again there."""
    return written_s(rows, size) + decoded_bytes(rows, size) * FIRST_RATES["arranged_byte"]

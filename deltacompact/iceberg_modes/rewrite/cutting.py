"""Where the live rows of a group are cut into outputs: evenly, or where a row group ends near by. Pure.

    a.parquet    1,000 rows, row groups end at 300, 600, 900, 1,000        3 outputs
    evenly       333 · 667              two row groups would be decoded and encoded: they go to two files each
    cut          300 · 600              all row groups are copied as they are

A cut moves by at most half an output, and never so far that the next run would find the file too small or too large.
If no row group ends within that distance, the cut stays.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Sequence

MOVED_MAX = 0.5
"""A cut may move by this share of an output."""


def cuts(rows: int, outputs: int, ends: Sequence[int], least: float, most: float) -> list[tuple[int, int]]:
    """Half-open ranges of rows, one for each output. `ends`: where row groups end, sorted. `least`, `most` are rows."""
    found, start = [], 0
    for left in range(min(outputs, rows), 0, -1):
        stop = (
            rows if left == 1 else _near(start + math.ceil((rows - start) / left), start, rows, left, ends, least, most)
        )
        found.append((start, stop))
        start = stop
    return found


def _near(even: int, start: int, rows: int, left: int, ends: Sequence[int], least: float, most: float) -> int:
    """The end of a row group that is nearest to an even cut, if one may be taken."""
    moved = MOVED_MAX * (even - start)
    first, last = bisect.bisect_left(ends, even - moved), bisect.bisect_right(ends, even + moved)
    fitting = [
        end
        for end in ends[first:last]
        if least <= end - start <= most and least <= (rows - end) / (left - 1) <= most and rows - end >= left - 1
    ]
    return min(fitting, key=lambda end: abs(end - even), default=even)


def ends_of(files: Iterable[tuple[int, Sequence[int]]]) -> Iterator[int]:
    """The ends of row groups, counted in live rows through all files. A file is given as (live rows, its own ends).

    For a file with dead rows, only its end is known.
    """
    start = 0
    for rows, ends in files:
        yield from (start + end for end in ends if end < rows)
        start += rows
        yield start

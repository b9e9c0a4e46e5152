"""Forecasts how much of a table's base its deltas make a session rewrite, from key ranges. Pure.

    base       2 files of 2 row groups, 131,072 rows each: id 0 … 524,287, in order
    deltas     500 rows, id 524,300 … 524,800      new keys: no group is touched           decoded 0, copied 0
    deltas     500 rows, id 500,000 … 524,000      one group, so one file is rewritten     decoded 1/4, copied 1/4
    deltas     500 rows, id 3 … 524,000            anywhere: each group is hit             decoded all
    deltas       1 row,  id 3 … 3                  one group                               decoded 1/4, copied 1/4

A delta row hits one of the groups that its range overlaps; the chance of each group is its share of the rows in the
overlap. If n rows fall on a group on average, none falls on it with probability e^-n. A file is rewritten if one of its
groups is hit: hit groups are decoded, others are copied if they are large enough. Without key ranges, all counts as
touched.

The footers also tell the width of rows: stored bytes tell little of it, and the log's decoded bytes are an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltacompact.base.limits import LIMITS
from deltacompact.base.settings import DEFAULTS
from deltacompact.tabular.row_groups import ROW_GROUP_BYTES

if TYPE_CHECKING:
    from deltacompact.tabular.key_ranges import KeyedGroup


@dataclass(frozen=True, slots=True)
class Touched:
    """The parts of the base that the deltas touch.

    decoded_rows, decoded_bytes        shares of the base, in row groups that are decoded
    copied_bytes                       share of the base, in row groups that are copied
    base_row_bytes, delta_row_bytes    decoded bytes of a row. 0: unknown
    large                              share of the deltas' bytes, in row groups that are copied if no row of them dies
    """

    decoded_rows: float = 1.0
    decoded_bytes: float = 1.0
    copied_bytes: float = 0.0
    base_row_bytes: float = 0.0
    delta_row_bytes: float = 0.0
    large: float = 0.0

    def where_rows_move(self, share: float) -> Touched:
        """The same if rows are laid out, and this share of the base in any case: then no row group is copied."""
        rows, size = (
            max(share, min(1.0, share_of_base + self.copied_bytes))
            for share_of_base in (self.decoded_rows, self.decoded_bytes)
        )
        return replace(self, decoded_rows=rows, decoded_bytes=size, copied_bytes=0.0, large=0.0)


UNKNOWN = Touched()
"""Nobody has looked: all of the base is decoded."""


def touched(
    base: Sequence[Sequence[KeyedGroup]],
    deltas: Sequence[KeyedGroup],
    delta_rows: int,
    base_share: float = 1.0,
    merged: Collection[int] = (),
) -> Touched:
    """What `delta_rows` rows touch, if their keys are distributed like those of `deltas`.

    base      the row groups of each file, or of some files with `base_share` of all rows
    merged    the places in `base` of files that are rewritten anyway, because they are small
    """
    groups = [group for file in base for group in file]
    rows, size = sum(group.rows for group in groups), sum(group.decoded_bytes for group in groups)
    known_rows, delta_bytes = sum(group.rows for group in deltas), sum(group.decoded_bytes for group in deltas)
    large = sum(group.decoded_bytes for group in deltas if group.ranges and _may_be_copied(group))
    widths = size / max(1, rows), delta_bytes / max(1, known_rows), large / max(1, delta_bytes)
    if not rows or not known_rows:
        return Touched(1.0, 1.0, 0.0, *widths)
    hits = _hits(groups, deltas, delta_rows / known_rows * base_share)
    decoded_rows = decoded_bytes = copied_bytes = 0.0
    start = 0
    for place, file in enumerate(base):
        of_file = hits[start : start + len(file)]
        rewritten = 1.0 if place in merged else -math.expm1(-sum(of_file))
        for group, hit in zip(file, of_file, strict=True):
            decoded = -math.expm1(-hit) if _may_be_copied(group) else rewritten
            decoded_rows += decoded * group.rows
            decoded_bytes += decoded * group.decoded_bytes
            copied_bytes += (rewritten - decoded) * group.decoded_bytes
        start += len(file)
    return Touched(decoded_rows / rows, decoded_bytes / max(1, size), copied_bytes / max(1, size), *widths)


def _hits(groups: Sequence[KeyedGroup], deltas: Sequence[KeyedGroup], scale: float) -> list[float]:
    """The number of delta rows that fall on each group, on average."""
    hits = [0.0] * len(groups)
    for delta in deltas:
        shares = [_overlap(group, delta) for group in groups]
        inside = [group.rows * of_group for group, (of_group, _) in zip(groups, shares, strict=True)]
        # Groups with separate ranges divide the delta's rows; groups with the same range, as in a shuffled table, share
        # them. Keys between the groups, or beyond them, are new.
        covered = min(1.0, sum(of_delta for _, of_delta in shares))
        if total := sum(inside):
            for place, rows in enumerate(inside):
                hits[place] += scale * delta.rows * covered * rows / total
    return hits


def _overlap(group: KeyedGroup, delta: KeyedGroup) -> tuple[float, float]:
    """The shares of a group's and of a delta's key range in which they overlap."""
    of_group = of_delta = 1.0
    for name in group.ranges.keys() & delta.ranges.keys():
        one, other = group.ranges[name], delta.ranges[name]
        try:
            low, high = max(one[0], other[0]), min(one[1], other[1])
            if low > high:
                return 0.0, 0.0
        except (TypeError, ArithmeticError):  # number and text, after a column changed; or a decimal NaN
            continue
        of_group *= _part(low, high, *one)
        of_delta *= _part(low, high, *other)
    return of_group, of_delta


def _part(low: Any, high: Any, begin: Any, end: Any) -> float:
    """The share of the range begin … end that low … high covers. 1 for values without distances."""
    try:
        return float(min(1.0, (high - low + 1) / (end - begin + 1)))
    except (TypeError, ArithmeticError):
        return 1.0


def _may_be_copied(group: KeyedGroup) -> bool:
    share = max(group.rows / DEFAULTS.row_group_rows, group.decoded_bytes / ROW_GROUP_BYTES)
    return share >= LIMITS.copied_group_share_min

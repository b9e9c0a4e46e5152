"""Stream positions that a caller chooses: greater than all before, and usually milliseconds since the epoch.

now is 2026-11-22, 1,795,…,000 ms    1,795,…,500     accepted
                                     1,795,…,500,000 probably microseconds: refused, unless it is forced
"""

from __future__ import annotations

from deltacompact.base.errors import PositionError
from deltacompact.base.model import INT64_MAX
from deltacompact.base.tokens import whole_number

_AHEAD_MAX_MS = 365 * 24 * 3600 * 1000


def checked_position(position: int | None, deltas: int, force: bool, now_s: float) -> int | None:
    """The position of the first of `deltas` deltas, as an int. None: the log chooses it.

    `now_s`: the clock, in seconds since the epoch. Raises PositionError for a position that is not an int64, leaves no
    room for the deltas, or is probably not in milliseconds.
    """
    if position is None:
        return None
    first = whole_number(position)
    if first is None:
        raise PositionError(f"stream position {position!r} is not a whole number")
    if not -INT64_MAX - 1 <= first <= INT64_MAX - deltas + 1:
        raise PositionError(f"stream position {first} is not an int64")
    if first > int(now_s * 1000) + _AHEAD_MAX_MS and not force:
        raise PositionError(
            f"stream position {first} is more than a year ahead of the clock, in milliseconds since the epoch, "
            "and all later ones would have to be greater: force_position (--force-position) allows it"
        )
    return first

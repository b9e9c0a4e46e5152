"""Which orders a stream of TPC-H touches, by their keys alone: of each 32 keys only the first 8 are in the table.

    table          1  2 …  7  32 33 … 39  64 …       the i-th order has key  i//8 * 32 + i%8
    RF1, stream 0  9 10 … 15  40 41 …                SF * 1,500 new orders, in the gap beside the first of the table
    RF2, stream 0  1  2 …  7  32 33 …                the same number of orders leave, from the first on
    stream 1       goes on where stream 0 ended

So the specification has it (refresh functions RF1 and RF2), and its dbgen chooses these very keys. It draws the values
of new orders anew; here they are those of other orders of the table, which have the same distributions.

`status` is not of TPC-H: recently placed orders are shipped, in part when they are chosen first, then wholly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.int64]
GAP = 8
ORDERS_PER_STREAM = 1_500


@dataclass(frozen=True, slots=True)
class Change:
    """What one delta does to whole orders, all their lineitems included: `keys` ascending.

    Rows are those of the orders `like`, in the same order; None deletes. `shipped`: how often each was by now.
    """

    keys: Keys
    like: Keys | None
    shipped: Keys | None = None

    @property
    def deletes(self) -> bool:
        return self.like is None

    @property
    def read(self) -> Keys:
        """The orders whose rows are needed to write this."""
        return self.keys if self.like is None else self.like


def orders_per_stream(scale_factor: float) -> int:
    return max(1, int(scale_factor * ORDERS_PER_STREAM))


def refresh_streams(keys: Keys, streams: int, count: int, dice: np.random.Generator) -> list[Change]:
    """RF1, RF2, RF1, RF2, …: `count` orders each. `keys` are those of the table, ascending."""
    other = int(dice.integers(len(keys) // 2, len(keys) - streams * count + 1))
    changes = []
    for first in range(0, streams * count, count):
        leaving = keys[first : first + count]
        changes += [Change(leaving + GAP, keys[other + first : other + first + count]), Change(leaving, None)]
    return changes


def status_streams(keys: Keys, placed: Keys, streams: int, count: int, dice: np.random.Generator) -> list[Change]:
    """Of the newest orders by the day on which they were `placed`, twice as many as streams choose, any."""
    recent = np.sort(keys[np.argsort(placed, kind="stable")[-2 * streams * count :]])
    times = np.zeros(len(recent), np.int64)
    changes = []
    for _ in range(streams):
        chosen = np.sort(dice.choice(len(recent), count, replace=False))
        times[chosen] += 1
        changes.append(Change(recent[chosen], recent[chosen], times[chosen]))
    return changes

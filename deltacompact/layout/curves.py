"""Curves through the cells of a grid: they number the cells so that near numbers are near cells. A cell is a rank in
each of several columns.

    ranks    (0, 0)  (1, 0)  (1, 1)  (0, 1)       of two columns, one bit each
    hilbert     0       3       2       1         successive numbers are neighbours in the grid
    zorder      0       2       3       1         the bits of the ranks in turn

Hilbert's by J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]


def zorder(ranks: Keys, bits: int) -> Keys:
    """The number of each row's cell. `ranks`: of shape (columns, rows), with so many bits each."""
    found = np.zeros(ranks.shape[1], np.uint64)
    for bit in range(bits - 1, -1, -1):
        for of_column in ranks:
            found = (found << np.uint64(1)) | ((of_column >> np.uint64(bit)) & np.uint64(1))
    return found


def hilbert(ranks: Keys, bits: int) -> Keys:
    """The number of each row's cell along Hilbert's curve. Arguments as for `zorder`."""
    axes = ranks.astype(np.uint64)
    for bit in range(bits - 1, 0, -1):
        _turned(axes, bit)
    for place in range(1, len(axes)):
        axes[place] ^= axes[place - 1]
    flipped = np.zeros(axes.shape[1], np.uint64)
    for bit in range(bits - 1, 0, -1):
        flipped ^= np.where(_has(axes[-1], bit), _below(bit), np.uint64(0))
    return zorder(axes ^ flipped, bits)


def _turned(axes: Keys, bit: int) -> None:
    """Undo the turns of the curve at one bit: invert the lower bits of the first axis, or exchange them."""
    for place in range(len(axes)):
        has = _has(axes[place], bit)
        exchanged = np.where(has, np.uint64(0), (axes[0] ^ axes[place]) & _below(bit))
        axes[0] ^= np.where(has, _below(bit), np.uint64(0))
        axes[0] ^= exchanged
        axes[place] ^= exchanged


def _has(values: Keys, bit: int) -> npt.NDArray[np.bool_]:
    has: npt.NDArray[np.bool_] = (values >> np.uint64(bit)) & np.uint64(1) == 1
    return has


def _below(bit: int) -> np.uint64:
    return np.uint64((1 << bit) - 1)

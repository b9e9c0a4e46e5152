"""Distinct whole numbers in their order: 5 2 5 3 -> 2 3 5.

`np.unique` hashes its values (NumPy 2.3 and later): a million row numbers, which are almost always in order already,
take a second. Sorting them takes a hundredth of that.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Number = TypeVar("Number", np.int64, np.uint64)


def distinct_numbers(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Each value once, in ascending order."""
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]

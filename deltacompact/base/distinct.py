"""Distinct whole numbers in their order: 5 2 5 3 -> 2 3 5.

`np.unique` hashes values of any order (NumPy 2.3 and later): a million row numbers, which are in order almost always,
take it a second, and sorting takes them a hundredth.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def distinct_numbers(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Each value once, in order."""
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    found: npt.NDArray[np.int64] = ordered[is_first]
    return found

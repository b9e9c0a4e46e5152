"""Fits factors to seconds that were measured: least squares of relative errors, on which outliers pull no harder.

row      key              fold    write    took       found: a factor for each column, and one for each key
1        orders, fold     2.0     0        2.6        fold 1.3
2        orders, write    0       1.0      0.7        write 1.0, on orders 0.7
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deltacompact.planning.work import Vector

_LEARNED_AFTER = 4.0
"""A term's rate moves half the way from the pool's factor to the observed one after so many sessions."""
_HALF_LIFE = 100.0
_LATELY = 8.0
"""Half-lives in sessions: _HALF_LIFE of an observation for rates, _LATELY for how busy the machine is."""
_LATELY_AFTER = 2.0
_LEVEL_LATELY = 3.0
_LEVEL_AFTER = 0.25
"""Of a table's factor: after _LEVEL_LATELY sessions one counts half; _LEVEL_AFTER sessions move it half the way."""
_LEVEL_IN_FIT = 2.0
"""_LEVEL_AFTER while rates are fitted. It is greater, so that what one session on each of many tables has in common
becomes a rate, and not a factor of each table."""
_OUTLIER = 0.35
"""Errors (logs) beyond this pull no harder, so that one session that hung changes little."""
_FAR = 3.0
"""The same limit for a table's factor. It is wide, because the rows of a new table may be anything."""
_FACTOR_LEAST = 0.1
"""A term's factor is at least this share of the pool's."""
_ITERATIONS = 8
"""Rates and factors of tables are fitted in turn, so many times."""
_SHARE_LEAST = 1e-6
"""The least weight of a part. Parts of nearly no CPU time would have none, and rows without weight cannot be fitted."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A least-squares fit of relative errors. Rows with the same key share a factor; `shares` are their weights."""

    keys: Sequence[tuple[str, str]]
    age: Vector
    shares: Vector

    def of(self, work: Vector, took: Vector) -> tuple[Vector, dict[tuple[str, str], float]]:
        """A factor for each column, and one for each key. Those of columns include how slow sessions were lately."""
        names, of_key = numbered(self.keys)
        weights = np.maximum(self.shares, _SHARE_LEAST) * 0.5 ** (self.age / _HALF_LIFE)
        pool = _median_factors(work, took - np.log(work.sum(axis=1)), weights)
        factors, scaled = pool, work
        recent = 0.5 ** ((np.bincount(of_key)[of_key] - 1 - _places(of_key)) / _LEVEL_LATELY)
        for _ in range(_ITERATIONS):
            factors = _factors(scaled, took, weights, factors, pool)
            levels = _levels(of_key, recent, took - np.log(work @ factors), _LEVEL_IN_FIT)
            scaled = work * np.exp(levels)[of_key][:, None]
        levels = _levels(of_key, recent, took - np.log(work @ factors), _LEVEL_AFTER)
        left = took - np.log(work @ factors) - levels[of_key]
        lately = _shrunk(left, self.shares * 0.5 ** (self.age / _LATELY), _LATELY_AFTER)
        return factors * math.exp(lately), dict(zip(names, np.exp(levels).tolist(), strict=True))


def _levels(of_key: Any, recent: Vector, left: Vector, doubt: float) -> Vector:
    """For each key, the mean log of its last errors, as if `doubt` more errors had been 0."""
    errors = np.clip(left, -_FAR, _FAR)
    middle = (np.bincount(of_key, recent * errors) / np.bincount(of_key, recent))[of_key]
    robust = recent * np.minimum(1.0, _OUTLIER / np.maximum(np.abs(errors - middle), 1e-9))
    found: Vector = np.bincount(of_key, robust * errors) / (np.bincount(of_key, robust) + doubt)
    return found


def numbered(keys: Sequence[Any]) -> tuple[list[Any], Any]:
    """The distinct keys, and the number of each key among them."""
    number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    return list(number), np.array([number[key] for key in keys])


def _places(of_key: Any) -> Any:
    """For each row: how many rows of the same key came before it."""
    order = np.argsort(of_key, kind="stable")
    counts = np.bincount(of_key)
    places = np.empty(len(of_key), np.int64)
    places[order] = np.arange(len(of_key)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places


def _median_factors(work: Vector, errors: Vector, weights: Vector) -> Vector:
    """For each column, the median factor of the rows that have it; of all rows if none has it."""
    of_all = np.ones(len(errors), bool)
    there = [has if has.any() else of_all for has in (work > 0).T]
    found: Vector = np.exp(np.array([_median(errors[has], weights[has]) for has in there]))
    return found


def _factors(work: Vector, took: Vector, weights: Vector, before: Vector, pool: Vector) -> Vector:
    """Factors of the columns by least squares of relative errors, drawn to the pool's, and at least a tenth of it.

    Outliers weigh less, so that one session that hung does not make everything dearer.
    """
    expected = work @ before
    errors = took - np.log(expected)
    robust = weights * np.minimum(1.0, _OUTLIER / np.maximum(np.abs(errors), 1e-9))
    scaled = work * pool / expected[:, None]
    target = np.exp(np.clip(errors, -_OUTLIER, _OUTLIER))
    square = scaled.T @ (robust[:, None] * scaled)
    # The doubt keeps a column that no row has at the pool's factor.
    doubt = _LEARNED_AFTER / len(before) * float(np.mean(robust))
    square[np.diag_indices_from(square)] += doubt
    right = scaled.T @ (robust * target) + doubt
    found, free = np.full(len(before), _FACTOR_LEAST), np.ones(len(before), bool)
    while free.any():  # columns that would fall below the least are set to it, and the others are solved again
        rest = right[free] - square[np.ix_(free, ~free)] @ found[~free]
        found[free] = np.linalg.solve(square[np.ix_(free, free)], rest)
        if np.all(found >= _FACTOR_LEAST):
            break
        free &= found >= _FACTOR_LEAST
        found[~free] = _FACTOR_LEAST
    of_columns: Vector = pool * found
    return of_columns


def _shrunk(errors: Vector, weights: Vector, doubt: float) -> float:
    """A robust mean, as if `doubt` more errors had been 0."""
    middle = _median(errors, weights)
    robust = weights * np.minimum(1.0, _OUTLIER / np.maximum(np.abs(errors - middle), 1e-9))
    return float(robust @ errors / (robust.sum() + doubt))


def _median(values: Vector, weights: Vector) -> float:
    """The smallest value such that half of the weight lies at or below it."""
    order = np.argsort(values)
    upto = np.cumsum(weights[order])
    return float(values[order][min(len(values) - 1, np.searchsorted(upto, 0.5 * upto[-1]))])

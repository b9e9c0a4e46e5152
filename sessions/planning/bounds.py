"""The 90 % interval and the promise around a session's expected seconds, from the errors of past sessions. Pure.

    score      log(took / expected) of each session that ended          +0.10: it took a tenth longer, about
    weight     more for recent sessions, for those of like length, and for tables that are known equally well

    100 scores near, spread by 8 %     a fifth of them is above u = 0.069, on average by b = 0.045
                                       u + 1.43 b = 0.13    one in twenty takes longer      each of a session of 60 s:
                                       u + 3.59 b = 0.23    seven of a thousand do          53.5 … 72.2, promised 75.5
    no score at all                    first rates are off by a half, nine of ten times     36.4 … 98.9, promised 154
    2 scores, 80 of other tables       of sessions ten times as long: they lend theirs      54.7 … 66.6, promised 72.2

The edge u is that of a conformal prediction: the next session is one more score, which may be the greatest. That would
take 142 scores for a promise of 99.3 %, so beyond the edge the tail is taken to be exponential: with k scores above u,
the next one exceeds u + k b (r^(1/k) - 1) with a probability of 0.2 / r. This is b ln r for many of them, and more for
few, because b is not known well then. Scores of a table that scatters more than others are divided by how much more.

A session that is expected to take longer is never promised to end earlier: bounds that rise with the length are
computed at a few lengths, and interpolated between these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from deltacompact.planning.work import Vector

COVERED = 0.90
PROMISED = 0.993
"""The paper's share of job runs that end within their promise."""
KNOWN_AFTER_SESSIONS = 2
"""After so many sessions a table is known well: from its third session on."""

SPREAD_MIN, SPREAD_MAX = 0.3, 3.0
"""Limits of a table's spread, relative to the usual one."""
_SPREAD_AFTER = 2.0
_SPREAD_LATELY = 6.0
"""_SPREAD_AFTER sessions make half of a table's spread its own; a session counts half after _SPREAD_LATELY more."""
_CLASS = 1.2
"""The score of a session that is e**_CLASS times longer, or shorter, counts 1/e."""
_SESSIONS_CLASS = 3.0
"""The score of a session whose table was known by one session more, or less, counts e**-_KNOWN_CLASS."""
_PRIOR_WEIGHT = 4.0
"""The weight, in sessions, of our assumption (_PRIOR) how much first rates err. It shrinks as scores come."""
_PRIOR_SPREAD = 0.15
_SHARES = (np.arange(21) + 0.5) / 21
_PRIOR = _PRIOR_SPREAD * np.log(_SHARES / (1 - _SHARES))
_EDGE = 0.20
"""The share of scores that make the tail."""
_TAIL_KNOWN = 5.0
"""The weight, in scores above the edge, of our assumption that tails are exponential."""
_LOG_LENGTHS = np.log(4.0) * np.arange(-5, 11)
"""The lengths for which bounds are computed: from a millisecond to twelve days."""
_LOG_MAX = math.log(1e9)
"""A bound is at most a billion times the expected seconds, and at least a billionth: else it would be 0 or infinite."""
_NONE = np.zeros(0)


@dataclass(frozen=True, slots=True)
class Scores:
    """For each session that ended, the oldest first: score, weight, log of the expected seconds, and stream."""

    values: Vector = field(default_factory=lambda: _NONE)
    weights: Vector = field(default_factory=lambda: _NONE)
    log_expected: Vector = field(default_factory=lambda: _NONE)
    streams: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds at each length, as logs of (low, high, promised) over expected seconds.

    at_lengths    one array for each number of known sessions, 0 to KNOWN_AFTER_SESSIONS
    tables        (known sessions, spread) by stream
    """

    at_lengths: tuple[Vector, ...]
    tables: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, scores: Scores) -> Bounds:
        known, spreads, tables = _tables(scores)
        alike = replace(scores, values=scores.values / spreads)
        return cls(tuple(_at_lengths(alike, known, count) for count in range(KNOWN_AFTER_SESSIONS + 1)), tables)

    def around(self, seconds: float, stream: str) -> tuple[float, float, float]:
        """Low, high and promised seconds of a session that is expected to take `seconds`."""
        known, spread = self.tables.get(stream, (0, 1.0))
        length, rows = math.log(seconds), self.at_lengths[min(KNOWN_AFTER_SESSIONS, known)]
        logs = [spread * float(np.interp(length, _LOG_LENGTHS, row)) for row in rows]
        logs = [min(_LOG_MAX, max(-_LOG_MAX, log)) for log in logs]
        low, high, promise = (seconds * math.exp(log) for log in logs)
        return min(low, seconds), max(high, seconds), max(promise, high, seconds)


def _tables(scores: Scores) -> tuple[Vector, Vector, dict[str, tuple[int, float]]]:
    """For each session, the number and spread of its stream's earlier sessions; for each stream, both as of now."""
    usual = float(np.median(np.abs(scores.values))) / 0.6745 if len(scores.values) else 1.0
    sizes = np.minimum(np.abs(scores.values) / max(1e-3, usual), SPREAD_MAX)
    seen: dict[str, _Spread] = {}
    counts, spreads = np.empty(len(sizes)), np.empty(len(sizes))
    for place, (stream, size) in enumerate(zip(scores.streams, sizes.tolist(), strict=True)):
        before = seen.get(stream, _Spread())
        counts[place], spreads[place] = min(KNOWN_AFTER_SESSIONS, before.sessions), before.now
        seen[stream] = before.after(size)
    return counts, spreads, {stream: (spread.sessions, spread.now) for stream, spread in seen.items()}


@dataclass(frozen=True, slots=True)
class _Spread:
    """How far a table's scores spread: the root mean square of score over usual score, of its last sessions.

    It begins with two sessions of the usual spread.
    """

    sessions: int = 0
    weight: float = 0.0
    squares: float = 0.0

    @property
    def now(self) -> float:
        square = (self.squares + _SPREAD_AFTER) / (self.weight + _SPREAD_AFTER)
        return min(SPREAD_MAX, max(SPREAD_MIN, math.sqrt(square)))

    def after(self, size: float) -> _Spread:
        older = 0.5 ** (1 / _SPREAD_LATELY)
        return _Spread(self.sessions + 1, older * self.weight + 1, older * self.squares + size * size)


def _at_lengths(scores: Scores, known: Vector, count: int) -> Vector:
    """`_logs`, made monotone: with any spread, a longer session never has an earlier low, high or promised end."""
    lengths = _LOG_LENGTHS / SPREAD_MAX
    low, high, promise = _logs(scores, known - count) + lengths
    low = np.minimum.accumulate(low[::-1])[::-1]
    found: Vector = np.array([low, np.maximum.accumulate(high), np.maximum.accumulate(promise)]) - lengths
    return found


def _logs(scores: Scores, apart_known: Vector) -> Vector:
    """Logs of (low, high, promised) over expected seconds, at each length."""
    apart_length = np.abs(scores.log_expected - _LOG_LENGTHS[:, None])
    near = scores.weights * np.exp(-apart_length / _CLASS - _SESSIONS_CLASS * np.abs(apart_known))
    doubt = _PRIOR_WEIGHT / (1 + near.sum(axis=1) / _PRIOR_WEIGHT)
    values = np.concatenate([scores.values, _PRIOR])
    prior = np.tile(doubt[:, None] / len(_PRIOR), len(_PRIOR))
    weights = np.concatenate([near, prior], axis=1)
    outside = (1 - COVERED) / 2
    (low,), (high, promise) = _beyond(-values, weights, outside), _beyond(values, weights, outside, 1 - PROMISED)
    high = np.maximum(0.0, high)
    found: Vector = np.array([np.minimum(0.0, -low), high, np.maximum(high, promise)])
    return found


def _beyond(values: Vector, weights: Vector, *tails: float) -> list[Vector]:
    """For each of `tails`, and each row of weights: the value that the next session exceeds with that probability.

    The tail is taken to be exponential.
    """
    effective = weights.sum(axis=1) ** 2 / (weights * weights).sum(axis=1)
    edge = _edge(values, weights, effective)
    above = np.maximum(0.0, values - edge[:, None])
    over = (weights * (above > 0)).sum(axis=1)
    excess = (weights * above).sum(axis=1) / np.where(over > 0, over, 1.0)
    count = _TAIL_KNOWN + _EDGE * effective
    return [edge + excess * count * ((_EDGE / tail) ** (1 / count) - 1) for tail in tails]


def _edge(values: Vector, weights: Vector, effective: Vector) -> Vector:
    """The value that the next session exceeds with a probability of a fifth, for each row of weights.

    `effective`: the number of scores of equal weight that would tell as much. The next session is one more score, and
    may be the greatest.
    """
    order = np.argsort(values)
    upto = np.cumsum(weights[:, order], axis=1)
    share = (1 - _EDGE) * (1 + 1 / effective)
    places = (upto < (share * upto[:, -1])[:, None]).sum(axis=1)
    found: Vector = values[order][np.minimum(len(values) - 1, places)]
    return found

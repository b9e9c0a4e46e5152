"""The interval and the promise, on scores that are drawn: how many are kept, and what always holds."""

from __future__ import annotations

import math
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from deltacompact.planning.work import Vector
from sessions.planning.bounds import Bounds, Scores

ONE_CLASS = math.log(10.0)


def of(values: Vector, log_expected: float = ONE_CLASS, stream: str = "t") -> Scores:
    """Sessions of one table, or each of a table of its own: "new"."""
    ones, count = np.ones(len(values)), len(values)
    streams = tuple(f"{stream}{number}" for number in range(count)) if stream == "new" else (stream,) * count
    return Scores(values, ones, log_expected * ones, streams)


@pytest.mark.parametrize("spread", [0.03, 0.1, 0.4])
@pytest.mark.parametrize("draw", ["standard_normal", "standard_exponential", "uniform", "laplace"])
@pytest.mark.slow
def test_exchangeable_scores_are_covered(draw: str, spread: float) -> None:
    """4,000 next sessions after 40 draws of 100 earlier ones: the promise is kept by 99.3 %, less three deviations."""
    dice = np.random.default_rng(3)
    inside, kept = [], []
    for _ in range(40):
        scores, following = (spread * getattr(dice, draw)(size=count) for count in (100, 100))
        low, high, promise = Bounds.of(of(scores)).around(10.0, "t")
        took = 10.0 * np.exp(following)
        inside += ((low <= took) & (took <= high)).tolist()
        kept += (took <= promise).tolist()
    assert np.mean(inside) >= 0.88 and (draw != "standard_normal" or np.mean(inside) <= 0.97)
    assert np.mean(kept) >= 0.993 - 3 * math.sqrt(0.993 * 0.007 / 4_000)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_few_scores_keep_the_promise_too(count: int) -> None:
    """1,000 tables of which so few sessions are known, that scatter by 15 %."""
    dice = np.random.default_rng(count)
    kept = [
        10.0 * math.exp(0.15 * dice.standard_normal())
        <= Bounds.of(of(0.15 * dice.standard_normal(count))).around(10.0, "t")[2]
        for _ in range(1_000)
    ]
    assert np.mean(kept) >= 0.993 - 3 * math.sqrt(0.993 * 0.007 / 1_000)


def test_a_class_with_few_scores_borrows_from_its_neighbours() -> None:
    dice = np.random.default_rng(5)
    near = of(0.05 * dice.standard_normal(200), math.log(30.0))
    nothing = Bounds.of(Scores()).around(10.0, "t")
    borrowed, own = Bounds.of(near).around(10.0, "t"), Bounds.of(near).around(30.0, "t")
    assert nothing[2] / 10 > 1.5 * borrowed[2] / 10 > own[2] / 30 > 1.05, "own scores tell most"
    other_tables = of(0.05 * dice.standard_normal(200), stream="new")
    assert Bounds.of(other_tables).around(10.0, "t")[2] < nothing[2], "better than nothing"


def test_a_new_state_gets_a_sane_answer() -> None:
    for seconds in (1e-6, 0.01, 1.0, 3_600.0, 1e9):
        low, high, promise = Bounds.of(Scores()).around(seconds, "t")
        assert 0.4 * seconds < low < 0.8 * seconds < 1.2 * seconds < high < 2 * seconds < promise < 4 * seconds


def test_a_table_that_scatters_little_has_close_bounds_of_its_own() -> None:
    dice = np.random.default_rng(6)
    values = np.array([0.03, 0.3] * 60) * dice.standard_normal(120)
    bounds = Bounds.of(replace(of(values), streams=("steady", "wild") * 60))
    (low, high, promise), wild = bounds.around(10.0, "steady"), bounds.around(10.0, "wild")
    assert 3 * (high - low) < wild[1] - wild[0] and 2 * (promise - 10) < wild[2] - 10
    kept = 10 * np.exp(0.03 * dice.standard_normal(1_000))
    assert np.mean((low <= kept) & (kept <= high)) > 0.85 and np.mean(kept <= promise) > 0.985


scores = st.lists(
    st.tuples(st.floats(-8, 8), st.floats(1e-6, 1), st.floats(-12, 16), st.sampled_from("abcdef")), max_size=40
).map(lambda rows: Scores(*np.array([row[:3] for row in rows]).reshape(-1, 3).T, tuple(row[3] for row in rows)))
lengths, streams = st.floats(1e-4, 1e8), st.sampled_from("abxyz")


@given(scores, lengths, streams)
def test_bounds_stand_in_their_order(some: Scores, seconds: float, stream: str) -> None:
    low, high, promise = Bounds.of(some).around(seconds, stream)
    assert 0 <= low <= seconds <= high <= promise < math.inf


@given(scores, lengths, st.floats(1, 1e3), streams)
def test_what_is_expected_to_take_longer_is_never_promised_earlier(
    some: Scores, seconds: float, times: float, stream: str
) -> None:
    bounds = Bounds.of(some)
    for shorter, longer in zip(bounds.around(seconds, stream), bounds.around(times * seconds, stream), strict=True):
        assert shorter <= longer * (1 + 1e-9)


def test_scores_that_are_far_out_leave_bounds_that_are_seconds() -> None:
    bounds = Bounds.of(of(np.array([-900.0, 900.0, -900.0, 900.0])))
    low, high, promise = bounds.around(10.0, "t")
    assert 0 < low <= 10.0 <= high <= promise < math.inf

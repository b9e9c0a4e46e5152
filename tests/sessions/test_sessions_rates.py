"""Rates that are learned, their intervals, and the record that they are kept in."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from deltacompact.planning.statistics import IndexStatistics, PartitionStatistics
from deltacompact.planning.work import FIRST_RATES, TERMS, WorkTerms
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import open_store
from sessions.base.model import JobRunSession, Outcome, SessionState
from sessions.planning.learning import RateStore, observation_of
from sessions.planning.plan import Situation, Wish, plan_job_run
from sessions.planning.prices import offers_here
from sessions.planning.rates import (
    OBSERVATIONS_MAX,
    OBSERVATIONS_OF_A_TABLE_MAX,
    Expectation,
    Observation,
    PoolRates,
    expectation,
)
from sessions.records.swapping import SwappedRecords

NARROW = WorkTerms(2, 100_000, 3e6, 0, 1e6, 5e5, 2e6, 3e7, 8)
WIDE = WorkTerms(2, 20_000, 2e7, 0, 2e5, 0, 4e5, 4e8, 2)
SMALL = WorkTerms(5, 1_000, 1e5, 0, 5e4, 0, 5e4, 1e6, 1)
WORKS = (NARROW, WIDE, SMALL)


def taught(
    count: int, factor: float, noise: float = 0.0, seed: int = 1, known: PoolRates | None = None, tables: int = 5
) -> tuple[PoolRates, list[tuple[float, float, float, float]]]:
    """Rates after so many sessions that took `factor` of what shipped rates say; and (took, expected, low, high)."""
    dice, said = np.random.default_rng(seed), []
    known = known or PoolRates("local/local")
    start = len(known.observations)
    for number in range(start, start + count):
        work, stream = WORKS[number % 3], f"t{number % tables}"
        work = replace(work, base_byte=work.base_byte * float(dice.uniform(0.3, 3)))
        expected = expectation(known).of(work, stream)
        took = Expectation().seconds(work) * factor * math.exp(noise * float(dice.standard_normal()))
        said.append((took, expected.seconds, expected.low_s, expected.high_s))
        one = Observation(f"s{number}", stream, tuple(work.vector), took, expected.seconds, float(number))
        known = known.learned([one])
    return known, said


def test_nothing_known_is_the_shipped_rates() -> None:
    fresh = expectation(PoolRates())
    for work in WORKS:
        estimate = fresh.of(work)
        assert estimate.seconds == pytest.approx(float(work.vector @ np.array([FIRST_RATES[term] for term in TERMS])))
        assert estimate.low_s < 0.85 * estimate.seconds and estimate.high_s > 1.15 * estimate.seconds


@pytest.mark.parametrize(
    ("delta_rows", "base_rows", "row_bytes", "measured_s"),
    [
        ((10**7,), 0, 17, 5.7),  # narrow, full: bytes at rest
        ((2 * 10**6,), 0, 1_040, 5.5),  # wide, full
        ((10**5,), 10**7, 17, 2.4),  # narrow, 1 % updates
        ((2 * 10**4,), 2 * 10**6, 1_040, 3.7),  # wide, 1 % updates
    ],
)
def test_shipped_rates_expect_the_runs_of_the_readme_within_a_factor_of_one_and_a_half(
    delta_rows: tuple[int, ...], base_rows: int, row_bytes: int, measured_s: float
) -> None:
    index = IndexStatistics(8, (base_rows,), base_rows) if base_rows else None
    given = PartitionStatistics(
        "t", {}, delta_rows, sum(delta_rows) * row_bytes, base_rows=base_rows,
        base_bytes=base_rows * row_bytes, index=index,
    )  # fmt: skip
    (plan,) = plan_job_run([given], Wish(), Situation(offers_here(2, 24 << 30)[:1], {}))
    assert measured_s / 1.5 < plan.expected.seconds < measured_s * 1.5


@pytest.mark.parametrize("factor", [0.1, 0.5, 1.0, 3.0, 20.0])
def test_a_faster_or_slower_machine_is_learned_in_a_few_sessions(factor: float) -> None:
    known, _ = taught(6, factor)
    for work in WORKS:
        assert expectation(known).of(work, "another").seconds == pytest.approx(
            Expectation().seconds(work) * factor, rel=0.1
        )


def test_each_term_has_a_rate_of_its_own() -> None:
    """Here bytes take five times as long as the shipped rates say, and nothing else does."""
    dice, known = np.random.default_rng(1), PoolRates()
    dear = replace(Expectation(), rates=Expectation().rates * [5.0 if term.endswith("byte") else 1.0 for term in TERMS])
    for number in range(120):
        scale = 10 ** dice.uniform(-1, 1, 3)
        base = WORKS[number % 3]
        work = replace(base, delta_byte=base.delta_byte * scale[0], base_byte=base.base_byte * scale[1])
        took = dear.seconds(work) * math.exp(0.05 * dice.standard_normal())
        known = known.learned([Observation(str(number), f"t{number}", tuple(work.vector), took, took, number)])
    learned = dict(zip(TERMS, expectation(known).rates, strict=True))
    assert 3.5 < learned["base_byte"] / FIRST_RATES["base_byte"] < 6
    assert learned["base_row"] / FIRST_RATES["base_row"] < 3.5
    for work in WORKS:
        assert expectation(known).seconds(work) == pytest.approx(dear.seconds(work), rel=0.15)


def test_a_table_whose_deltas_touch_few_files_is_known_by_its_past() -> None:
    known, _ = taught(30, 1.0)
    sparse = replace(NARROW, base_row=1.0, base_byte=1.0)
    took = Expectation().seconds(sparse)
    before = expectation(known).of(NARROW, "sparse").seconds
    for number in range(5):
        known = known.learned([Observation(f"x{number}", "sparse", tuple(NARROW.vector), took, before, 100.0 + number)])
    assert expectation(known).of(NARROW, "sparse").seconds < took + 0.35 * (before - took)
    assert expectation(known).of(NARROW, "t1").seconds == pytest.approx(before, rel=0.2), "others stay what they were"


def test_outliers_move_little() -> None:
    known, _ = taught(40, 1.0, 0.05)
    before = expectation(known).of(NARROW, "t1").seconds
    hung = Observation("hung", "t1", tuple(NARROW.vector), 100 * before, before, 1e6)
    lied = Observation("lied", "t2", tuple(NARROW.vector), before / 1e6, before, 1e6 + 1)
    assert expectation(known.learned([hung, lied])).of(NARROW, "t1").seconds == pytest.approx(before, rel=0.3)


def test_a_machine_that_becomes_slower_is_followed() -> None:
    known, _ = taught(100, 1.0, 0.05)
    known, _ = taught(12, 2.0, 0.05, known=known)
    assert expectation(known).of(NARROW, "t1").seconds == pytest.approx(2 * Expectation().seconds(NARROW), rel=0.25)


@pytest.mark.parametrize("noise", [0.03, 0.1, 0.3])
def test_the_interval_covers_nine_of_ten_sessions_and_is_as_wide_as_they_scatter(noise: float) -> None:
    _, said = taught(400, 1.7, noise)
    took, expected, low, high = np.array(said[50:]).T
    assert 0.85 <= np.mean((low <= took) & (took <= high)) <= 0.97
    width = np.median((high - low) / expected)
    assert width < 2 * 1.645 * noise * 1.5 + 0.08
    assert np.median(np.abs(took - expected) / took) < 0.68 * noise * 1.4 + 0.01


def test_the_interval_of_small_sessions_is_their_own() -> None:
    """Sessions of milliseconds scatter by half, those of minutes by a twentieth."""
    dice, known = np.random.default_rng(2), PoolRates()
    for number in range(300):
        work, noise = (SMALL, 0.4) if number % 2 else (WIDE, 0.03)
        expected = expectation(known).of(work, "t")
        took = Expectation().seconds(work) * math.exp(noise * dice.standard_normal())
        known = known.learned(
            [Observation(str(number), f"t{number % 2}", tuple(work.vector), took, expected.seconds, number)]
        )
    small, wide = (expectation(known).of(work, stream) for work, stream in ((SMALL, "t1"), (WIDE, "t0")))
    assert (small.high_s - small.low_s) / small.seconds > 2.5 * (wide.high_s - wide.low_s) / wide.seconds


seconds = st.floats(1e-3, 1e6)
observations = st.lists(
    st.builds(
        Observation,
        st.integers(0, 40).map(str),
        st.sampled_from(["a", "b", "a (first)"]),
        st.lists(st.floats(0, 1e12), min_size=len(TERMS), max_size=len(TERMS)).map(lambda work: (1.0, *work[1:])),
        seconds,
        seconds,
        st.floats(0, 1e9),
    ),
    max_size=60,
)


@given(observations, st.sampled_from(WORKS))
def test_whatever_was_seen_every_rate_is_positive_and_the_interval_contains_the_expected(
    found: list[Observation], work: WorkTerms
) -> None:
    learned = expectation(PoolRates().learned(found))
    assert np.all(learned.rates > 0) and np.all(np.isfinite(learned.rates))
    estimate = learned.of(work, "a")
    assert 0 < estimate.low_s <= estimate.seconds <= estimate.high_s < math.inf


@given(observations, observations)
def test_the_order_in_which_sessions_are_learned_does_not_matter(
    one: list[Observation], two: list[Observation]
) -> None:
    by_id = {each.session_id: each for each in (*one, *two)}
    one, two = ([by_id[each.session_id] for each in some] for some in (one, two))
    assert (
        PoolRates().learned(one).learned(two)
        == PoolRates().learned(two).learned(one)
        == PoolRates().learned([*one, *two])
    )


def test_what_is_kept_is_bounded_and_no_table_pushes_others_out() -> None:
    known, _ = taught(30, 1.0)
    many = [Observation(f"p{n}", "partitioned", tuple(SMALL.vector), 1.0, 1.0, 1e6 + n) for n in range(1_000)]
    known = known.learned(many)
    assert len(known.observations) == 30 + OBSERVATIONS_OF_A_TABLE_MAX
    others = [Observation(f"o{n}", f"table{n}", tuple(SMALL.vector), 1.0, 1.0, 2e6 + n) for n in range(1_000)]
    known = known.learned(others)
    assert len(known.observations) == OBSERVATIONS_MAX and known.observations[-1].session_id == "o999"


# The record


def finished(name: str, seconds: float = 2.0, **changes: object) -> JobRunSession:
    statistics = PartitionStatistics("orders", {}, (1_000,), 10**5, base_rows=10**6, base_bytes=10**8)
    statistics = replace(statistics, index=IndexStatistics(1, (10**6,), 10**6))
    (plan,) = plan_job_run([statistics], Wish(), Situation(offers_here(2, 24 << 30), {}))
    done = JobRunSession(
        name, "run-1", {}, SessionState.SUCCEEDED, plan=plan, expected_first=plan.expected, finished_s=1e9,
        outcome=Outcome(seconds),
    )  # fmt: skip
    return replace(done, **changes)  # type: ignore[arg-type]


def test_a_finished_session_is_an_observation_of_its_pool() -> None:
    session = finished("all")
    assert session.plan is not None
    pool, seen = observation_of(session) or ("", None)
    assert pool == "local/local" and seen is not None
    assert seen.stream == "orders" and seen.seconds == 2.0 and seen.expected_s == session.plan.expected.seconds
    assert dict(zip(TERMS, seen.work, strict=True))["base_row"] == session.plan.work["base_row"]


@pytest.mark.parametrize(
    "changes",
    [
        {"state": SessionState.FAILED},
        {"outcome": None},
        {"outcome": Outcome(0.0)},
        {"outcome": Outcome(2.0, rounds_resumed=1)},
        {"plan": None},
    ],
)
def test_what_says_nothing_about_rates_is_no_observation(changes: dict[str, object]) -> None:
    assert observation_of(finished("all", **changes)) is None


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryStore() if request.param == "memory" else open_store(tmp_path)


def test_rates_are_kept_and_read_again(store: ObjectStore) -> None:
    rates = RateStore(SwappedRecords(store))
    assert rates.rates("local/local") == PoolRates("local/local")
    rates.learn([finished("a", 2.0), finished("b", 3.0), finished("c", state=SessionState.FAILED)])
    rates.learn([finished("b", 3.0), finished("d", 4.0)])
    again = RateStore(SwappedRecords(store)).rates("local/local")
    assert [one.seconds for one in again.observations] == [2.0, 3.0, 4.0]
    assert rates.expectations(["local/local"])["local/local"].seconds(NARROW, "orders") != Expectation().seconds(NARROW)


def test_dispatchers_that_learn_at_the_same_time_lose_nothing(store: ObjectStore) -> None:
    rates = [RateStore(SwappedRecords(store)) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda place: rates[place % 4].learn([finished(f"s{place}")]), range(20)))
    assert len(rates[0].rates("local/local").observations) == 20


def test_rates_that_cannot_be_understood_are_begun_anew(store: ObjectStore) -> None:
    records = SwappedRecords(store)
    records.create("rates/local-local", {"pool": "local/local", "observations": [{"of": "another release"}]})
    rates = RateStore(records)
    assert rates.rates("local/local") == PoolRates("local/local")
    rates.learn([finished("a")])
    assert len(rates.rates("local/local").observations) == 1

"""Rates that are learned, the bounds of what they expect, and the record that they are kept in."""

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
from sessions.base.model import Estimate, JobRunSession, Outcome, SessionState
from sessions.planning.expectation import Expectation
from sessions.planning.learning import RateStore, observation_of
from sessions.planning.observations import (
    OBSERVATIONS_MAX,
    OBSERVATIONS_OF_A_TABLE_MAX,
    Observation,
    PoolRates,
    SessionWork,
    padded,
)
from sessions.planning.parts import PARTS, WHOLE, part_of
from sessions.planning.plan import plan_job_run
from sessions.planning.prices import offers_here
from sessions.planning.rates import expectation_of
from sessions.planning.situation import Situation, Wish
from sessions.planning.starts import Starts, way_of
from sessions.records.swapping import SwappedRecords

NARROW = WorkTerms(2, 100_000, 3e6, 0, 1e6, 5e5, 2e6, 3e7, 8)
WIDE = WorkTerms(2, 20_000, 2e7, 0, 2e5, 0, 4e5, 4e8, 2)
SMALL = WorkTerms(5, 1_000, 1e5, 0, 5e4, 0, 5e4, 1e6, 1)
WORKS = (NARROW, WIDE, SMALL)
FIRST = Expectation()


def seconds_of(known: PoolRates | Expectation, terms: WorkTerms, stream: str = "") -> float:
    """Wall seconds of a session on one slot."""
    return expected_of(known).seconds(SessionWork.of(terms), stream)


def expected_of(known: PoolRates | Expectation) -> Expectation:
    return known if isinstance(known, Expectation) else expectation_of(known)


def ran(
    number: int,
    stream: str,
    terms: WorkTerms,
    took: float,
    known: PoolRates | Expectation,
    cpu_s: float | None = None,
) -> Observation:
    """A session that ended, as a dispatcher would record it that knows so much."""
    expected, work = expected_of(known), SessionWork.of(terms)
    said, cpu = expected.seconds(work, stream), expected.cpu_seconds(work, stream)
    vector = tuple(terms.vector.tolist())
    of_parts = {WHOLE: took if cpu_s is None else cpu_s}
    return Observation(f"s{number}", stream, vector, took, said, float(number), vector, of_parts, cpu)


def taught(
    count: int, factor: float, noise: float = 0.0, known: PoolRates | None = None
) -> tuple[PoolRates, list[tuple[float, Estimate, float]]]:
    """Rates after so many sessions that took `factor` of what shipped rates say; and (took, expected, promised)."""
    dice, said = np.random.default_rng(1), []
    known = known or PoolRates("local/local")
    start = len(known.observations)
    for number in range(start, start + count):
        terms, stream = WORKS[number % 3], f"t{number % 5}"
        terms = replace(terms, base_byte=terms.base_byte * float(dice.uniform(0.3, 3)))
        learned = expectation_of(known)
        expected = learned.of(SessionWork.of(terms), stream)
        took = seconds_of(FIRST, terms) * factor * math.exp(noise * float(dice.standard_normal()))
        said.append((took, expected, expected.promise_s))
        known = known.learned([ran(number, stream, terms, took, learned)])
    return known, said


def test_nothing_known_is_the_shipped_rates() -> None:
    fresh = expectation_of(PoolRates())
    for terms in WORKS:
        wall, cpu = fresh.of(SessionWork.of(terms)), fresh.cpu(SessionWork.of(terms))
        shipped = float(terms.vector @ np.array([FIRST_RATES[term] for term in TERMS]))
        assert cpu.seconds == pytest.approx(shipped) and wall.seconds == pytest.approx(shipped)
        for estimate in (wall, cpu):
            assert estimate.low_s < 0.85 * shipped and 1.15 * shipped < estimate.high_s < estimate.promise_s
            assert estimate.promise_s < 5 * shipped, "a new table gets a sane answer"


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
    for terms in WORKS:
        assert seconds_of(known, terms, "another") == pytest.approx(seconds_of(FIRST, terms) * factor, rel=0.1)


@pytest.mark.slow
def test_each_term_has_a_rate_of_its_own() -> None:
    """Here bytes take five times as long as the shipped rates say, and nothing else does."""
    dice, known = np.random.default_rng(1), PoolRates()
    dear = replace(FIRST, rates=FIRST.rates * [5.0 if term.endswith("byte") else 1.0 for term in TERMS])
    for number in range(120):
        scale = 10 ** dice.uniform(-1, 1, 3)
        base = WORKS[number % 3]
        terms = replace(base, delta_byte=base.delta_byte * scale[0], base_byte=base.base_byte * scale[1])
        took = seconds_of(dear, terms) * math.exp(0.05 * dice.standard_normal())
        known = known.learned([ran(number, f"t{number}", terms, took, known)])
    learned = dict(zip(TERMS, expectation_of(known).rates, strict=True))
    assert 3.5 < learned["base_byte"] / FIRST_RATES["base_byte"] < 6
    assert learned["base_row"] / FIRST_RATES["base_row"] < 3.5
    for terms in WORKS:
        assert seconds_of(known, terms) == pytest.approx(seconds_of(dear, terms), rel=0.15)


def test_each_part_teaches_its_own_rates() -> None:
    """Materializing takes three times as long here, and the fold half: two sessions on each table tell."""
    known = PoolRates()
    for number in range(8):
        terms = WORKS[number % 3]
        shipped = dict(zip(TERMS, terms.vector * FIRST.rates, strict=True))
        parts = {part: sum(s for term, s in shipped.items() if part_of(term) == part) for part in set(PARTS.values())}
        cpu_s = {"fold": 0.5 * parts["fold"], "index": parts["index"], "write": 3 * parts["write"]}
        one = ran(number, f"t{number % 4}", terms, sum(cpu_s.values()), known)
        known = known.learned([replace(one, cpu_s=cpu_s)])
    by_term = expectation_of(known).by_term(SessionWork.of(NARROW))
    shipped = dict(zip(TERMS, NARROW.vector * FIRST.rates, strict=True))
    ratio = {part: _of(part, by_term) / _of(part, shipped) for part in ("fold", "index", "write")}
    assert ratio["fold"] < 0.75 < ratio["index"] < 1.5 < ratio["write"]


def _of(part: str, seconds: dict[str, float]) -> float:
    return sum(value for term, value in seconds.items() if part_of(term) == part)


@pytest.mark.slow
def test_a_busy_machine_changes_nothing_in_what_is_known_of_cpu_seconds() -> None:
    known, _ = taught(40, 1.0, 0.02)
    for number in range(40, 60):  # it becomes three times as slow, while the work stays what it was
        took = seconds_of(FIRST, NARROW)
        known = known.learned([ran(number, "t1", NARROW, 3 * took, known, cpu_s=took)])
    busy = expectation_of(known)
    assert busy.cpu_seconds(SessionWork.of(NARROW), "t1") == pytest.approx(seconds_of(FIRST, NARROW), rel=0.05)
    assert busy.seconds(SessionWork.of(NARROW), "t1") == pytest.approx(3 * seconds_of(FIRST, NARROW), rel=0.15)


def test_a_store_behind_a_network_is_waited_for() -> None:
    """30 ms a request: a session of 100 requests waits three seconds, and the next one of 200 twice as long."""
    known = PoolRates()
    for number in range(12):
        requests = 50.0 * (1 + number % 4)
        took = seconds_of(FIRST, SMALL) + 0.03 * requests
        one = ran(number, f"t{number % 3}", SMALL, took, known, cpu_s=seconds_of(FIRST, SMALL))
        known = known.learned([replace(one, waits=(requests, 0.0))])
    far = SessionWork(SMALL, SMALL, requests=400.0)
    assert expectation_of(known).seconds(far) == pytest.approx(seconds_of(FIRST, SMALL) + 12, rel=0.15)
    assert expectation_of(known).cpu_seconds(far) == pytest.approx(seconds_of(FIRST, SMALL), rel=0.05)


def test_a_table_whose_deltas_touch_few_files_is_known_by_its_past() -> None:
    known, _ = taught(30, 1.0)
    sparse = replace(NARROW, base_row=1.0, base_byte=1.0)
    took, before = seconds_of(FIRST, sparse), seconds_of(known, NARROW, "sparse")
    for number in range(5):
        known = known.learned([ran(100 + number, "sparse", NARROW, took, known)])
    assert seconds_of(known, NARROW, "sparse") < took + 0.35 * (before - took)
    assert seconds_of(known, NARROW, "t1") == pytest.approx(before, rel=0.2), "others stay what they were"


def test_tables_of_the_same_name_in_two_catalogs_teach_nothing_of_each_other() -> None:
    known, _ = taught(30, 1.0)
    for number in range(5):
        known = known.learned([ran(100 + number, "orders in s3://a", NARROW, 4 * seconds_of(FIRST, NARROW), known)])
    dear, other = (seconds_of(known, NARROW, f"orders in s3://{bucket}") for bucket in "ab")
    assert dear > 2.5 * other and other == pytest.approx(seconds_of(FIRST, NARROW), rel=0.4)


@pytest.mark.slow
def test_outliers_move_little() -> None:
    known, _ = taught(40, 1.0, 0.05)
    before = seconds_of(known, NARROW, "t1")
    hung = ran(10**6, "t1", NARROW, 100 * before, known)
    lied = ran(10**6 + 1, "t2", NARROW, before / 1e6, known)
    assert seconds_of(known.learned([hung, lied]), NARROW, "t1") == pytest.approx(before, rel=0.35)


@pytest.mark.slow
def test_a_machine_that_becomes_slower_is_followed() -> None:
    known, _ = taught(100, 1.0, 0.05)
    known, _ = taught(12, 2.0, 0.05, known=known)
    assert seconds_of(known, NARROW, "t1") == pytest.approx(2 * seconds_of(FIRST, NARROW), rel=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.03, 0.1, 0.3])
def test_the_bounds_are_kept_and_as_far_as_sessions_scatter(noise: float) -> None:
    _, said = taught(400, 1.7, noise)
    learnt = said[50:]
    assert 0.85 <= np.mean([expected.low_s <= took <= expected.high_s for took, expected, _ in learnt]) <= 0.97
    assert np.mean([took <= promised for took, _, promised in learnt]) >= 0.985, "350 draws of 99.3 %, less 2 sigma"
    assert (
        np.median([(expected.high_s - expected.low_s) / expected.seconds for _, expected, _ in learnt])
        < 2 * 1.645 * noise * 1.5 + 0.08
    )
    assert np.median([promised / took - 1 for took, _, promised in learnt]) < math.expm1(4.0 * noise) + 0.05
    assert np.median([abs(took - expected.seconds) / took for took, expected, _ in learnt]) < 0.68 * noise * 1.4 + 0.01


@pytest.mark.slow
def test_the_bounds_of_small_sessions_are_their_own() -> None:
    """Sessions of milliseconds scatter by half, those of minutes by a twentieth."""
    dice, known = np.random.default_rng(2), PoolRates()
    for number in range(300):
        terms, noise = (SMALL, 0.4) if number % 2 else (WIDE, 0.03)
        took = seconds_of(FIRST, terms) * math.exp(noise * dice.standard_normal())
        known = known.learned([ran(number, f"t{number % 2}", terms, took, known)])
    learned = expectation_of(known)
    small, wide = (learned.of(SessionWork.of(terms), stream) for terms, stream in ((SMALL, "t1"), (WIDE, "t0")))
    assert (small.high_s - small.low_s) / small.seconds > 2.5 * (wide.high_s - wide.low_s) / wide.seconds
    assert small.promise_s / small.seconds > 1.5 * wide.promise_s / wide.seconds


def test_sessions_that_were_planned_before_anything_was_known_do_not_widen_the_bounds_for_long() -> None:
    """Eight partitions of a job run on a machine that is 40 times as slow: all were planned by shipped rates."""
    took = 40 * seconds_of(FIRST, NARROW)
    known = PoolRates().learned([ran(number, "t", NARROW, took, PoolRates()) for number in range(8)])
    estimate = expectation_of(known).of(SessionWork.of(NARROW), "t")
    assert estimate.seconds == pytest.approx(took, rel=0.1) and estimate.promise_s < 2.5 * took


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
        st.sampled_from([(), (1.0,) * len(TERMS)]),
        st.dictionaries(st.sampled_from(["", "fold", "index", "write", "session", "unknown"]), st.floats(0, 1e6)),
        st.floats(0, 1e6),
        st.tuples(st.floats(0, 1e6), st.floats(0, 1)),
    ),
    max_size=60,
)


@given(observations, st.sampled_from(WORKS))
def test_whatever_was_seen_every_rate_is_positive_and_the_interval_contains_the_expected(
    found: list[Observation], terms: WorkTerms
) -> None:
    learned = expectation_of(PoolRates().learned(found))
    assert np.all(learned.rates > 0) and np.all(np.isfinite(learned.rates))
    for estimate in (learned.of(SessionWork.of(terms), "a"), learned.cpu(SessionWork.of(terms), "a")):
        assert 0 < estimate.low_s <= estimate.seconds <= estimate.high_s <= estimate.promise_s < math.inf


def test_a_part_whose_clock_read_next_to_nothing_does_not_turn_the_rates_to_zero() -> None:
    found = [
        Observation(str(number), "a", (1.0,) * len(TERMS), 1.0, 1.0, 0.0, (1.0,) * len(TERMS), cpu_s)
        for number, cpu_s in enumerate([{"": math.ulp(0.0)}, {"index": 1.0}, {"index": 1.0, "write": 145.0}])
    ]
    learned = expectation_of(PoolRates().learned(found))
    assert np.all(learned.rates > 0) and np.all(np.isfinite(learned.rates))


@given(observations, observations)
def test_sessions_are_known_in_the_order_in_which_they_came_whatever_their_clocks_say(
    one: list[Observation], two: list[Observation]
) -> None:
    """Sessions of a machine whose clock was a year ahead stayed for a year, and nothing more was learned of a table."""
    known = PoolRates().learned(one).learned(two)
    assert known == PoolRates().learned([*one, *two]) == known.learned(known.observations)
    came = list(dict.fromkeys(each.session_id for each in (*one, *two) if each.teaches))
    kept = [each.session_id for each in known.observations]
    assert kept == [name for name in came if name in kept] and kept[-1:] == came[-1:]


def test_what_is_kept_is_bounded_and_no_table_pushes_others_out() -> None:
    known, _ = taught(30, 1.0)
    many = [Observation(f"p{n}", "partitioned", tuple(SMALL.vector.tolist()), 1.0, 1.0, 1e6 + n) for n in range(1_000)]
    known = known.learned(many)
    assert len(known.observations) == 30 + OBSERVATIONS_OF_A_TABLE_MAX
    others = [Observation(f"o{n}", f"table{n}", tuple(SMALL.vector.tolist()), 1.0, 1.0, 2e6 + n) for n in range(1_000)]
    known = known.learned(others)
    assert len(known.observations) == OBSERVATIONS_MAX and known.observations[-1].session_id == "o999"


# The record


def finished(name: str, seconds: float = 2.0, **changes: object) -> JobRunSession:
    statistics = PartitionStatistics(
        "orders", {}, (1_000,), 10**5, base_rows=10**6, base_bytes=10**8, catalog="s3://lake"
    )
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
    assert (
        seen.stream == "orders in s3://lake"
        and seen.seconds == 2.0
        and seen.expected_s == session.plan.expected.seconds
    )
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
    assert [observation.seconds for observation in again.observations] == [2.0, 3.0, 4.0]
    assert rates.expectations(["local/local"])["local/local"].seconds(SessionWork.of(NARROW)) != seconds_of(
        FIRST, NARROW
    )


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


@pytest.mark.parametrize("field", ["seconds", "expected_s", "expected_cpu_s", "work", "whole", "waits", "cpu_s"])
@pytest.mark.parametrize("number", [-1.0, -1e300, 1e300])
def test_an_impossible_number_in_a_record_teaches_nothing(field: str, number: float) -> None:
    """Each job run failed with "math domain error", or was expected to take a time that no record can hold."""
    known = PoolRates().learned([ran(place, "t", NARROW, 2.0, FIRST) for place in range(6)])
    harmed = ran(7, "t", NARROW, 2.0, FIRST)
    value = getattr(harmed, field)
    many = {WHOLE: number} if isinstance(value, dict) else (number, *value[1:]) if isinstance(value, tuple) else number
    harmed = replace(harmed, **{field: many})
    damaged = replace(known, observations=(*known.observations, harmed))
    assert seconds_of(damaged, NARROW, "t") == seconds_of(known, NARROW, "t")
    assert known.learned([harmed]) == known


@pytest.mark.parametrize("seconds", [-1e300, -1.0, 1e300])
def test_an_impossible_start_in_a_record_counts_for_nothing(seconds: float) -> None:
    offer, _ = offers_here(2, 24 << 30)
    known = Starts({way_of(offer): (seconds, seconds, seconds)})
    assert known.expected(offer) == offer
    assert known.learned(way_of(offer), 1.0).seconds == {way_of(offer): (1.0,)}


def test_rates_of_the_version_before_are_read_and_count() -> None:
    """They have twelve terms and no CPU seconds: how long sessions take is learned from them, and their bounds."""
    records = SwappedRecords(MemoryStore())
    of_one = [100.0, 1e5, 3e6, 0.0, 1e6, 5e5, 2e6, 3e7, 8.0, 0.0, 0.0]
    sessions = [
        {
            "session_id": f"r/{n}",
            "stream": "orders",
            "work": [1.0, *of_one],
            "seconds": 9.0,
            "expected_s": 3.0,
            "at_s": n,
        }
        for n in range(6)
    ]
    records.create("rates/local-local", {"pool": "local/local", "observations": sessions})
    known = RateStore(records).rates("local/local")
    work = SessionWork.of(WorkTerms(**dict(zip(TERMS, padded([1.0, *of_one]).tolist(), strict=True))))
    assert len(known.observations) == 6
    assert expectation_of(known).seconds(work, "orders in s3://lake") == pytest.approx(9.0, rel=0.15)

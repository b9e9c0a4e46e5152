"""How long a session takes on a cluster: arithmetic over measured rates and planning.sizing."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_runs import RATES

from benchmarks.throughput import Rates, predict
from deltacompact import Settings
from deltacompact.planning.driver_work import CompactionWork, capacity_of
from deltacompact.planning.plan import Capacity
from deltacompact.planning.sizing.task_memory import GIB

TIB = 1 << 40
HERE = capacity_of(1, 2, 16 * GIB)
LOCAL = Settings(executor="local", local_threads=1)


def test_twice_the_rows_take_twice_as_long() -> None:
    rates = dataclasses.replace(RATES, session_s=0.0)
    one, two = (predict(CompactionWork.full(rows, 60, files=1), HERE, rates) for rows in (50_000_000, 100_000_000))
    assert two.seconds == pytest.approx(2 * one.seconds, rel=0.02)


def test_the_example_of_the_module() -> None:
    rates = Rates(1.5e-7, 2.4e-7, 5e-8, 3e-7, 1.6e-9, 0.5)
    found = predict(CompactionWork(1_200_000, 0, 40_000_000, 40_000_000 * 60), capacity_of(1, 8, 64 * GIB), rates)
    assert [round(seconds, 2) for seconds in (found.seconds, *found.stages_s.values())] == [2.8, 0.02, 0.04, 0.25, 1.98]
    assert (found.hash_buckets, found.rounds, found.tasks) == (1, 1, 13)


def test_rounds_come_from_the_object_store_and_buckets_from_the_figure_of_the_paper() -> None:
    cluster = capacity_of(11, 32, 256 * GIB)
    assert (cluster.slots, cluster.node_slots) == (352, (32,) * 11)
    rows = 20 * TIB // 1_552
    assert predict(CompactionWork.full(rows, 1_552, files=1_000), cluster, RATES).rounds == 1
    assert predict(CompactionWork.full(10 * rows, 1_552, files=1_000), cluster, RATES).rounds > 5
    assert predict(CompactionWork.full(10 * rows, 1_552, files=3), cluster, RATES).rounds == 3, (
        "a round has a file at least"
    )
    found = predict(CompactionWork.full(rows, 1_552), cluster, RATES)
    assert found.hash_buckets == 158  # 150 M rows at 8 GiB, here 60 % of that are heap


WORKS = st.builds(
    CompactionWork,
    delta_rows=st.integers(0, 10**12),
    merged_entries=st.integers(0, 10**12),
    written_rows=st.integers(0, 10**12),
    written_bytes=st.integers(0, 10**15),
    rounds=st.integers(0, 20),
    files=st.integers(1, 100),
    hash_buckets=st.integers(0, 40_000),
)


@given(WORKS, st.integers(1, 250), st.integers(1, 64))
def test_a_prediction_is_the_sum_of_its_parts(work: CompactionWork, nodes: int, cpus: int) -> None:
    found = predict(work, capacity_of(nodes, cpus, cpus * 8 * GIB), RATES)
    parts = [RATES.session_s, *found.stages_s.values(), found.driver_s]
    assert min(parts) >= 0 and found.seconds == pytest.approx(sum(parts))
    assert found.rounds >= 1 and found.tasks >= found.rounds and found.objects >= 1
    assert found.hash_buckets == (work.hash_buckets or found.hash_buckets) >= 1


@given(WORKS, st.integers(1, 8))
def test_more_to_write_takes_longer_and_more_slots_work_faster(work: CompactionWork, cpus: int) -> None:
    here = Capacity(cpus, 8 * GIB, 8 * GIB)
    more = dataclasses.replace(work, written_bytes=work.written_bytes + 10**12)
    assert predict(more, here, RATES).seconds > predict(work, here, RATES).seconds
    twice = predict(work, dataclasses.replace(here, slots=2 * cpus), RATES)
    for stage, seconds in predict(work, here, RATES).stages_s.items():
        assert twice.stages_s[stage] == pytest.approx(seconds / 2)

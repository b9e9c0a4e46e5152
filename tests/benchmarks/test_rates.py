"""Rates and a network are found again in runs that were made of them."""

from __future__ import annotations

import dataclasses

import pytest
from measured_runs import AT_ONCE, BYTES_PER_S, CPU_RATIO, LATENCY_S, RATES, measured, on_a_network

from benchmarks.rates import Network, behind, network_of, rates_of
from benchmarks.throughput import predict
from deltacompact.planning.driver_work import CompactionWork, capacity_of
from deltacompact.planning.sizing.task_memory import GIB

HERE = capacity_of(1, 2, 16 * GIB)


def test_rates_are_those_that_made_the_measurements() -> None:
    runs = [measured(10_000_000, 60), measured(2_000_000, 1_100), measured(4_000_000, 500)]
    assert dataclasses.astuple(rates_of(runs)) == pytest.approx(dataclasses.astuple(RATES))
    with pytest.raises(ValueError, match="narrow and with wide rows"):
        rates_of([measured(10_000_000, 60), measured(2_000_000, 60)])


def test_the_rates_predict_the_runs_that_they_come_from() -> None:
    runs = [measured(10_000_000, 60), measured(2_000_000, 1_100)]
    for run in runs:
        found = predict(CompactionWork.full(run.rows, run.row_bytes), HERE, rates_of(runs))
        assert found.seconds == pytest.approx(run.seconds, rel=0.05)
        for stage in ("hash_bucket", "dedupe", "assign_pointers"):
            assert found.stages_s[stage] == pytest.approx(run.stages_s[stage])


def test_a_network_is_the_one_that_made_the_measurements_and_adds_what_it_added() -> None:
    runs = [measured(10_000_000, 60), measured(2_000_000, 1_100), measured(4_000_000, 500)]
    network = network_of([on_a_network(run) for run in runs])
    expected = Network(LATENCY_S, BYTES_PER_S, 1e-4, 1 / 4e6, 40, 0.5, AT_ONCE, CPU_RATIO)
    assert dataclasses.astuple(network) == pytest.approx(dataclasses.astuple(expected))
    for run in runs:
        work, on_network = CompactionWork.full(run.rows, run.row_bytes), on_a_network(run)
        without = predict(work, HERE, RATES)
        found = behind(network, work, without, HERE.slots)
        waited = on_network.seconds - on_network.seconds_without
        assert found.stages_s["waiting"] == pytest.approx(waited)
        assert found.stages_s["write"] == pytest.approx(CPU_RATIO * without.stages_s["write"])
        assert found.seconds > without.seconds + waited
    with pytest.raises(ValueError, match="narrow and with wide rows"):
        network_of([on_a_network(runs[0])])


def test_a_run_that_hides_all_waiting_still_waits_a_hundredth() -> None:
    runs = [on_a_network(measured(10_000_000, 60)), on_a_network(measured(2_000_000, 1_100))]
    hidden = [dataclasses.replace(run, seconds=run.seconds_without * 0.98) for run in runs]
    network, works = network_of(hidden), [CompactionWork.full(run.rows, run.row_bytes) for run in runs]
    (narrow, wide) = (behind(network, work, predict(work, HERE, RATES), HERE.slots) for work in works)
    waits = [narrow.stages_s["waiting"] / runs[0].seconds_without, wide.stages_s["waiting"] / runs[1].seconds_without]
    assert min(waits) < 0.01 < max(waits) < 0.05

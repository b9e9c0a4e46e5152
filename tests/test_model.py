"""The model of large compactions: arithmetic over measured rates and sizing.py."""

from __future__ import annotations

import pytest

from benchmarks.matrix.points import JobRun
from benchmarks.matrix.prices import read_prices
from benchmarks.model import TIB, Cluster, MeasuredRun, Rates, predict, rates_of
from benchmarks.prediction import NODE, SIZES_TIB, error_grid, model_grids, runs_of_report
from deltacompact.planning.sizing import GIB

HERE = Cluster("here", 1, 2, 16 * GIB, 3.6)
RATES = Rates(1e-7, 2e-7, 1e-7, 4e-7, 1e-9, 0.5)


def measured(rows: int, row_bytes: int) -> MeasuredRun:
    stages = {
        "hash_bucket": rows * 1e-7 / 2,
        "dedupe": rows * 2e-7 / 2,
        "assign_pointers": rows * 1e-7 / 2,
        "write_index": rows * 1e-7 / 2,
        "materialize": rows * (3e-7 + 1e-9 * row_bytes) / 2,
    }
    return MeasuredRun(f"{row_bytes}", rows, row_bytes, 2, sum(stages.values()) + 0.5, stages)


def test_rates_are_those_that_made_the_measurements() -> None:
    runs = [measured(10_000_000, 60), measured(2_000_000, 1_100), measured(4_000_000, 500)]
    found = rates_of(runs)
    for name in ("hash_row_s", "dedupe_row_s", "pointer_row_s", "write_row_s", "write_byte_s", "session_s"):
        assert getattr(found, name) == pytest.approx(getattr(RATES, name)), name
    with pytest.raises(ValueError, match="narrow and with wide rows"):
        rates_of([measured(10_000_000, 60), measured(2_000_000, 60)])


def test_runs_come_from_either_report() -> None:
    stages = {"hash_bucket": 1.0}
    of_run = {
        "environment": {"cores": "2"},
        "measurements": [
            {
                "configuration": name,
                "case": case,
                "competitor": competitor,
                "error": error,
                "rows_in": 10,
                "seconds": 2.0,
                "details": {"seconds": stages, "hash_bucket_count": 8},
            }
            for name, case, competitor, error in [
                ("narrow", "full", "deltacompact ray", None),
                ("narrow", "full", "deltacompact local", None),
                ("narrow", "recent", "deltacompact ray", None),
                ("wide", "full", "deltacompact ray", "it failed"),
            ]
        ],
    }
    assert runs_of_report(of_run) == [MeasuredRun("narrow, full", 10, 60, 2, 2.0, stages, 8)]
    good = dict(vcpus=4, payload_bytes=0, rows=10, hash_buckets=0, repeat=0, seconds=2.0, stages_s=stages)
    of_matrix = {"job_runs": [{**good, "decompressed_bytes": 600, "hash_buckets_used": 8}, {**good, "error": "no"}]}
    assert all(set(each) <= set(JobRun.__dataclass_fields__) for each in of_matrix["job_runs"])
    (run,) = runs_of_report(of_matrix)
    assert (run.rows, run.row_bytes, run.cores, run.hash_buckets) == (10, 60, 4, 8)


def test_the_report_shows_its_error_and_the_papers_clusters() -> None:
    runs = [measured(10_000_000, 60), measured(2_000_000, 1_100)]
    (_, (_, errors)), (_, (_, predicted)) = model_grids(runs, read_prices())
    assert [abs(float(row[-1].rstrip("%"))) < 5 for row in errors] == [True, True]
    assert len(predicted) == 3 * len(SIZES_TIB)
    assert {row[0] for row in predicted} == {f"{nodes} x {NODE}" for nodes in (11, 110, 250)}
    slow = MeasuredRun("slow", 10_000_000, 60, 2, 100.0, {})
    assert float(error_grid([slow], rates_of(runs))[1][0][-1].rstrip("%")) < -50


def test_twice_the_rows_take_twice_as_long_and_cost_twice_as_much() -> None:
    rates = Rates(1e-7, 2e-7, 1e-7, 4e-7, 1e-9)
    one, two = (predict(rows, 60, HERE, rates, files=1) for rows in (5e7, 1e8))
    assert two.seconds == pytest.approx(2 * one.seconds, rel=0.02)
    assert two.usd == pytest.approx(two.seconds * 3.6 / 3600)
    assert one.usd_per_tb(5e7 * 60) == pytest.approx(two.usd_per_tb(1e8 * 60), rel=0.02)


def test_rounds_come_from_the_object_store_and_buckets_from_the_figure_of_the_paper() -> None:
    cluster = Cluster("11", 11, 32, 256 * GIB, 2.64)
    rows = 20 * TIB / 1_552
    assert predict(rows, 1_552, cluster, RATES, files=1_000).rounds == 1
    assert predict(10 * rows, 1_552, cluster, RATES, files=1_000).rounds > 5
    assert predict(rows, 1_552, cluster, RATES).hash_buckets == 158  # 150 M rows at 8 GiB, here 60 % of that are heap

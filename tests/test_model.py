"""The model of throughput.py beside the paper: which runs its rates come from, and how wrong it is on them."""

from __future__ import annotations

from benchmarks.matrix.points import JobRun
from benchmarks.prediction import NODE, SIZES_TIB, error_grid, model_grids, runs_of_report
from deltacompact.planning.throughput import MeasuredRun, rates_of
from sessions.planning.prices import read_prices


def measured(rows: int, row_bytes: int) -> MeasuredRun:
    stages = {
        "hash_bucket": rows * 1e-7 / 2,
        "dedupe": rows * 2e-7 / 2,
        "assign_pointers": rows * 1e-7 / 2,
        "write_index": rows * 1e-7 / 2,
        "materialize": rows * (3e-7 + 1e-9 * row_bytes) / 2,
    }
    return MeasuredRun(f"{row_bytes}", rows, row_bytes, 2, sum(stages.values()) + 0.5, stages)


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

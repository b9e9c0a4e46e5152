"""The model of throughput.py beside the paper: which runs its rates come from, and how wrong it is on them."""

from __future__ import annotations

from typing import Any

from measured_runs import measured, on_a_network

from benchmarks.matrix.points import JobRun
from benchmarks.prediction import NODE, SIZES_TIB, error_grid, model_grids, network_runs_of, runs_of_report
from benchmarks.rates import MeasuredRun, NetworkRun, rates_of
from sessions.planning.prices import read_prices


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


def report_of_s3(**measurement: Any) -> dict[str, Any]:
    """A full run at each of three places."""
    places = ["local files", "S3, 0 ms", "S3, 30 ms"]
    measured = [
        {
            "scenario": "narrow full", "place": place, "executor": "local", "repeat": 0, "error": None,
            "seconds": seconds, "cpu_s": cpu_s, "requests": {"ranged GET": 300, "part": 100},
            "up_bytes": 5, "down_bytes": 6, "details": {"seconds": {"hash_bucket": 1.0}, "hash_bucket_count": 8},
        }
        for place, seconds, cpu_s in zip(places, (2.0, 3.0, 7.0), (3.0, 4.0, 6.0), strict=True)
    ]  # fmt: skip
    measured[-1] |= measurement
    return {
        "environment": {"cores": "2"},
        "conditions": {"latency_s": 0.03, "bytes_per_s": None},
        "places": places,
        "executors": ["local"],
        "tables": {"narrow full": {"rows": 10, "row_bytes": 60}},
        "measurements": measured,
    }


def test_a_report_of_s3_tells_of_the_machine_and_of_the_network() -> None:
    assert runs_of_report(report_of_s3()) == [MeasuredRun("narrow full", 10, 60, 2, 2.0, {"hash_bucket": 1.0}, 8)]
    (run,) = network_runs_of(report_of_s3())
    assert run == NetworkRun(10, 60, 2, 400, 11, 0.03, float("inf"), 7.0, 3.0, 2.0)
    assert network_runs_of(report_of_s3(error="it failed")) == []
    assert network_runs_of({"environment": {"cores": "2"}, "measurements": []}) == []


def test_the_papers_table_is_shown_with_the_network_and_without() -> None:
    runs = [measured(10_000_000, 60), measured(2_000_000, 1_100)]
    _, (_, (names, rows)) = model_grids(runs, read_prices(), [on_a_network(run) for run in runs])
    assert names[-4:] == ["hours, S3", "TiB/h, S3", "$/TB, S3", "the paper"]
    for row in rows:
        cells = dict(zip(names, row, strict=True))
        assert float(cells["$/TB, S3"]) > float(cells["$/TB"]) > 0
        assert float(cells["TiB/h, S3"].replace(",", "")) < float(cells["TiB/h"].replace(",", ""))

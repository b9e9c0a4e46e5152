"""The model of planning/throughput.py beside the paper's figures, and beside the runs that its rates come from.

report.json of `run`      its full runs of deltacompact on Ray
report.json of `local`    and of `ec2`: every job run that succeeded

Two tables: seconds that were measured beside those that the model makes of them; seconds and dollars of full
compactions on clusters that nobody has here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.matrix.points import JobRun
from benchmarks.matrix.prices import Prices
from deltacompact.planning import sizing
from deltacompact.planning.throughput import MeasuredRun, Rates, Work, capacity_of, predict, rates_of

TIB = 1 << 40
ROW_BYTES = {"narrow": 60, "wide": 1_100}
"""Decompressed, of the configurations of `run`."""

COMPETITOR = "deltacompact ray"
NODE = "r5n.8xlarge"
PAPER_ROW_BYTES = 1_552
"""91 MiB/s-core are 61,477 rows/s-core."""

PAPER = {
    (11, 20): "61,477 rows/s-core, $0.24/TB (on 20 TiB)",
    (110, 1_024): "18,115 rows/s-core, 353 TiB/h (on 1.05 PiB)",
    (250, 117): "1,300 TiB/h (on 117 TiB)",
}
SIZES_TIB = (1, 20, 117, 1_024)

Grid = tuple[list[str], list[list[str]]]
"""Names of columns, and rows of cells."""


def runs_of_report(document: Mapping[str, Any]) -> list[MeasuredRun]:
    """The full runs in a report.json, of `run` or of a matrix."""
    if "job_runs" in document:
        return runs_of_matrix(JobRun(**each) for each in document["job_runs"])
    cores = int(document["environment"]["cores"])
    return [
        MeasuredRun(
            f"{each['configuration']}, full",
            each["rows_in"],
            ROW_BYTES[each["configuration"]],
            cores,
            each["seconds"],
            each["details"]["seconds"],
            each["details"]["hash_bucket_count"],
        )
        for each in document["measurements"]
        if each["configuration"] in ROW_BYTES
        and (each["case"], each["competitor"]) == ("full", COMPETITOR)
        and not each["error"]
    ]


def runs_of_matrix(runs: Iterable[JobRun]) -> list[MeasuredRun]:
    """Those that succeeded."""
    return [
        MeasuredRun(
            f"{run.rows:,} rows of {run.decompressed_bytes / run.rows:,.0f} B, "
            f"{run.hash_buckets_used} buckets, {run.vcpus} vCPUs",
            run.rows,
            run.decompressed_bytes / run.rows,
            run.vcpus,
            run.seconds,
            run.stages_s,
            run.hash_buckets_used,
        )
        for run in runs
        if run.error is None
    ]


def error_grid(runs: Sequence[MeasuredRun], rates: Rates) -> Grid:
    """Each run beside what the model makes of it, medians of the repeats."""
    rows = []
    for name in dict.fromkeys(run.name for run in runs):
        same = [run for run in runs if run.name == name]
        one, measured = same[0], median(run.seconds for run in same)
        here = capacity_of(1, one.cores, one.cores * sizing.FIGURE_MEMORY_BYTES)
        work = Work.full(one.rows, one.row_bytes, hash_buckets=one.hash_buckets)
        predicted = predict(work, here, rates).seconds
        rows.append([name, f"{measured:.2f}", f"{predicted:.2f}", f"{predicted / measured - 1:+.0%}"])
    return ["run", "measured s", "predicted s", "error"], rows


def prediction_grid(rates: Rates, prices: Prices) -> Grid:
    """Clusters and sizes of the paper. Dollars on demand."""
    names = ["cluster", "TiB", "hours", "TiB/h", "rows/s-core", "$/TB", "buckets", "rounds", "objects", "task GiB"]
    node, rows = prices.instance(NODE), []
    for nodes in (11, 110, 250):
        capacity = capacity_of(nodes, node.vcpus, node.memory_bytes)
        for size in SIZES_TIB:
            data = size * TIB
            count = data // PAPER_ROW_BYTES
            found = predict(Work.full(count, PAPER_ROW_BYTES, files=10_000), capacity, rates)
            hours = found.seconds / 3600
            dollars = hours * nodes * node.on_demand_usd_per_h
            rows.append(
                [
                    f"{nodes} x {NODE}",
                    f"{size:,}",
                    f"{hours:.2f}",
                    f"{size / hours:,.0f}",
                    f"{count / found.seconds / capacity.slots:,.0f}",
                    f"{dollars / (data / 1e12):.2f}",
                    f"{found.hash_buckets:,}",
                    str(found.rounds),
                    f"{found.objects:,}",
                    f"{found.task_bytes / sizing.GIB:.1f}",
                    PAPER.get((nodes, size), ""),
                ]
            )
    return [*names, "the paper"], rows


def model_grids(runs: Sequence[MeasuredRun], prices: Prices) -> list[tuple[str, Grid]]:
    """Both tables with their titles. Raises ValueError where the runs do not suffice."""
    rates = rates_of(runs)
    return [
        ("The model on the runs that its rates come from", error_grid(runs, rates)),
        (f"Predicted full compactions, rows of {PAPER_ROW_BYTES} decompressed bytes", prediction_grid(rates, prices)),
    ]


CAVEAT = (
    "Rates are those of the machine that was measured: waiting for S3 and stragglers are in them only if it had them."
)

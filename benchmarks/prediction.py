"""The model of throughput.py beside the paper's figures, and beside the runs that its rates come from.

report.json of `run`      its full runs of deltacompact on Ray
report.json of `local`    and of `ec2`: every job run that succeeded
report.json of `s3`       its full runs on local files; and what S3 adds, from those at 0 ms and at its latency

Two tables: seconds that were measured beside those that the model makes of them; seconds and dollars of full
compactions on clusters that nobody has here, with waiting for S3 and without where a report of `s3` tells of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from statistics import median
from typing import Any

from benchmarks.grids import Grid
from benchmarks.matrix.points import JobRun
from benchmarks.rates import MeasuredRun, Network, NetworkRun, behind, network_of, rates_of
from benchmarks.throughput import Rates, predict
from deltacompact.planning.driver_work import CompactionWork, capacity_of
from deltacompact.planning.sizing import index_sizes, task_memory
from sessions.planning.prices import Prices

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


def runs_of_report(document: Mapping[str, Any]) -> list[MeasuredRun]:
    """The full runs in a report.json, of `run`, of `s3` or of a matrix."""
    if "job_runs" in document:
        return runs_of_matrix(JobRun(**run) for run in document["job_runs"])
    if "conditions" in document:
        return [_measured_run(run, document) for run in _full_runs(document, Place.LOCAL)]
    cores = int(document["environment"]["cores"])
    return [
        MeasuredRun(
            f"{measurement['configuration']}, full",
            measurement["rows_in"],
            ROW_BYTES[measurement["configuration"]],
            cores,
            measurement["seconds"],
            measurement["details"]["seconds"],
            measurement["details"]["hash_bucket_count"],
        )
        for measurement in document["measurements"]
        if measurement["configuration"] in ROW_BYTES
        and (measurement["case"], measurement["competitor"]) == ("full", COMPETITOR)
        and not measurement["error"]
    ]


class Place(IntEnum):
    """The places of a report of `s3`, in their order there."""

    LOCAL = 0
    WITHOUT_LATENCY = 1
    WITH_LATENCY = 2


def _full_runs(document: Mapping[str, Any], place: Place) -> list[dict[str, Any]]:
    """The full runs at a place in a report of `s3` that succeeded, with the executor that ran first."""
    executor = document["executors"][0]
    return [
        run
        for run in document["measurements"]
        if run["scenario"] in document["tables"]
        and (run["place"], run["executor"], run["error"]) == (document["places"][place], executor, None)
    ]


def _measured_run(run: Mapping[str, Any], document: Mapping[str, Any]) -> MeasuredRun:
    table, cores = document["tables"][run["scenario"]], int(document["environment"]["cores"])
    details = run["details"]
    return MeasuredRun(
        run["scenario"], table["rows"], table["row_bytes"], cores, run["seconds"], details["seconds"],
        details["hash_bucket_count"],
    )  # fmt: skip


def network_runs_of(document: Mapping[str, Any]) -> list[NetworkRun]:
    """Each full run with latency in a report of `s3`, beside that of the same repeat without. None in other reports."""
    if "conditions" not in document:
        return []
    cores, conditions = int(document["environment"]["cores"]), document["conditions"]
    local, without = (
        {(run["scenario"], run["repeat"]): run for run in _full_runs(document, place)}
        for place in (Place.LOCAL, Place.WITHOUT_LATENCY)
    )
    runs = []
    for run in _full_runs(document, Place.WITH_LATENCY):
        same, table = (run["scenario"], run["repeat"]), document["tables"][run["scenario"]]
        if same in local and same in without:
            runs.append(
                NetworkRun(
                    table["rows"],
                    table["row_bytes"],
                    cores,
                    sum(run["requests"].values()),
                    run["up_bytes"] + run["down_bytes"],
                    conditions["latency_s"],
                    conditions["bytes_per_s"] or math.inf,
                    run["seconds"],
                    without[same]["seconds"],
                    run["cpu_s"] / local[same]["cpu_s"],
                )
            )
    return runs


def runs_of_matrix(runs: Iterable[JobRun]) -> list[MeasuredRun]:
    """The job runs that succeeded."""
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
        here = capacity_of(1, one.cores, one.cores * index_sizes.FIGURE_MEMORY_BYTES)
        work = CompactionWork.full(one.rows, one.row_bytes, hash_buckets=one.hash_buckets)
        predicted = predict(work, here, rates).seconds
        rows.append([name, f"{measured:.2f}", f"{predicted:.2f}", f"{predicted / measured - 1:+.0%}"])
    return ["run", "measured s", "predicted s", "error"], rows


def prediction_grid(rates: Rates, prices: Prices, network: Network | None = None) -> Grid:
    """Clusters and sizes of the paper. Dollars on demand. With a network, also what its store makes of them."""
    names = ["cluster", "TiB", "hours", "TiB/h", "rows/s-core", "$/TB", "buckets", "rounds", "objects", "task GiB"]
    if network:
        names += ["hours, S3", "TiB/h, S3", "$/TB, S3"]
    node, rows = prices.node(NODE), []
    for nodes in (11, 110, 250):
        capacity = capacity_of(nodes, node.vcpus, node.memory_bytes)
        for size in SIZES_TIB:
            data = size * TIB
            count = data // PAPER_ROW_BYTES
            work = CompactionWork.full(count, PAPER_ROW_BYTES, files=10_000)
            found = predict(work, capacity, rates)

            def cost(seconds: float, nodes: int = nodes, data: int = data) -> list[str]:
                hours = seconds / 3600
                dollars = hours * nodes * node.on_demand_usd_per_h
                return [f"{hours:.2f}", f"{data / TIB / hours:,.0f}", f"{dollars / (data / 1e12):.2f}"]

            hours, rate, dollars = cost(found.seconds)
            rows.append(
                [
                    f"{nodes} x {NODE}",
                    f"{size:,}",
                    hours,
                    rate,
                    f"{count / found.seconds / capacity.slots:,.0f}",
                    dollars,
                    f"{found.hash_buckets:,}",
                    str(found.rounds),
                    f"{found.objects:,}",
                    f"{found.task_bytes / task_memory.GIB:.1f}",
                    *(cost(behind(network, work, found, capacity.slots).seconds) if network else ()),
                    PAPER.get((nodes, size), ""),
                ]
            )
    return [*names, "the paper"], rows


def model_grids(
    runs: Sequence[MeasuredRun], prices: Prices, network_runs: Sequence[NetworkRun] = ()
) -> list[tuple[str, Grid]]:
    """Both tables with their titles. Raises ValueError where the runs do not suffice."""
    rates, network = rates_of(runs), network_of(network_runs) if network_runs else None
    return [
        ("The model on the runs that its rates come from", error_grid(runs, rates)),
        (
            f"Predicted full compactions, rows of {PAPER_ROW_BYTES} decompressed bytes",
            prediction_grid(rates, prices, network),
        ),
    ]


CAVEAT = (
    "Rates are those of the machine that was measured. Stragglers are not in them. Waiting for S3 is in the columns of "
    "S3, elsewhere only if that machine waited."
)

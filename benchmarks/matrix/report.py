"""report.md and report.json of a matrix: points, figures, what it cost, how many job runs succeeded, and the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import formats
from benchmarks.grids import Grid, markdown_table
from benchmarks.matrix.bills import Bill, bill_of
from benchmarks.matrix.figures import PAPER_BUCKETS, PAPER_ROWS, draw_figures, usd_per_tb
from benchmarks.matrix.points import JobRun
from benchmarks.plots import Plot
from benchmarks.prediction import CAVEAT, model_grids, runs_of_matrix
from deltacompact.planning.sizing import index_sizes
from sessions.planning.prices import NodeType, Prices

NAMES = (
    "vCPUs",
    "row bytes",
    "M rows",
    "buckets",
    "runs",
    "seconds",
    "rows/s-core",
    "GiB/h",
    "$/TB on demand",
    "$/TB spot",
    "$/TB at rest",
    "rounds",
    "scheduling",
    "task GB planned / measured",
    "spilled MB",
)


def bills(runs: Sequence[JobRun], worker: NodeType, head: NodeType | None) -> dict[int, Bill]:
    return {vcpus: bill_of(vcpus, worker, head) for vcpus in {run.vcpus for run in runs}}


def write_matrix_report(
    runs: Sequence[JobRun], prices: Prices, worker: NodeType, head: NodeType | None, facts: dict[str, Any], out: Path
) -> Grid:
    """Write everything; returns the table of points for the screen."""
    costs = bills(runs, worker, head)
    plots = draw_figures(runs, costs, out)
    grid = points_grid(runs, costs)
    document = {**facts, "prices": asdict(prices), "job_runs": [asdict(run) for run in runs]}
    (out / "report.json").write_text(json.dumps(document, indent=1))
    (out / "report.md").write_text(_markdown(runs, grid, plots, prices, worker, head, facts))
    return grid


def points_grid(runs: Sequence[JobRun], costs: dict[int, Bill]) -> Grid:
    """A line for each point, medians of the repeats that succeeded."""
    by_point = [
        list(of_point) for _, of_point in groupby(sorted(runs, key=lambda run: run.point), lambda run: run.point)
    ]
    return list(NAMES), [_cells(same, costs[same[0].vcpus]) for same in by_point]


def _cells(same: list[JobRun], bill: Bill) -> list[str]:
    good = [run for run in same if run.error is None]
    one = good[0] if good else same[0]
    first = [str(one.vcpus), "-", f"{one.rows / 1e6:g}", str(one.hash_buckets or "auto"), f"{len(good)} of {len(same)}"]
    if not good:
        return first + ["-"] * (len(NAMES) - len(first))

    def middle(value: Callable[[JobRun], float]) -> float:
        return median(value(run) for run in good)

    def cost(usd_per_h: float, data_bytes: Callable[[JobRun], int]) -> str:
        return f"{middle(lambda run: usd_per_tb(run, usd_per_h, data_bytes(run))):.3f}"

    first[1], first[3] = f"{one.decompressed_bytes / one.rows:,.0f}", str(one.hash_buckets_used)
    planned, measured = (
        max(run.planned_peak_bytes for run in good) / 1e9,
        max(run.measured_peak_bytes for run in good) / 1e9,
    )
    spilled = [run.spilled_bytes for run in good if run.spilled_bytes is not None]
    return [
        *first,
        f"{middle(lambda run: run.seconds):.2f}",
        f"{middle(lambda run: run.rows_per_s_core):,.0f}",
        f"{middle(lambda run: run.tib_per_h) * 1024:,.1f}",
        cost(bill.on_demand_usd_per_h, lambda run: run.decompressed_bytes),
        cost(bill.spot_usd_per_h, lambda run: run.decompressed_bytes),
        cost(bill.on_demand_usd_per_h, lambda run: run.input_bytes),
        str(one.rounds),
        formats.percent(middle(lambda run: run.scheduling_share)),
        f"{planned:.2f} / {measured:.2f}",
        formats.megabytes(max(spilled)) if spilled else formats.NONE,
    ]


def success_rate(runs: Sequence[JobRun]) -> str:
    good = sum(run.error is None for run in runs)
    share = f" ({good / len(runs):.1%})" if runs else ""
    return f"{good} of {len(runs)} job runs succeeded{share}; the paper's: 133 of 134 (99.3%)"


def _markdown(
    runs: Sequence[JobRun],
    grid: Grid,
    plots: Sequence[Plot],
    prices: Prices,
    worker: NodeType,
    head: NodeType | None,
    facts: dict[str, Any],
) -> str:
    parts = ["# Compaction by input size, hash buckets and vCPUs\n"]
    parts.append(" · ".join(f"{name} {value}" for name, value in facts["environment"].items()) + "\n")
    parts.append(f"{success_rate(runs)}.\n")
    parts.append(
        f"Dollars: workers at the price of {worker.name} for each vCPU"
        f"{f', and a {head.name} on demand as head' if head else ' (no head: this was one machine)'}; "
        f"prices of {prices.date}, {prices.region}. They cover the compaction alone, not the cluster's start.\n"
    )
    parts.append(f"## Points\n\n{markdown_table(*grid)}")
    parts += [f"- {run.point.name}, repeat {run.repeat}, failed: {run.error}\n" for run in runs if run.error]
    parts.append("## Figures\n")
    parts += [f"![{plot.title}]({plot.file})\n" for plot in plots]
    buckets = index_sizes.hash_bucket_count
    figure = [
        [f"{rows:,}", f"{paper:,}", f"{buckets(rows, 32, index_sizes.FIGURE_MEMORY_BYTES):,}"]
        for rows, paper in zip(PAPER_ROWS, PAPER_BUCKETS, strict=True)
    ]
    parts.append(markdown_table(["input rows (figure 3-1)", "the paper's hash buckets", "ours"], figure))
    parts.append("## The model\n")
    try:
        for title, (names, rows) in model_grids(runs_of_matrix(runs), prices):
            parts.append(f"{title}:\n\n{markdown_table(names, rows)}")
        parts.append(CAVEAT + "\n")
    except ValueError as error:
        parts.append(f"{str(error).capitalize()}: --payload-bytes 0,1000.\n")
    return "\n".join(parts)

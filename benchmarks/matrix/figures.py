"""The paper's figures in our numbers, one PNG each. Lines with a single point are drawn as that point.

3-1  hash buckets that planning.sizing recommends, by input rows
3-2  rows/s-core by hash buckets, a line for each input size and number of vCPUs
3-3  decompressed throughput by hash buckets, a line for each number of vCPUs
3-4  latency by vCPUs, a line for each input size
3-5  $ a decompressed TB by hash buckets, on demand and on spot
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot as plt

from benchmarks.matrix.bills import Bill
from benchmarks.matrix.points import JobRun, recommended_buckets
from benchmarks.plots import Plot
from deltacompact.planning.sizing import index_sizes, task_memory

PAPER_ROWS = tuple(int(46.875e9 * 2**step) for step in range(8))
PAPER_BUCKETS = (313, 625, 1250, 2500, 5000, 10000, 20000, 40000)

Value = Callable[[JobRun], float]


def draw_figures(runs: Sequence[JobRun], bills: dict[int, Bill], out: Path) -> list[Plot]:
    """Draw the job runs that succeeded. `bills` are by number of vCPUs."""
    good = [run for run in runs if run.error is None]
    plots = [_recommended(out)]
    if not good:
        return plots
    largest = max(run.decompressed_bytes for run in good)
    at_largest = [run for run in good if run.decompressed_bytes == largest]
    fullest = _best_buckets(good)

    size = _size(at_largest[0])
    on_demand = functools.partial(_cost, {vcpus: bill.on_demand_usd_per_h for vcpus, bill in bills.items()})
    spot = functools.partial(_cost, {vcpus: bill.spot_usd_per_h for vcpus, bill in bills.items()})
    figures = (
        Figure(
            "figure-3-2",
            "3-2: rows/s-core by hash buckets",
            ("hash buckets", "rows/s-core"),
            (Series(_label, _buckets, lambda run: run.rows_per_s_core, good),),
        ),
        Figure(
            "figure-3-3",
            f"3-3: throughput by hash buckets and vCPUs ({size})",
            ("hash buckets", "decompressed GiB/h"),
            (Series(_vcpus, _buckets, lambda run: run.tib_per_h * 1024, at_largest),),
        ),
        Figure(
            "figure-3-4",
            "3-4: latency by vCPUs and input size (best number of hash buckets)",
            ("vCPUs", "seconds"),
            (Series(_size, lambda run: run.vcpus, lambda run: run.seconds, fullest),),
        ),
        Figure(
            "figure-3-5",
            f"3-5: cost by hash buckets and vCPUs ({size}); dashed: workers on spot",
            ("hash buckets", "$ a decompressed TB"),
            (Series(_vcpus, _buckets, on_demand, at_largest), Series(_vcpus, _buckets, spot, at_largest, "--")),
        ),
    )
    return plots + [_drawn(figure, out) for figure in figures]


@dataclass(frozen=True, slots=True)
class Series:
    """One line for each label. A point is a job run; repeats are drawn as their median."""

    label: Callable[[JobRun], str]
    x: Value
    y: Value
    runs: Sequence[JobRun]
    style: str = "-"


@dataclass(frozen=True, slots=True)
class Figure:
    """One PNG: its name, its title, and those of its axes."""

    name: str
    title: str
    axes: tuple[str, str]
    series: tuple[Series, ...]


def _cost(usd_per_h: Mapping[int, float], run: JobRun) -> float:
    return usd_per_tb(run, usd_per_h[run.vcpus], run.decompressed_bytes)


def usd_per_tb(run: JobRun, usd_per_h: float, data_bytes: int) -> float:
    """What a run cost, for each 10^12 bytes."""
    return run.seconds / 3600 * usd_per_h / (data_bytes / 1e12)


def _best_buckets(runs: Iterable[JobRun]) -> list[JobRun]:
    """For each size and number of vCPUs: the runs with the fastest number of hash buckets."""
    best = []
    for _, same in _grouped(runs, lambda run: (_size(run), run.vcpus)):
        by_buckets = [(median(run.seconds for run in runs), runs) for _, runs in _grouped(same, _buckets)]
        best += min(by_buckets, key=lambda pair: pair[0])[1]
    return best


def _grouped(runs: Iterable[JobRun], key: Callable[[JobRun], Any]) -> list[tuple[Any, list[JobRun]]]:
    return [(group, list(members)) for group, members in groupby(sorted(runs, key=key), key)]


def _buckets(run: JobRun) -> int:
    return run.hash_buckets_used


def _size(run: JobRun) -> str:
    gib = run.decompressed_bytes / task_memory.GIB
    return f"{run.rows / 1e6:g} M rows, {gib:,.2g} GiB"


def _vcpus(run: JobRun) -> str:
    return f"{run.vcpus} vCPU" + "s" * (run.vcpus != 1)


def _label(run: JobRun) -> str:
    return f"{_size(run)}, {_vcpus(run)}"


def _drawn(figure: Figure, out: Path) -> Plot:
    """Hash buckets and vCPUs grow by factors: their axis is logarithmic."""
    drawing, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    colours: dict[str, str] = {}
    for series in figure.series:
        for text, of_label in _grouped(series.runs, series.label):
            points = [(at, median(series.y(run) for run in runs)) for at, runs in _grouped(of_label, series.x)]
            colour = colours.setdefault(text, f"C{len(colours)}")
            named = text if series.style == "-" else None
            axes.plot(*zip(*points, strict=True), series.style, marker="o", color=colour, label=named, markersize=4)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(figure.axes[0])
    axes.set_ylabel(figure.axes[1])
    axes.legend(frameon=False, fontsize="small")
    return _saved(drawing, axes, Plot(figure.title, f"{figure.name}.png"), out)


def _recommended(out: Path) -> Plot:
    rows = [10**power for power in range(6, 10)] + [10_000_000_000, *PAPER_ROWS]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(
        rows, recommended_buckets(rows, index_sizes.FIGURE_MEMORY_BYTES), marker="o", markersize=4, label="deltacompact"
    )
    axes.plot(PAPER_ROWS, PAPER_BUCKETS, "x", color="black", label="the paper")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("input rows")
    axes.set_ylabel("hash buckets")
    axes.legend(frameon=False)
    return _saved(figure, axes, Plot("3-1: recommended hash buckets at 8 GiB a CPU", "figure-3-1.png"), out)


def _saved(figure: Any, axes: Any, plot: Plot, out: Path) -> Plot:
    axes.set_title(plot.title, loc="left", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out / plot.file, dpi=120)
    plt.close(figure)
    return plot

"""The model's predictions beside the paper's figures, and beside the runs that its rates come from."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.configurations import CONFIGURATIONS
from benchmarks.model import ROW_BYTES, TIB, Cluster, Rates, predict, rates_of
from deltacompact import sizing

PAPER_NODE_USD_PER_H = 2.64
"""What the paper's own figures come to for an r5n.8xlarge: $0.24 a TB at 91 MiB/s-core, 32 vCPUs."""

PAPER_ROW_BYTES = 1_552
"""91 MiB/s-core are 61,477 rows/s-core."""

PAPER = {
    ("11 x r5n.8xlarge", 20): "61,477 rows/s-core, $0.24/TB (on 20 TiB)",
    ("110 x r5n.8xlarge", 1_024): "18,115 rows/s-core, 353 TiB/h (on 1.05 PiB)",
    ("250 x r5n.8xlarge", 117): "1,300 TiB/h (on 117 TiB)",
}
SIZES_TIB = (1, 20, 117, 1_024)


def print_model(console: Console, report: Path) -> None:
    """Rates, error and predictions. Raises ValueError where the report lacks a run that is needed."""
    document = json.loads(report.read_text())
    cores = int(document["environment"]["cores"])
    measurements = document["measurements"]
    rates = rates_of(measurements, cores)
    console.print(_error(measurements, rates, cores))
    console.print(_predictions(rates))
    console.print("Rates are those of a local disk: waiting for S3 and stragglers are not in them.", style="dim")


def _error(measurements: list[dict[str, object]], rates: Rates, cores: int) -> Table:
    grid = Table("run", "measured s", "predicted s", "error", title="The model on the runs that its rates come from")
    here = Cluster("here", 1, cores, cores * 8 * sizing.GIB, 0.0)
    for name, row_bytes in ROW_BYTES.items():
        seconds = [
            float(str(each["seconds"]))
            for each in measurements
            if (each["configuration"], each["case"], each["competitor"]) == (name, "full", "deltacompact ray")
        ]
        measured, predicted = median(seconds), predict(CONFIGURATIONS[name].rows, row_bytes, here, rates).seconds
        grid.add_row(f"{name}, full", f"{measured:.2f}", f"{predicted:.2f}", f"{predicted / measured - 1:+.0%}")
    return grid


def _predictions(rates: Rates) -> Table:
    columns = ("cluster", "TiB", "hours", "TiB/h", "rows/s-core", "$/TB", "buckets", "rounds", "objects", "task GiB")
    grid = Table(*columns, "paper", title=f"Predicted full compactions, rows of {PAPER_ROW_BYTES} decompressed bytes")
    for nodes in (11, 110, 250):
        cluster = Cluster(f"{nodes} x r5n.8xlarge", nodes, 32, 256 * sizing.GIB, PAPER_NODE_USD_PER_H)
        for size in SIZES_TIB:
            data = size * TIB
            rows = data / PAPER_ROW_BYTES
            found = predict(rows, PAPER_ROW_BYTES, cluster, rates, files=10_000)
            grid.add_row(
                cluster.name,
                f"{size:,}",
                f"{found.seconds / 3600:.2f}",
                f"{size / (found.seconds / 3600):,.0f}",
                f"{rows / found.seconds / cluster.slots:,.0f}",
                f"{found.usd_per_tb(data):.2f}",
                f"{found.hash_buckets:,}",
                str(found.rounds),
                f"{found.objects:,}",
                f"{found.task_bytes / sizing.GIB:.1f}",
                PAPER.get((cluster.name, size), ""),
            )
    return grid

"""The report of `benchmarks iceberg`: medians by shape and contender.

| shape | contender | s | CPU s | MB/s a core | largest process, planned / measured MB | all, MB | live rows | files | …
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| few | deltacompact convert | 21.4 | 40.1 | 5.2 | 980 / 800 | 1,400 | 45,990,055 | 92 | …

MB/s a core: of the files before, data and deletes, for each core of the machine, busy or not, as RisingWave's 44.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import groupby
from statistics import median
from typing import Any

from benchmarks import formats
from benchmarks.competitors import CORES
from benchmarks.grids import Grid
from benchmarks.iceberg.measuring import Measurement

_NAMES = [
    "shape",
    "contender",
    "s",
    "CPU s",
    "MB/s a core",
    "largest process, planned / measured MB",
    "all, MB",
    "live rows",
    "files",
    "delete files",
]


def grid_of(measurements: Sequence[Measurement]) -> Grid:
    ordered = sorted(measurements, key=lambda measurement: (measurement.shape, measurement.contender))
    rows = []
    for (shape, contender), group in groupby(ordered, lambda measurement: (measurement.shape, measurement.contender)):
        rows.append([shape, contender, *_cells(list(group))])
    return _NAMES, rows


def document_of(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    return [asdict(measured) for measured in measurements]


def _cells(repeats: Sequence[Measurement]) -> list[str]:
    if error := next((measurement.error for measurement in repeats if measurement.error), None):
        return [error, *[formats.NONE] * (len(_NAMES) - 3)]

    def middle(value: Callable[[Measurement], float]) -> float:
        return median(value(measurement) for measurement in repeats)

    last = repeats[-1]
    return [
        formats.seconds(middle(lambda measurement: measurement.seconds)),
        formats.seconds(middle(lambda measurement: measurement.cpu_s)),
        f"{middle(lambda measurement: measurement.read_bytes / measurement.seconds) / 1e6 / CORES:.3g}",
        formats.planned_and_measured(last.planned_bytes, middle(lambda measurement: measurement.peak_process_bytes)),
        formats.megabytes(middle(lambda measurement: measurement.peak_tree_bytes)),
        formats.NONE if last.live is None else f"{last.live:,}",
        str(last.files_after),
        str(last.delete_files_after),
    ]

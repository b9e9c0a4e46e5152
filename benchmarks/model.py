"""A model of full compactions that this machine cannot run: seconds, dollars, rounds, objects and memory.

    rates     measured here, for each core: seconds a row by stage, seconds a row and a byte of reading and writing
    cluster   110 nodes of 32 vCPUs and 256 GiB
    1 PiB     -> buckets, rounds, tasks and objects by the same sizing.py that plans real sessions -> seconds, dollars

What it leaves out: waiting for S3 (rates are those of a local disk) and stragglers. Its error on the runs that gave the
rates is printed with it: on runs of another size it can only be larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from deltacompact import sizing

ENTRY_BYTES = 32
TASK_S = 0.0008
OBJECT_S = 0.00022
"""Of the driver, for each task and for each object that tasks hand over (1,000 no-op tasks take 0.7 to 0.9 s)."""

ROW_BYTES = {"narrow": 60, "wide": 1_100}
"""Decompressed."""

TIB = 1 << 40


@dataclass(frozen=True, slots=True)
class Rates:
    """Core seconds: for each row of the steps before materialize, and of the index and data for each row and byte."""

    hash_row_s: float
    dedupe_row_s: float
    pointer_row_s: float
    write_row_s: float
    write_byte_s: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """Workers. `node_usd_per_h` is what one costs."""

    name: str
    nodes: int
    cpus: int
    memory_bytes: int
    node_usd_per_h: float

    @property
    def slots(self) -> int:
        return self.nodes * self.cpus


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of one full compaction. Bytes of memory are those of the largest task, planned."""

    seconds: float
    usd: float
    hash_buckets: int
    rounds: int
    objects: int
    task_bytes: int

    def usd_per_tb(self, data_bytes: float) -> float:
        return self.usd / (data_bytes / 1e12)


def rates_of(measurements: Iterable[Mapping[str, Any]], cores: int, competitor: str = "deltacompact ray") -> Rates:
    """From report.json's measurements of the full case, which must have both narrow and wide.

    Writing is a line through two points: so much a row, and so much a byte.
    """
    found = {name: _stages(measurements, name, cores, competitor) for name in ROW_BYTES}
    narrow, wide = found["narrow"], found["wide"]
    byte_s = (wide["write"] - narrow["write"]) / (ROW_BYTES["wide"] - ROW_BYTES["narrow"])
    row_s = max(0.0, narrow["write"] - byte_s * ROW_BYTES["narrow"])
    before = (max(narrow[stage], 0.0) for stage in ("hash", "dedupe", "pointers"))  # narrow: 5 times the rows
    return Rates(*before, row_s, byte_s)


def _stages(measurements: Iterable[Mapping[str, Any]], name: str, cores: int, competitor: str) -> dict[str, float]:
    """Core seconds a row by stage, the median of the repeats."""
    runs = [
        each
        for each in measurements
        if (each["configuration"], each["case"], each["competitor"]) == (name, "full", competitor) and not each["error"]
    ]
    if not runs:
        raise ValueError(f"the report has no full run of {competitor} on {name}")

    def per_row(*stages: str) -> float:
        return median(
            sum(run["details"]["seconds"].get(stage, 0.0) for stage in stages) * cores / run["rows_in"] for run in runs
        )

    return {
        "hash": per_row("hash_bucket"),
        "dedupe": per_row("dedupe"),
        "pointers": per_row("assign_pointers"),
        "write": per_row("write_index", "materialize"),
    }


def predict(rows: float, row_bytes: float, cluster: Cluster, rates: Rates, files: int = 10) -> Prediction:
    """A full compaction of so many rows of so many decompressed bytes, 90 % of which live."""
    heap, store = sizing.node_memory(cluster.memory_bytes)
    task_memory, object_store = heap // cluster.cpus, store * cluster.nodes
    buckets = sizing.hash_bucket_count(int(rows), ENTRY_BYTES, task_memory)
    per_round = sizing.round_rows_max(object_store, ENTRY_BYTES)
    rounds = max(1, min(files, math.ceil(rows / per_round))) if rows > per_round else 1
    round_rows = int(rows / rounds)
    task_rows = sizing.task_rows(round_rows, cluster.slots, ENTRY_BYTES, task_memory)
    hash_tasks = math.ceil(round_rows / task_rows)
    groups = sizing.bucket_groups(buckets, round_rows, ENTRY_BYTES, hash_tasks, cluster.slots)
    source_groups = sizing.source_groups(int(rows), cluster.slots)
    objects = rounds * hash_tasks * groups + 2 * groups * source_groups
    tasks = rounds * (hash_tasks + groups) + 2 * groups + source_groups
    # Runs of rounds are merged after 1, 3, 7, … rounds: so many times is a row folded and written.
    folds = 1 + math.log2(rounds)
    core_s = rows * (
        rates.hash_row_s
        + folds * rates.dedupe_row_s
        + rates.pointer_row_s
        + rates.write_row_s
        + rates.write_byte_s * row_bytes
    )
    seconds = core_s / cluster.slots + tasks * TASK_S + objects * OBJECT_S
    bucket_rows = math.ceil(round_rows / buckets)
    peak = sizing.peak_task_bytes(task_rows, bucket_rows, ENTRY_BYTES, 1 << 20, 4 * 32 << 20)
    usd = seconds / 3600 * cluster.nodes * cluster.node_usd_per_h
    return Prediction(seconds, usd, buckets, rounds, objects, peak)

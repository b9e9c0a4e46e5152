"""A model of full compactions that this machine cannot run: seconds, dollars, rounds, objects and memory.

    rates     measured here, for each core: seconds a row by stage, seconds a row and a byte of reading and writing
    cluster   110 nodes of 32 vCPUs and 256 GiB
    1 PiB     -> buckets, rounds, tasks and objects by the same sizing.py that plans real sessions -> seconds, dollars

What it leaves out: waiting for S3 (rates are those of a local disk) and stragglers. Its error on the runs that gave the
rates is printed with it: on runs of another size it can only be larger.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.configurations import ENTRY_BYTES
from deltacompact.planning import sizing

TIB = 1 << 40


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A full compaction that was measured: input rows of so many decompressed bytes, wall-clock seconds by stage."""

    name: str
    rows: int
    row_bytes: float
    cores: int
    seconds: float
    stages_s: Mapping[str, float]
    hash_buckets: int = 0

    def core_s_per_row(self, *stages: str) -> float:
        return sum(self.stages_s.get(stage, 0.0) for stage in stages) * self.cores / self.rows


@dataclass(frozen=True, slots=True)
class Rates:
    """Core seconds: for each row of the steps before materialize, and of the index and data for each row and byte.

    `session_s`: seconds of the driver between stages, for each session.
    """

    hash_row_s: float
    dedupe_row_s: float
    pointer_row_s: float
    write_row_s: float
    write_byte_s: float
    session_s: float = 0.0


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


def rates_of(runs: Sequence[MeasuredRun]) -> Rates:
    """The medians of the runs; of writing a line through them: so much a row, and so much a byte.

    Raises ValueError where all rows are of one width: no line goes through one point.
    """
    if len({run.row_bytes for run in runs}) < 2:
        raise ValueError("the model needs full runs of deltacompact on Ray with narrow and with wide rows")

    def per_row(*stages: str) -> float:
        return median(run.core_s_per_row(*stages) for run in runs)

    writes = [run.core_s_per_row("write_index", "materialize") for run in runs]
    at = np.array([[1.0, run.row_bytes] for run in runs])
    row_s, byte_s = np.linalg.lstsq(at, np.array(writes), rcond=None)[0]
    return Rates(
        per_row("hash_bucket"),
        per_row("dedupe"),
        per_row("assign_pointers"),
        max(0.0, float(row_s)),
        float(byte_s),
        median(max(0.0, run.seconds - sum(run.stages_s.values())) for run in runs),
    )


def predict(
    rows: float, row_bytes: float, cluster: Cluster, rates: Rates, files: int = 10, hash_buckets: int = 0
) -> Prediction:
    """A full compaction of so many rows of so many decompressed bytes, 90 % of which live.

    `hash_buckets` 0: as many as sizing.py recommends.
    """
    heap, store = sizing.node_memory(cluster.memory_bytes)
    task_memory, object_store = heap // cluster.cpus, store * cluster.nodes
    buckets = hash_buckets or sizing.hash_bucket_count(int(rows), ENTRY_BYTES, task_memory)
    per_round = sizing.round_rows_max(object_store, ENTRY_BYTES)
    rounds = max(1, min(files, math.ceil(rows / per_round))) if rows > per_round else 1
    round_rows = int(rows / rounds)
    nodes, slots = cluster.nodes, cluster.slots
    task_rows = sizing.task_rows(round_rows, slots, nodes, buckets, ENTRY_BYTES, task_memory)
    hash_tasks = math.ceil(round_rows / task_rows)
    groups = sizing.bucket_groups(buckets, round_rows, slots, nodes, hash_tasks)
    last_groups = min(buckets, max(groups, sizing.pointer_groups(int(rows), buckets, task_memory)))
    source_groups = sizing.source_groups(int(rows), slots, nodes, last_groups, task_memory)
    # A parcel for each node; and every task of the next stage is told of one from every task of the stage before.
    objects = nodes * (rounds * hash_tasks + last_groups + source_groups)
    told = rounds * hash_tasks * groups + 2 * last_groups * source_groups
    tasks = rounds * (hash_tasks + groups) + 2 * last_groups + source_groups
    overhead_s = tasks * sizing.DRIVER_TASK_S + objects * sizing.DRIVER_OBJECT_S + told * sizing.DRIVER_ARGUMENT_S
    # Runs of rounds are merged after 1, 3, 7, … rounds: so many times is a row folded and written.
    folds = 1 + math.log2(rounds)
    core_s = rows * (
        rates.hash_row_s
        + folds * rates.dedupe_row_s
        + rates.pointer_row_s
        + rates.write_row_s
        + rates.write_byte_s * row_bytes
    )
    seconds = rates.session_s + core_s / cluster.slots + overhead_s
    bucket_rows = math.ceil(round_rows / buckets)
    peak = sizing.peak_task_bytes(task_rows, bucket_rows, ENTRY_BYTES, 1 << 20, 4 * 32 << 20)
    usd = seconds / 3600 * cluster.nodes * cluster.node_usd_per_h
    return Prediction(seconds, usd, buckets, rounds, objects, peak)

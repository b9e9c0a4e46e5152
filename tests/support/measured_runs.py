"""Runs of a machine whose rates are known, to test that the model finds the rates again."""

from __future__ import annotations

from benchmarks.rates import MeasuredRun, NetworkRun
from benchmarks.throughput import Rates

RATES = Rates(1e-7, 2e-7, 1e-7, 4e-7, 1e-9, 0.5)
LATENCY_S, BYTES_PER_S, AT_ONCE, CPU_RATIO = 0.03, 90e6, 8, 1.25
"""The network. 10,000 rows or 4 MB take one request each; a row moves 40 bytes and half of its own bytes."""


def measured(rows: int, row_bytes: int) -> MeasuredRun:
    """A run on two cores, without a network."""
    stages = {
        "hash_bucket": rows * RATES.hash_row_s / 2,
        "dedupe": rows * RATES.dedupe_row_s / 2,
        "assign_pointers": rows * RATES.pointer_row_s / 2,
        "write_index": rows * 1e-7 / 2,
        "materialize": rows * (3e-7 + RATES.write_byte_s * row_bytes) / 2,
    }
    return MeasuredRun(f"{row_bytes}", rows, row_bytes, 2, sum(stages.values()) + RATES.session_s, stages)


def on_a_network(run: MeasuredRun) -> NetworkRun:
    """The same run on a store behind the network, with 8 requests at once for each core."""
    requests = run.rows * (1e-4 + run.row_bytes / 4e6)
    moved = run.rows * (40 + run.row_bytes / 2)
    waiting_s = (requests * LATENCY_S + moved / BYTES_PER_S) / (AT_ONCE * run.cores)
    return NetworkRun(
        run.rows, run.row_bytes, run.cores, requests, moved, LATENCY_S, BYTES_PER_S, run.seconds + waiting_s,
        run.seconds, CPU_RATIO,
    )  # fmt: skip

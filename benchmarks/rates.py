"""Rates of throughput.py from measured runs, and what a store behind a network adds to its predictions.

runs       10 M rows of 60 bytes in 4.2 s, 2 M rows of 1,100 bytes in 3.9 s, on 2 cores
rates_of   -> medians of seconds a row by stage; for writing, a line through the runs: seconds a row and a byte
network    30 ms to the first byte, 90 MB/s for each connection; a request for each 4 MB, 24 at once for each core
behind     -> 3.1 s: the prediction, and waiting 0.3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from benchmarks.throughput import Prediction, Rates
from deltacompact.planning.driver_work import CompactionWork


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A measured full compaction: its input rows, the decoded bytes of a row, and wall-clock seconds by stage.

    `stages_s` has the names of SessionResult.seconds. `hash_buckets` 0: as many as planning.sizing plans.
    """

    name: str
    rows: int
    row_bytes: float
    cores: int
    seconds: float
    stages_s: Mapping[str, float]
    hash_buckets: int = 0

    def core_s_per_row(self, *stages: str) -> float:
        """Seconds of one core for each input row in these stages together."""
        return sum(self.stages_s.get(stage, 0.0) for stage in stages) * self.cores / self.rows


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """A measured full compaction on a store behind a network, beside the same one on the same store without latency.

    `moved_bytes` went up or down in so many `requests`. `cpu_ratio` is its CPU time for that of local files.
    """

    rows: int
    row_bytes: float
    cores: int
    requests: float
    moved_bytes: float
    latency_s: float
    bytes_per_s: float
    seconds: float
    seconds_without: float
    cpu_ratio: float

    @property
    def connected_s(self) -> float:
        """The time that its requests take on their connections, added up."""
        return self.requests * self.latency_s + self.moved_bytes / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class Network:
    """What a store behind a network adds to a session.

    latency_s        seconds to the first byte of an answer
    bytes_per_s      of one connection, each way
    row_requests     requests for a written row,
    byte_requests    and for each of its decoded bytes
    row_moved        stored bytes that travel for a written row,
    byte_moved       and for each of its decoded bytes
    at_once          busy connections for each core. What is fetched or sent while cores work raises it: it is the
                     time of all requests over the time by which the session takes longer
    cpu_ratio        CPU time for that on local files
    """

    latency_s: float
    bytes_per_s: float
    row_requests: float
    byte_requests: float
    row_moved: float
    byte_moved: float
    at_once: float
    cpu_ratio: float = 1.0

    def waiting_s(self, rows: int, decoded_bytes: float, slots: int) -> float:
        """Wall-clock seconds by which latency and bandwidth delay a session that writes so much."""
        requests = rows * self.row_requests + decoded_bytes * self.byte_requests
        moved = rows * self.row_moved + decoded_bytes * self.byte_moved
        return (requests * self.latency_s + moved / self.bytes_per_s) / (self.at_once * slots)


def rates_of(runs: Sequence[MeasuredRun]) -> Rates:
    """The medians of the rates of full runs. For writing, a line through the runs: seconds a row and seconds a byte.

    Raises ValueError if all runs have rows of the same width, because a line needs two points.
    """

    def per_row(*stages: str) -> float:
        return median(run.core_s_per_row(*stages) for run in runs)

    widths = [run.row_bytes for run in runs]
    row_s, byte_s = _line(widths, [run.core_s_per_row("write_index", "materialize") for run in runs])
    return Rates(
        per_row("hash_bucket"),
        per_row("dedupe"),
        per_row("assign_pointers"),
        row_s,
        byte_s,
        median(max(0.0, run.seconds - sum(run.stages_s.values())) for run in runs),
    )


def network_of(runs: Sequence[NetworkRun]) -> Network:
    """What the network added to full runs under one latency: lines through requests and bytes, medians of the rest.

    A run that took no longer than without latency counts as one that took 1 % longer. Raises ValueError as `rates_of`.
    """
    widths = [run.row_bytes for run in runs]
    row_requests, byte_requests = _line(widths, [run.requests / run.rows for run in runs])
    row_moved, byte_moved = _line(widths, [run.moved_bytes / run.rows for run in runs])
    longer_s = [max(run.seconds - run.seconds_without, run.seconds_without / 100) for run in runs]
    return Network(
        median(run.latency_s for run in runs),
        median(run.bytes_per_s for run in runs),
        row_requests,
        byte_requests,
        row_moved,
        byte_moved,
        median(run.connected_s / longer / run.cores for run, longer in zip(runs, longer_s, strict=True)),
        median(run.cpu_ratio for run in runs),
    )


def _line(widths: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """What there is for a row and for each of its bytes, from values for rows of several widths. None is negative."""
    if len(set(widths)) < 2:
        raise ValueError("the model needs full runs of deltacompact with narrow and with wide rows")
    points = np.array([[1.0, width] for width in widths])
    row, byte = np.linalg.lstsq(points, np.array(values), rcond=None)[0]
    return max(0.0, float(row)), max(0.0, float(byte))


def behind(network: Network, work: CompactionWork, found: Prediction, slots: int) -> Prediction:
    """The prediction with what the network adds: waiting, and CPU time for requests."""
    stages_s = {stage: seconds * network.cpu_ratio for stage, seconds in found.stages_s.items()}
    stages_s["waiting"] = network.waiting_s(work.written_rows, work.written_bytes, slots)
    more_s = sum(stages_s.values()) - sum(found.stages_s.values())
    return replace(found, seconds=found.seconds + more_s, stages_s=stages_s)

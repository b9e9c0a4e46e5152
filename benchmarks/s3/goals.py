"""What is wanted of the benchmark, beside what was measured, and beside what it was when the goals were set.

Absolute goals hold for the sizes that the benchmark has without --scale and --partitions, on 2 cores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks import formats
from benchmarks.grids import Grid
from benchmarks.s3.report import Line

PARTITIONS = 1_000
"""Of the goals."""

ALL_PARTITIONS_BEFORE_S = 3.8
"""A partition with 10 deltas at 30 ms made 121 requests, one after another: measured on 20 when the goals were set."""


@dataclass(frozen=True, slots=True)
class Goal:
    """`measured` takes it from a line at S3 with latency; `before` is the same figure when the goal was set.

    `partitioned`: a figure of PARTITIONS partitions, which that of another number says nothing about.
    """

    text: str
    scenario: str
    most: float
    measured: Callable[[Line], float | None]
    before: float | None = None
    partitioned: bool = False


GOALS = (
    Goal("narrow full: seconds x 0 ms", "narrow full", 1.15, lambda line: line.slower_than_0_ms, 13.4 / 5.9),
    Goal("wide full: seconds x 0 ms", "wide full", 1.15, lambda line: line.slower_than_0_ms, 18.7 / 10.6),
    Goal("narrow full: CPU x local files", "narrow full", 1.2, lambda line: line.cpu_of_local, 10.2 / 7.3),
    Goal("wide full: CPU x local files", "wide full", 1.2, lambda line: line.cpu_of_local, 14.3 / 8.8),
    Goal("1,000 rows onto narrow: seconds", "narrow, 1,000 rows", 1.2, lambda line: line.seconds, 4.7),
    Goal("the same, dead rows marked: seconds", "narrow, 1,000 rows, marked", 1.2, lambda line: line.seconds),
    Goal("one append in a warm process: requests", "append", 3, lambda line: line.request_count),
    Goal("one changed partition of 1,000: seconds", "one partition", 6.0, lambda line: line.seconds, 241.0, True),
    Goal(
        "1,000 partitions x 10 deltas: seconds",
        "all partitions",
        PARTITIONS * ALL_PARTITIONS_BEFORE_S / 20,
        lambda line: line.seconds,
        PARTITIONS * ALL_PARTITIONS_BEFORE_S,
        True,
    ),
)


def goals_grid(lines: Sequence[Line], place: str, executor: str, scale: float, partitions: int) -> Grid:
    """Each goal with its measurement at the place with latency. Only at full size it is reached or not."""
    by_scenario = {line.scenario: line for line in lines if (line.place, line.executor) == (place, executor)}
    all_partitions = partitions == PARTITIONS
    full_size = scale == 1 and all_partitions
    rows = []
    for goal in GOALS:
        line = by_scenario.get(goal.scenario)
        comparable = all_partitions or not goal.partitioned
        measured = goal.measured(line) if line and line.seconds is not None and comparable else None
        verdict = formats.NONE if measured is None or not full_size else "yes" if measured <= goal.most else "no"
        rows.append(
            [
                goal.text,
                f"≤ {_figure(goal.most)}",
                _figure(goal.before),
                _figure(measured),
                verdict,
            ]
        )
    return ["goal", "wanted", "before", "measured", "reached"], rows


def _figure(value: float | None) -> str:
    return formats.NONE if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

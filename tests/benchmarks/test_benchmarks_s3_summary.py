"""The README's table of `benchmarks s3`: one line for each scenario, seconds at each place, ratios where latency is.

narrow full, local    2.87    4.35    5.24    1.2    1.32    261    354    503
append, local         0.00    -       failed  ...
"""

from __future__ import annotations

from benchmarks.s3.goals import PARTITIONS, goals_grid
from benchmarks.s3.report import Line, summary

PLACES = ("local files", "S3, 0 ms", "S3, 30 ms")


def test_a_scenario_is_one_line():
    lines = [
        Line("narrow full", "local files", "local", 2, None, 2.87, cpu_of_local=1.0),
        Line("narrow full", "S3, 0 ms", "local", 2, None, 4.35, slower_than_0_ms=1.0, cpu_of_local=1.22),
        Line(
            "narrow full", "S3, 30 ms", "local", 2, None, 5.24, requests={"GET": 200.0, "PUT": 61.0},
            down_bytes=354e6, up_bytes=503e6, slower_than_0_ms=1.2, cpu_of_local=1.32,
        ),
    ]  # fmt: skip
    names, (row,) = summary(lines, PLACES)
    assert names == ["seconds", *PLACES, "x 0 ms", "CPU x local", "requests", "down MB", "up MB"]
    assert row == ["narrow full, local", "2.87", "4.35", "5.24", "1.20", "1.32", "261", "354", "503"]


def test_what_failed_or_was_not_run_has_no_numbers():
    lines = [Line("append", "S3, 30 ms", "local", 1, "it failed"), Line("append", "local files", "local", 1, None, 1.0)]
    _, (row,) = summary(lines, PLACES)
    assert row == ["append, local", "1.00", *["-"] * 7]


def test_a_goal_for_a_thousand_partitions_is_not_measured_on_fewer():
    """The README showed 20 s for 200 partitions beside 190 s wanted for 1,000."""
    lines = [
        Line("all partitions", "S3, 30 ms", "local", 1, None, 20.3),
        Line("narrow, 1,000 rows", "S3, 30 ms", "local", 1, None, 3.07),
    ]

    def shown(partitions: int) -> dict[str, list[str]]:
        _, rows = goals_grid(lines, "S3, 30 ms", "local", 1.0, partitions)
        return {goal: figures for goal, _, _, *figures in rows}

    assert shown(PARTITIONS)["1,000 partitions x 10 deltas: seconds"] == ["20.3", "yes"]
    assert shown(200)["1,000 partitions x 10 deltas: seconds"] == ["-", "-"]
    assert shown(200)["1,000 rows onto narrow: seconds"] == ["3.07", "-"]

"""The report of `benchmarks s3`: what was measured, requests by kind, and the goals.

| narrow full, local | seconds | x 0 ms | CPU s | CPU x local | waited | requests | down MB | up MB | ...
|---|---:|---:|---:|---:|---:|---:|---:|---:|
| S3, 30 ms, 90 MB/s |   13.40 |   2.27 |  10.2 |        1.40 | 62.0 % |      412 |     310 |   260 | ...
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import formats
from benchmarks.grids import Grid, markdown_table
from benchmarks.s3.measuring import Measurement
from benchmarks.s3.requests import Kind, usd
from sessions.planning.prices import RequestPrices

BEGIN, END = "<!-- s3: written by `python -m benchmarks s3 --readme` -->", "<!-- /s3 -->"
LEGEND = """\
- *seconds*: wall clock of one operation (one append, one `compact()`), median of the repeats. *x 0 ms*: against the
  same server without latency in the same repeat, median. Both go through a proxy in a process of its own.
- *CPU s*: of the measured process and its children; the server's and the proxy's is not among it, but they run on the
  same cores. *waited*: the share of the time of all cores in which they did not work for the measured process.
- *requests $*: what AWS charges for these requests, by `prices.toml`; *$/M*: for a million requests of this mix.
- *up*, *down*: bodies of requests and of answers, MB are 10^6 bytes.
- *planned / measured*: memory of the largest process of tasks, where an operation is one session.
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A scenario at a place: medians of the repeats that succeeded, of one operation each. Ratios: see `Lines`."""

    scenario: str
    place: str
    executor: str
    repeats: int
    error: str | None
    seconds: float | None = None
    seconds_min: float | None = None
    seconds_max: float | None = None
    cpu_s: float | None = None
    waited: float | None = None
    requests: dict[str, float] = field(default_factory=dict)
    down_bytes: float | None = None
    up_bytes: float | None = None
    peak_process_bytes: int | None = None
    slower_than_0_ms: float | None = None
    cpu_of_local: float | None = None
    planned_peak_bytes: int | None = None
    measured_peak_bytes: int | None = None

    @property
    def request_count(self) -> float:
        return sum(self.requests.values())


def lines_of(measurements: Sequence[Measurement], places: Sequence[str]) -> list[Line]:
    """In the order in which they first ran. `places`: local files, S3 as it is, S3 with latency.

    Ratios are taken within a repeat, where the two ran one after the other, and then their median.
    """
    keys = dict.fromkeys((m.scenario, m.executor, m.place) for m in measurements)
    return [_line(*key, [m for m in measurements if (m.scenario, m.executor) == key[:2]], places) for key in keys]


def _line(scenario: str, executor: str, place: str, same: Sequence[Measurement], places: Sequence[str]) -> Line:
    local, at_once, _ = places
    here = [m for m in same if m.place == place]
    good = [m for m in here if m.error is None]
    errors = [m.error for m in here if m.error]
    if not good:
        return Line(scenario, place, executor, len(here), errors[0])

    def middle(value: Callable[[Measurement], float]) -> float:
        return median(value(m) / m.operations for m in good)

    def against(other: str, value: Callable[[Measurement], float]) -> float | None:
        others = {m.repeat: value(m) for m in same if m.place == other and m.error is None}
        ratios = [value(m) / others[m.repeat] for m in good if others.get(m.repeat)]
        return median(ratios) if ratios else None

    seconds = [m.seconds / m.operations for m in good]
    kinds = [kind for kind in Kind if any(kind in m.requests for m in good)]
    return Line(
        scenario,
        place,
        executor,
        len(here),
        errors[0] if errors else None,
        median(seconds),
        min(seconds),
        max(seconds),
        middle(lambda m: m.cpu_s),
        median(m.waited for m in good),
        {kind: median(m.requests.get(kind, 0) / m.operations for m in good) for kind in kinds},
        middle(lambda m: m.down_bytes),
        middle(lambda m: m.up_bytes),
        max(m.peak_process_bytes for m in good),
        against(at_once, lambda m: m.seconds),
        against(local, lambda m: m.cpu_s),
        max((m.details["planned_peak_bytes"] for m in good if m.details), default=None),
        max((m.details["measured_peak_bytes"] for m in good if m.details), default=None),
    )


def grids(lines: Sequence[Line], prices: RequestPrices) -> list[tuple[str, Grid]]:
    """A table for each scenario and executor, and one with all requests by kind."""
    tables = []
    for (scenario, executor), group in groupby(lines, lambda line: (line.scenario, line.executor)):
        tables.append((f"{scenario}, {executor}", (list(NAMES), [_cells(line, prices) for line in group])))
    return [*tables, ("Requests by kind, of one operation", _requests_grid(lines))]


def summary(lines: Sequence[Line], places: Sequence[str]) -> Grid:
    """For the README, a line for each scenario and executor: seconds at each place, the rest where latency is."""
    names = ["seconds", *places, "x 0 ms", "CPU x local", "requests", "down MB", "up MB"]
    groups = groupby(lines, lambda line: (line.scenario, line.executor))
    return names, [_summed_up(f"{scenario}, {executor}", list(group), places) for (scenario, executor), group in groups]


def _summed_up(name: str, lines: Sequence[Line], places: Sequence[str]) -> list[str]:
    at = {line.place: line for line in lines}
    seconds = [formats.NONE if at.get(place) is None else formats.seconds(at[place].seconds) for place in places]
    last = at.get(places[-1])
    if last is None or last.seconds is None:
        return [name, *seconds, *[formats.NONE] * 5]
    ratios = [formats.times(last.slower_than_0_ms), formats.times(last.cpu_of_local)]
    traffic = [formats.megabytes(last.down_bytes), formats.megabytes(last.up_bytes)]
    return [name, *seconds, *ratios, _count(last.request_count), *traffic]


NAMES = (
    "", "seconds", "range", "x 0 ms", "CPU s", "CPU x local", "waited", "requests", "requests $", "$/M", "down MB",
    "up MB", "largest process MB", "planned / measured MB",
)  # fmt: skip


def _cells(line: Line, prices: RequestPrices) -> list[str]:
    if line.seconds is None:
        return [line.place, f"failed: {line.error}", *[formats.NONE] * (len(NAMES) - 2)]
    asked, dollars = bool(line.requests), usd(line.requests, prices)
    return [
        line.place,
        formats.seconds(line.seconds),
        f"{formats.seconds(line.seconds_min)} … {formats.seconds(line.seconds_max)}",
        formats.times(line.slower_than_0_ms if asked else None),
        formats.seconds(line.cpu_s),
        formats.times(line.cpu_of_local),
        formats.percent(line.waited),
        _count(line.request_count) if asked else formats.NONE,
        f"{dollars:.2g}" if asked else formats.NONE,
        f"{dollars / line.request_count * 1e6:.2f}" if asked else formats.NONE,
        formats.megabytes(line.down_bytes if asked else None),
        formats.megabytes(line.up_bytes if asked else None),
        formats.megabytes(line.peak_process_bytes),
        formats.planned_and_measured(line.planned_peak_bytes, line.measured_peak_bytes),
    ]


def _count(requests: float) -> str:
    """Of one operation: a fraction if some of them make more requests than others."""
    return f"{requests:,.0f}" if requests == int(requests) else f"{requests:,.1f}"


def _requests_grid(lines: Sequence[Line]) -> Grid:
    kinds = [kind for kind in Kind if any(kind in line.requests for line in lines)]
    rows = [
        [f"{line.scenario}, {line.executor}, {line.place}", *(_count(line.requests.get(kind, 0)) for kind in kinds)]
        for line in lines
        if line.requests
    ]
    return ["", *kinds], rows


def document_of(
    described: dict[str, Any], measurements: Sequence[Measurement], lines: Sequence[Line]
) -> dict[str, Any]:
    """What report.json holds, and `benchmarks model` reads: every measurement among it."""
    return {
        **described,
        "lines": [asdict(line) for line in lines],
        "measurements": [asdict(measurement) for measurement in measurements],
    }


def markdown(facts: str, tables: Sequence[tuple[str, Grid]], lines: Sequence[Line]) -> str:
    """`facts` are sentences about the run."""
    parts = [f"{facts}\n", *(f"**{title}**\n\n{markdown_table(*grid)}" for title, grid in tables)]
    parts += [f"- {line.scenario}, {line.executor}, {line.place}: {line.error}\n" for line in lines if line.error]
    return "\n".join(parts)


def write_report(out: Path, document: dict[str, Any], text: str) -> None:
    environment = " · ".join(f"{name} {value}" for name, value in document["environment"].items())
    (out / "report.json").write_text(json.dumps(document, indent=1))
    (out / "report.md").write_text(f"# deltacompact on S3\n\n{environment}\n\n{text}\n## How to read it\n\n{LEGEND}")

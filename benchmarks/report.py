"""report.md, report.json and the table on the screen."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import formats
from benchmarks.grids import markdown_table
from benchmarks.plots import Plot
from benchmarks.runner import Measurement
from benchmarks.summary import Line

Column = tuple[str, Callable[[Line], str]]
COLUMNS: tuple[Column, ...] = (
    ("", lambda line: line.competitor),
    ("seconds", lambda line: formats.seconds(line.seconds)),
    ("range", lambda line: f"{formats.seconds(line.seconds_min)} … {formats.seconds(line.seconds_max)}"),
    ("x floor", lambda line: formats.times(line.ratio)),
    ("CPU s", lambda line: formats.seconds(line.cpu_s)),
    ("CPU x floor", lambda line: formats.times(line.cpu_ratio)),
    ("k rows/s", lambda line: formats.thousands(line.rows_per_second)),
    ("largest process MB", lambda line: formats.megabytes(line.peak_process_bytes)),
    ("all processes MB", lambda line: formats.megabytes(line.peak_tree_bytes)),
    ("before MB", lambda line: formats.megabytes(line.idle_tree_bytes)),
    ("spilled MB", lambda line: formats.megabytes(line.peak_temporary_bytes)),
    ("table MB", lambda line: formats.megabytes(line.output_bytes)),
    ("table x floor", lambda line: formats.times(line.output_ratio)),
    ("written MB", lambda line: formats.megabytes(line.written_bytes)),
    ("scheduling", lambda line: formats.percent(line.scheduling_share)),
    ("start-up s", lambda line: formats.seconds(line.startup_s)),
    ("result", lambda line: _verdict(line)),
)
ON_SCREEN_NOT = ("range", "CPU x floor", "k rows/s", "before MB", "spilled MB", "table MB")
LEGEND = """\
- *seconds*: wall clock of the work alone, median of the repeats; imports, starting a cluster or session (*start-up s*)
  and a warm-up on a tiny table are outside. With `deltacompact auto` a cluster that is wanted is started inside.
- *x floor*: against the floor that ran in the same repeat on the same files, median. The floor decodes and encodes
  every input byte once, one pyarrow process for each core, and does nothing else.
- *CPU s*: of the process and all its children, while the work went on.
- *largest process*, *all processes*: peak of unshared memory (USS), sampled from outside; *before* is what all
  processes held when the work began. MB are 10^6 bytes. *spilled MB*: peak of temporary files,
  Spark's shuffle among them.
- *table MB*: the files that a reader of the result reads. *written MB*: all that this run wrote, index and
  log included.
- *scheduling*: share of the stages' time in which work was ready but no task of the critical path ran.
- *result*: rows and checksum against what the generator of the data expects.
"""


def print_tables(console: Console, lines: Sequence[Line]) -> None:
    """One table for each case; the report has more columns."""
    columns = [column for column in COLUMNS if column[0] not in ON_SCREEN_NOT]
    for (configuration, case), group in _cases(lines):
        table = Table(title=f"{configuration}, {case}", title_justify="left")
        for name, _ in columns:
            table.add_column(name, justify="left" if name in ("", "result") else "right")
        for line in group:
            table.add_row(*(cell(line) for _, cell in columns))
        console.print(table)


def write_report(
    out: Path,
    described: dict[str, Any],
    measurements: Sequence[Measurement],
    lines: Sequence[Line],
    plots: Sequence[Plot],
) -> None:
    """report.json has every measurement; report.md what one wants to read."""
    document = {
        **described,
        "lines": [asdict(line) for line in lines],
        "measurements": [asdict(measurement) for measurement in measurements],
    }
    (out / "report.json").write_text(json.dumps(document, indent=1))
    (out / "report.md").write_text(_markdown(described, lines, plots))


def _markdown(described: dict[str, Any], lines: Sequence[Line], plots: Sequence[Plot]) -> str:
    parts = ["# deltacompact beside its peers\n"]
    if described["scale"] < 1.0:
        parts.append(f"**Scaled to {described['scale']:g}: fixed costs weigh more than they do at full size.**\n")
    facts = described["environment"] | {name: value for name, value in described.items() if name != "environment"}
    parts.append(" · ".join(f"{name} {value}" for name, value in facts.items()) + "\n")
    for (configuration, case), group in _cases(lines):
        parts.append(f"## {configuration}, {case}\n\n{markdown_table([name for name, _ in COLUMNS], _cells(group))}")
        stages = [[line.competitor, _stages(line), _memory(line)] for line in group if line.stages_s]
        if stages:
            parts.append(markdown_table(["", "seconds by stage", "task memory, planned / measured MB"], stages))
        for line in group:
            if line.error:
                parts.append(f"- {line.competitor} failed {line.failed} of {line.repeats}: {line.error}\n")
    parts.append("## Plots\n")
    parts += [f"![{plot.title}]({plot.file})\n" for plot in plots]
    parts.append(f"## How to read it\n\n{LEGEND}")
    return "\n".join(parts)


def _cells(group: Sequence[Line]) -> list[list[str]]:
    return [[cell(line) for _, cell in COLUMNS] for line in group]


def _cases(lines: Sequence[Line]) -> list[tuple[tuple[str, str], list[Line]]]:
    return [(place, list(group)) for place, group in groupby(lines, lambda line: (line.configuration, line.case))]


def _stages(line: Line) -> str:
    return ", ".join(f"{stage} {taken:.2f}" for stage, taken in (line.stages_s or {}).items())


def _memory(line: Line) -> str:
    return formats.planned_and_measured(line.planned_peak_bytes, line.measured_peak_bytes)


def _verdict(line: Line) -> str:
    if line.failed:
        return f"failed {line.failed} of {line.repeats}"
    return formats.NONE if line.correct is None else "right"

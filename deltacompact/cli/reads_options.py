"""The options with which `heat`, `simulate` and `advise` get reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def reads_options(takes: str = "Scan reports") -> Callable[[Command], Command]:
    """--scan-reports and --spark-log. `takes`: the beginning of the help of the first."""
    reports = click.option(
        "--scan-reports",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        multiple=True,
        metavar="FILE",
        help=f"{takes} that a REST catalog received, one JSON document a line: the report, or "
        '{"at": SECONDS, "report": ...}; or the file at $DELTACOMPACT_READS, to which our own readers add theirs. '
        "Repeatable.",
    )
    logs = click.option(
        "--spark-log",
        type=click.Path(exists=True, path_type=Path),
        multiple=True,
        metavar="PATH",
        help="The same from an event log of Spark, plain, zstd or gzip: a file, or a folder of logs. Repeatable.",
    )
    return lambda command: reports(logs(command))


def report_lines(files: Sequence[Path]) -> list[bytes]:
    """The lines of all files of reports."""
    return [line for path in files for line in path.read_bytes().splitlines()]

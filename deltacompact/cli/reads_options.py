"""Options by which commands are told of reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def scan_reports_option(command: Command) -> Command:
    return click.option(
        "--scan-reports",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        multiple=True,
        metavar="FILE",
        help="Scan reports that a REST catalog received, one JSON document a line: the report, or "
        '{"at": SECONDS, "report": ...}. Repeatable.',
    )(command)


def spark_log_option(command: Command) -> Command:
    return click.option(
        "--spark-log",
        type=click.Path(exists=True, path_type=Path),
        multiple=True,
        metavar="PATH",
        help="An event log of Spark, plain or zstd: a file, or a folder of logs. Repeatable.",
    )(command)

"""--verbose and --files: how much of many partitions is printed, see reports/scale.py."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

from deltacompact.reports.scale import Detail

verbose_option = click.option(
    "--verbose", is_flag=True, help="Print everything. Default: totals, and the ten worst of many."
)


def detail_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--verbose and --files, which `detail_of` reads."""
    options = (
        verbose_option,
        click.option("--files", is_flag=True, help="Print a line for each file."),
    )
    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


def detail_of(options: Mapping[str, Any]) -> Detail:
    """The detail that the options of a command line ask for."""
    return Detail(options["verbose"], options["files"])

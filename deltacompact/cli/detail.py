"""--verbose and --files: how much of many partitions is printed, see reports/scale.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from deltacompact.cli.arguments import all_of
from deltacompact.reports.scale import Detail

verbose_option = click.option(
    "--verbose", is_flag=True, help="Print everything. Default: totals, and the ten worst of many."
)
detail_options = all_of(verbose_option, click.option("--files", is_flag=True, help="Print a line for each file."))
"""--verbose and --files, which `detail_of` reads."""


def detail_of(options: Mapping[str, Any]) -> Detail:
    """The detail that the options of a command line ask for."""
    return Detail(options["verbose"], options["files"])

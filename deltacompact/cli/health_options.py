"""The options of `check --health`: the thresholds."""

from __future__ import annotations

import click

from deltacompact.cli.arguments import all_of
from deltacompact.cli.detail import verbose_option
from deltacompact.cli.sections import health_option

NEEDS_PLOT = "It needs matplotlib: pip install 'deltacompact[plot]'."

health_options = all_of(
    click.option("--health", is_flag=True, help="Hold file sizes, overlap, dead rows and backlog against thresholds."),
    health_option(
        "--max-age-hours",
        type=click.FloatRange(min=0),
        default=24.0,
        show_default=True,
        metavar="HOURS",
        help="Age of the oldest delta that waits.",
    ),
    health_option(
        "--max-overlap",
        type=click.IntRange(min=0),
        default=100,
        show_default=True,
        metavar="N",
        help="Delta files over the compacted files; for Iceberg, delete files that may apply to one data file.",
    ),
    health_option(
        "--max-dead-share",
        type=click.FloatRange(0, 1),
        default=0.3,
        show_default=True,
        metavar="SHARE",
        help="Share of the rows in data files that readers skip.",
    ),
    health_option(
        "--max-small-files",
        type=click.IntRange(min=0),
        default=20,
        show_default=True,
        metavar="N",
        help="Small data files of a partition.",
    ),
    health_option(
        "--small-file-mib",
        type=click.FloatRange(min=0),
        default=32.0,
        show_default=True,
        metavar="MIB",
        help="Smaller files are small.",
    ),
    health_option("--plot", metavar="FILE.svg", help=f"Draw the health. {NEEDS_PLOT}"),
    verbose_option,
)
"""--health, its thresholds with their defaults, --plot and --verbose."""

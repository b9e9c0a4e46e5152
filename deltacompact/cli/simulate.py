"""simulate: replays a log of reads against policies of clustering.

policy       runs  written    core-s  not opened  core-s saved    net
never        0     0 B        0       0 B         0               0
every run    12    24.0 GiB   310     9.1 TiB     18,400          18,090
tiers        4     6.1 GiB    80      8.9 TiB     18,100          18,020
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deltacompact.base.errors import InputError
from deltacompact.cli.answers import answer, note
from deltacompact.cli.arguments import any_catalog_argument, json_option, table_argument
from deltacompact.cli.finite_range import FiniteRange
from deltacompact.cli.place import place_of, place_options
from deltacompact.cli.reads_options import reads_options, report_lines
from deltacompact.cli.sections import WithSections

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog


@click.command(cls=WithSections)
@any_catalog_argument
@table_argument
@reads_options()
@click.option(
    "--columns", metavar="NAME[*WEIGHT],...", help="Columns to cluster by. Default: those that reads ask for."
)
@click.option(
    "--depth",
    type=FiniteRange(min=1),
    multiple=True,
    default=(2.0, 8.0),
    show_default=True,
    metavar="D",
    help="A policy: cluster partitions in which a file meets more than D files. Repeatable.",
)
@place_options
@json_option
def simulate(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    scan_reports: Sequence[Path],
    spark_log: Sequence[Path],
    columns: str | None,
    depth: Sequence[float],
    as_json: bool,
    **place: Any,
) -> None:
    """Replay a log of reads against policies of clustering.

    Files arrive again at the times in the snapshots of an Iceberg table, or in the log of a delta stream, and reads
    come between them. The policies are: never, every run, partitions deeper than a limit, and tiers, as `compact` does.
    For each, simulate tells what it would have written, and what readers would not have opened, both in core-seconds.
    Only bounds of files are known, so this is a model. Writes nothing.

    \b
    deltacompact simulate iceberg://prod db.orders --spark-log /logs/eventlog_v2_app-1 --columns day,customer
    """
    from deltacompact.base.wording import size
    from deltacompact.planning.simulated import REPLAYED
    from deltacompact.reports.words import in_columns

    reports = report_lines(scan_reports)
    if scan_reports and not reports and not spark_log:
        raise InputError(f"{', '.join(map(str, scan_reports))}: no scan report yet")
    where = place_of(catalog, place)
    found, notes = catalog.table(table).simulate(
        columns, **where, depths=depth, scan_reports=reports, spark_logs=spark_log
    )
    for line in (*notes, REPLAYED):
        note(line)
    rows = [["policy", "runs", "written", "core-s", "not opened", "core-s saved", "net"]]
    for outcome in found:
        cost, *gain = (f"{value:,.1f}" for value in (outcome.cost_s, outcome.saved_s, outcome.net_s))
        rows.append(
            [
                outcome.policy,
                f"{outcome.runs:,}",
                size(outcome.bytes_written),
                cost,
                _signed(outcome.bytes_not_opened),
                *gain,
            ]
        )
    document = {
        "table": table,
        "policies": [dataclasses.asdict(outcome) | {"net_s": outcome.net_s} for outcome in found],
    }
    answer(as_json, document, *in_columns(rows))


def _signed(count: int) -> str:
    from deltacompact.base.wording import size

    return f"-{size(-count)}" if count < 0 else size(count)

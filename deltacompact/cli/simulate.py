"""simulate: a log of reads against policies of clustering.

policy       runs  written    core-s  not opened  core-s saved    net
never        0     0 B        0       0 B         0               0
every run    12    24.0 GiB   310     9.1 TiB     18,400          18,090
tiers        4     6.1 GiB    80      8.9 TiB     18,100          18,020
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deltacompact.cli.answers import answer, note
from deltacompact.cli.arguments import (
    PARTITION_HELP,
    any_catalog_argument,
    json_option,
    one_partition,
    table_argument,
)
from deltacompact.cli.reads_options import reads_options, report_lines
from deltacompact.cli.sections import (
    WithSections,
    delta_stream_option,
    iceberg_option,
    refuse_delta_stream_options,
    refuse_iceberg_options,
)

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog


@click.command(cls=WithSections)
@any_catalog_argument
@table_argument
@reads_options()
@click.option(
    "--columns", metavar="NAME[*WEIGHT],...", help="By which files are clustered. Default: those that reads ask for."
)
@click.option(
    "--depth",
    type=click.FloatRange(min=1),
    multiple=True,
    default=(2.0, 8.0),
    show_default=True,
    metavar="D",
    help="Cluster partitions in which a file meets more files than that. Repeatable.",
)
@delta_stream_option("--partition", multiple=True, metavar="NAME=VALUE", help=PARTITION_HELP)
@iceberg_option("--branch", metavar="NAME", default="main", show_default=True, help="The branch.")
@json_option
def simulate(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    scan_reports: Sequence[Path],
    spark_log: Sequence[Path],
    columns: str | None,
    depth: Sequence[float],
    partition: Sequence[str],
    branch: str,
    as_json: bool,
) -> None:
    """Replay a log of reads against policies of clustering.

    The files of an Iceberg table come again as their snapshots say, those of a delta stream as its log says, and
    between them the reads. It says what each policy would have written: never, at every run, where files are deep, and
    in tiers, as `compact` does it; and what readers would not have opened for that, both in core-seconds. Only bounds
    of files are known, so this is a model. Writes nothing.

    \b
    deltacompact simulate iceberg://prod db.orders --spark-log /logs/eventlog_v2_app-1 --columns day,customer
    """
    from deltacompact.base.wording import size
    from deltacompact.catalog.opening import is_iceberg_catalog
    from deltacompact.planning.simulated import REPLAYED
    from deltacompact.reports.words import in_columns

    told = report_lines(scan_reports)
    if is_iceberg_catalog(catalog):
        refuse_delta_stream_options()
        orders = catalog.table(table)
        found, notes = orders.simulate(columns, branch, depths=depth, scan_reports=told, spark_logs=spark_log)
    else:
        refuse_iceberg_options()
        only = one_partition(catalog, table, partition)
        stream = catalog.table(table)
        found, notes = stream.simulate(columns, only, depths=depth, scan_reports=told, spark_logs=spark_log)
    for line in (*notes, REPLAYED):
        note(line)
    rows = [["policy", "runs", "written", "core-s", "not opened", "core-s saved", "net"]]
    for one in found:
        cost, *gain = (f"{value:,.1f}" for value in (one.cost_s, one.saved_s, one.net_s))
        rows.append([one.policy, f"{one.runs:,}", size(one.bytes_written), cost, _signed(one.bytes_not_opened), *gain])
    document = {"table": table, "policies": [dataclasses.asdict(one) | {"net_s": one.net_s} for one in found]}
    answer(as_json, document, *in_columns(rows))


def _signed(count: int) -> str:
    from deltacompact.base.wording import size

    return f"-{size(-count)}" if count < 0 else size(count)

"""advise: how files lie by some columns, what clustering by them would bring, and what it would cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deltacompact.cli.answers import answer
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
    from deltacompact.layout.advice import Advice


@click.command(cls=WithSections)
@any_catalog_argument
@table_argument
@click.option(
    "--columns",
    metavar="NAME[*WEIGHT],...",
    help="Up to four columns, each with how often it is asked for: day*3,customer. Default: those by which the table "
    "is clustered, else the depth of all columns; of delta streams, of the primary keys.",
)
@click.option("--plot", metavar="FILE.svg", help="Draw the boxes of the files, and the depth by column.")
@json_option
@delta_stream_option("--partition", multiple=True, metavar="NAME=VALUE", help=PARTITION_HELP)
@iceberg_option("--branch", metavar="NAME", default="main", show_default=True, help="The branch.")
@click.option(
    "--reads",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="So many reads are to pay for the work.",
)
@reads_options("Take the columns, and how often each is asked for, from scan reports")
@click.option("--usd-per-core-hour", type=click.FloatRange(min=0), metavar="USD", help="Say what it costs, too.")
def advise(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    columns: str | None,
    plot: str | None,
    as_json: bool,
    partition: Sequence[str],
    branch: str,
    reads: int,
    scan_reports: Sequence[Path],
    spark_log: Sequence[Path],
    usd_per_core_hour: float | None,
) -> None:
    """Say whether it is worth to cluster a table by some columns. Writes nothing.

    Depth is how many files hold a value. From the bounds of all files, and a look into some of them, it says which
    share of files and row groups a reader opens for a value, and for a range of a twentieth of the values, by each
    column and by all together; what that would be if files were clustered; what this would take; and after how many
    reads it has paid. Of a delta stream, footers tell the bounds.

    \b
    deltacompact advise iceberg://prod db.orders --columns day*3,customer --plot boxes.svg
    """
    from deltacompact.catalog.opening import is_iceberg_catalog
    from deltacompact.reports.advice import advice_lines

    told = report_lines(scan_reports)
    if is_iceberg_catalog(catalog):
        refuse_delta_stream_options()
        found = catalog.table(table).advise(columns, branch, reads=reads, scan_reports=told, spark_logs=spark_log)
    else:
        refuse_iceberg_options()
        only = one_partition(catalog, table, partition)
        found = catalog.table(table).advise(columns, only, reads=reads, scan_reports=told, spark_logs=spark_log)
    if plot and found.boxes is not None:
        from deltacompact.cli.plots import draw_boxes

        draw_boxes(plot, found.table_id, found.boxes)
    answer(as_json, _document(found, usd_per_core_hour), *advice_lines(found, usd_per_core_hour))


def _document(found: Advice, usd_per_core_hour: float | None) -> dict[str, Any]:
    document = dataclasses.asdict(dataclasses.replace(found, boxes=None)) | {"worth_it": found.worth_it}
    del document["boxes"]
    if found.expected is not None:
        document["expected"]["wall_s"] = found.expected.wall_s
        if usd_per_core_hour is not None:
            document["expected"]["usd"] = found.expected.usd(usd_per_core_hour)
    return document

"""advise: how well readers skip files by some columns, what clustering by them would bring, and what it would cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deltacompact.cli.answers import answer
from deltacompact.cli.arguments import any_catalog_argument, json_option, price_option, table_argument
from deltacompact.cli.place import place_of, place_options
from deltacompact.cli.reads_options import reads_options, report_lines
from deltacompact.cli.sections import WithSections

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
    help="Up to four columns, each with a weight for how often reads ask for it: day*3,customer. Default: those of "
    "the table's clustering; without one, the depth of all columns, or of the primary keys of delta streams.",
)
@click.option("--plot", metavar="FILE.svg", help="Draw the boxes of the files, and the depth by column.")
@json_option
@place_options
@click.option(
    "--reads",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="Clustering is worth it if N reads pay for it.",
)
@reads_options("Take the columns, and how often each is asked for, from scan reports")
@price_option("Say what it costs, too.")
def advise(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    columns: str | None,
    plot: str | None,
    as_json: bool,
    reads: int,
    scan_reports: Sequence[Path],
    spark_log: Sequence[Path],
    usd_per_core_hour: float | None,
    **place: Any,
) -> None:
    """Say whether clustering a table by some columns is worth it. Writes nothing.

    Depth is how many files hold a value. The bounds of all files, and some sampled rows, tell which share of files and
    row groups a reader opens: for a value, and for a range of a twentieth of the values. Shares are told for each
    column and for all together, as files lie now and as they would if clustered; and what clustering takes, and how
    many reads pay for it. For delta streams, bounds come from footers.

    \b
    deltacompact advise iceberg://prod db.orders --columns day*3,customer --plot boxes.svg
    """
    from deltacompact.reports.advice import advice_lines

    reports = report_lines(scan_reports)
    where = place_of(catalog, place)
    found = catalog.table(table).advise(
        columns, **where, reads=reads, plot=plot, scan_reports=reports, spark_logs=spark_log
    )
    answer(as_json, _document(found, usd_per_core_hour), *advice_lines(found, usd_per_core_hour))


def _document(found: Advice, usd_per_core_hour: float | None) -> dict[str, Any]:
    document = dataclasses.asdict(dataclasses.replace(found, boxes=None)) | {"worth_it": found.worth_it}
    del document["boxes"]
    if found.expected is not None:
        document["expected"] = found.expected.document(usd_per_core_hour)
    return document

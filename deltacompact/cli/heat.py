"""heat: shows how many reads ask for each column of a table, and adds reads from logs and reports.

day         41.2 reads, weight 3.1
customer    13.3 reads, weight 1
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deltacompact.cli.answers import answer, note
from deltacompact.cli.arguments import any_catalog_argument, json_option, table_argument
from deltacompact.cli.reads_options import reads_options, report_lines

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog


@click.command()
@any_catalog_argument
@table_argument
@reads_options()
@json_option
def heat(
    catalog: DeltaStreamCatalog | IcebergCatalog,
    table: str,
    scan_reports: Sequence[Path],
    spark_log: Sequence[Path],
    as_json: bool,
) -> None:
    """Show which columns reads ask for, and add reads.

    A read of a week ago counts half. A log may be given again: only its new reads are added. Names of columns are kept,
    and no values. `advise` without columns uses them, `watch` submits clustering that pays, and for Iceberg tables
    `rewrite-job-order=heat-desc` puts the partitions first whose readers gain most.

    \b
    deltacompact heat iceberg://prod db.orders --spark-log /logs/eventlog_v2_app-1
    """
    from deltacompact.layout.reads import columns_asked

    orders, notes = catalog.table(table), list[str]()
    for path in scan_reports:
        notes += orders.heat(scan_reports=report_lines([path]))[1]
    found, more = orders.heat(spark_logs=spark_log)
    for line in (*notes, *more):
        note(line)
    weights = {column.name: column.weight for column in columns_asked(found.columns)}
    document = {"table": table, "columns": dict(found.columns), "weights": weights}
    hottest = sorted(found.columns.items(), key=lambda column: (-column[1], column[0]))
    lines = [f"{name}  {reads:,.1f} reads" + _weight(weights.get(name)) for name, reads in hottest]
    answer(as_json, document, *(lines or [f"{table}: no reads have been told"]))


def _weight(weight: float | None) -> str:
    return "" if weight is None else f", weight {weight:g}"

"""check --health: compares the work of readers (deltas to fold, dead rows to skip) with thresholds. See
reports/health.py.

deltacompact check ./lake orders --health --max-age-hours 6      status 4 if a delta waits for longer
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deltacompact.base.errors import UnhealthyError
from deltacompact.base.wording import counted
from deltacompact.cli.answers import Failed, say_json
from deltacompact.cli.arguments import one_partition
from deltacompact.cli.health_options import thresholds_given
from deltacompact.cli.sections import of_iceberg
from deltacompact.reports.health import health_of_streams, print_health
from deltacompact.reports.plots import health_asked
from deltacompact.reports.scale import Detail

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog


def run(
    catalog: DeltaStreamCatalog | IcebergCatalog, table: str, partition: Sequence[str], options: dict[str, Any]
) -> None:
    """Print the health of a table. Raises Failed for the first error, or if a partition is beyond a threshold."""
    from deltacompact.cli.console import out

    limits = thresholds_given(options)
    if of_iceberg(catalog):
        found = catalog.table(table).check(options["branch"], health=limits, plot=options["plot"])
    else:
        from deltacompact.cli.counting import opening

        only = one_partition(catalog, table, partition)
        chosen = catalog.chosen(table, only)
        found = health_asked(
            limits, options["plot"], lambda limits: health_of_streams(catalog, table, chosen, limits, opening)
        )
    if options["as_json"]:
        say_json(found.document)
    else:
        print_health(out, found, Detail(options["verbose"]))
    if found.failed:
        raise Failed(found.failed[0][1])
    if ill := len(found.beyond):
        raise Failed(UnhealthyError(f"table {table!r}: {counted(ill, 'partition')} beyond a threshold: compact it"))

"""Options for the part of a table: a partition of a delta stream, or a branch of an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltacompact.cli.arguments import PARTITION_HELP, all_of, pairs
from deltacompact.cli.sections import delta_stream_option, iceberg_option, of_iceberg

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog


place_options = all_of(
    delta_stream_option("--partition", multiple=True, metavar="NAME=VALUE", help=PARTITION_HELP),
    iceberg_option("--branch", metavar="NAME", default="main", show_default=True, help="The branch."),
)


def place_of(catalog: DeltaStreamCatalog | IcebergCatalog, options: dict[str, Any]) -> dict[str, Any]:
    """These options as arguments of a table of this kind. Raises InputError for an option of the other kind."""
    if of_iceberg(catalog):
        return {"branch": options["branch"]}
    return {"partition": pairs(options["partition"]) or None}

"""Options for the part of a table: a partition of a delta stream, or a branch of an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltacompact.cli.arguments import PARTITION_HELP, pairs
from deltacompact.cli.sections import (
    delta_stream_option,
    iceberg_option,
    refuse_delta_stream_options,
    refuse_iceberg_options,
)

if TYPE_CHECKING:
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog


def place_options(command: Any) -> Any:
    """The options `--partition` and `--branch`."""
    of_branch = iceberg_option("--branch", metavar="NAME", default="main", show_default=True, help="The branch.")
    return delta_stream_option("--partition", multiple=True, metavar="NAME=VALUE", help=PARTITION_HELP)(
        of_branch(command)
    )


def place_of(catalog: DeltaStreamCatalog | IcebergCatalog, options: dict[str, Any]) -> dict[str, Any]:
    """These options as arguments of a table of this kind. Raises InputError for an option of the other kind."""
    from deltacompact.catalog.opening import is_iceberg_catalog

    if is_iceberg_catalog(catalog):
        refuse_delta_stream_options()
        return {"branch": options["branch"]}
    refuse_iceberg_options()
    return {"partition": pairs(options["partition"]) or None}

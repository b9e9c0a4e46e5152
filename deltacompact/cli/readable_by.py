"""check --readable-by: what keeps engines from reading an Iceberg table.

snowflake cannot read db.orders: 3 equality-delete files: compact --mode convert replaces them
spark reads db.orders
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from deltacompact.base.engines import AS_OF
from deltacompact.base.errors import UnhealthyError
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.cli.answers import Failed, answer
from deltacompact.maintenance.readable_by import obstacles_of


def run(catalog: IcebergCatalog, table: str, branch: str, names: Sequence[str], as_json: bool) -> None:
    """Print it for each engine. Raises Failed where one cannot read the table."""
    found = obstacles_of(names, lambda: catalog.state(table, branch))
    lines = [
        f"{name} cannot read {table}: {'; '.join(one.words for one in of)}" if of else f"{name} reads {table}"
        for name, of in found.items()
    ]
    document = [
        {"engine": name, "readable": not of, "obstacles": [dataclasses.asdict(one) for one in of]}
        for name, of in found.items()
    ]
    answer(as_json, document, *lines)
    if any(found.values()):
        failed = ", ".join(name for name, of in found.items() if of)
        raise Failed(UnhealthyError(f"table {table!r} cannot be read by {failed}, as of {AS_OF}"))

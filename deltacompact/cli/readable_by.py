"""check --readable-by: what keeps engines from reading a table.

snowflake cannot read db.orders: 3 equality-delete files: compact --mode convert replaces them
spark reads db.orders
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deltacompact.base.engines import AS_OF
from deltacompact.base.errors import UnhealthyError
from deltacompact.cli.answers import Failed, answer

if TYPE_CHECKING:
    from deltacompact.maintenance.readable_by import Obstacle


def answer_for(table: str, found: Mapping[str, Sequence[Obstacle]], as_json: bool) -> None:
    """Print the obstacles of each engine. Raises Failed if an engine cannot read the table."""
    lines = [
        f"{name} cannot read {table}: {'; '.join(obstacle.words for obstacle in of)}" if of else f"{name} reads {table}"
        for name, of in found.items()
    ]
    document = [
        {"engine": name, "readable": not of, "obstacles": [dataclasses.asdict(obstacle) for obstacle in of]}
        for name, of in found.items()
    ]
    answer(as_json, document, *lines)
    if any(found.values()):
        failed = ", ".join(name for name, of in found.items() if of)
        raise Failed(UnhealthyError(f"table {table!r} cannot be read by {failed}, as of {AS_OF}"))

"""The streams that a document writes to: those of one table, for some of its partitions or for all.

{"catalog": "s3://lake/tables/", "source_table_id": "orders"}                        every stream of orders
{"catalog": "s3://lake/tables", …, "partitions": [{"day": "a"}]}                     that of day=a: overlaps the first
{…, "source_table_id": "orders", "destination_compacted_table_id": "folded"}         those of folded: no overlap
{"catalog": "iceberg://prod", "source_table_id": "db.orders", "branch": "audit"}     the branch audit of db.orders
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltacompact.base.errors import InputError
from deltacompact.base.model import ICEBERG, partition_text
from sessions.documents.allow_list import Place

MAIN = "main"


@dataclass(frozen=True, slots=True)
class NamedStreams:
    """The streams of a table. `partitions`: sets of (key, value), for Iceberg the branch; None: all partitions."""

    catalog: Place | str
    table_id: str
    partitions: frozenset[frozenset[tuple[str, str | None]]] | None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> NamedStreams:
        """The streams that an accepted document names. All of the table if it says which in a way that we do not know:
        another release accepted it. Who claims its job run ends it; until then it holds up no other table."""
        catalog = str(document.get("catalog"))
        table_id = str(document.get("destination_compacted_table_id") or document.get("source_table_id"))
        partitions = [branch_of(document)] if catalog.startswith(ICEBERG) else document.get("partitions")
        named = None
        if partitions is not None:
            with contextlib.suppress(InputError, TypeError, AttributeError):
                named = frozenset(
                    frozenset((key, partition_text(value)) for key, value in partition.items())
                    for partition in partitions
                )
        return cls(_place(catalog), table_id, named)

    def overlap(self, other: NamedStreams) -> bool:
        if (self.catalog, self.table_id) != (other.catalog, other.table_id):
            return False
        return self.partitions is None or other.partitions is None or bool(self.partitions & other.partitions)


def branch_of(document: Mapping[str, Any]) -> dict[str, str | None]:
    """The branch that a session works on, in the form of a partition of a delta stream."""
    return {"branch": str(document.get("branch", MAIN))}


def one_spelling(catalog: str) -> str:
    """The name of a catalog, the same for all its spellings: "s3://lake/tables" for "s3://lake/tables/"."""
    place = _place(catalog)
    return place if isinstance(place, str) else f"{place.scheme}://{'/'.join(place.parts)}"


def _place(catalog: str) -> Place | str:
    try:
        return Place.of(catalog)
    except InputError:
        return catalog

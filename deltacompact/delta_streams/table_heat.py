"""The heat of a table of streams, which is stored in the table's folder: see layout/kept_heat.py."""

from __future__ import annotations

from deltacompact.delta_streams.paths import TablePaths
from deltacompact.delta_streams.streams import Streams
from deltacompact.layout.kept_heat import KeptHeat


def heat_of_streams(streams: Streams, table_id: str) -> KeptHeat:
    """The kept heat of a table."""
    creation = streams.remembered_table(table_id).creation or ""
    return KeptHeat(streams.store, TablePaths.of(table_id).heat, table_id, creation)

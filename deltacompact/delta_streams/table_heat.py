"""The heat of a table of streams lies below its folder: see layout/kept_heat.py."""

from __future__ import annotations

from deltacompact.delta_streams.paths import TablePaths
from deltacompact.delta_streams.streams import Streams
from deltacompact.layout.kept_heat import KeptHeat


def heat_of_streams(streams: Streams, table_id: str) -> KeptHeat:
    """What is kept of the reads of a table."""
    creation = streams.declared(table_id).creation or ""
    return KeptHeat(streams.store, TablePaths.of(table_id).heat, table_id, creation)

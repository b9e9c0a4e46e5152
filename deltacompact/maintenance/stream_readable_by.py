"""What keeps an engine from reading a table of delta streams: by its publication, or by the list of its files.

published as Iceberg     what keeps the engine from reading the published table
published as Delta       polars: it reads no file outside of the published table's folder
not published            3 files with dead rows: compact --purge rewrites them; 1 file that is not Parquet
in each case             2 deltas: compact folds them; until then the engine does not see them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltacompact.base import expect
from deltacompact.base.engines import AS_OF, Engine, EngineName, engine_named
from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType, PartitionLike
from deltacompact.base.partitions import side_by_side
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.streams import Streams
from deltacompact.maintenance.readable_by import Obstacle

DELTA_READERS = (EngineName.DUCKDB, EngineName.POLARS, EngineName.SPARK)
"""The engines with which our tests read Delta tables."""


def stream_obstacles_of(
    catalog: Streams, table_id: str, partition: PartitionLike, engines: str | Sequence[str]
) -> dict[str, tuple[Obstacle, ...]]:
    """What keeps each engine from reading the table, by the engine's name. Raises InputError for an unknown engine."""
    named = {name: engine_named(name) for name in expect.names("readable_by", engines)}
    chosen = catalog.chosen(table_id, partition)
    states = side_by_side(chosen, lambda place: catalog.state(table_id, place), catalog.at_once)
    deltas = sum(len(state.deltas) for state in states)
    unseen = [Obstacle("delta", deltas, "compact folds them, until then they are not seen")] if deltas else []
    target = catalog.publication(table_id)
    if target is None:
        shown = dict.fromkeys(named, _of_files(states))
    elif target.startswith("delta://"):
        shown = {name: _of_delta_table(name) for name in named}
    else:
        shown = _of_iceberg_table(target, named)
    return {name: (*unseen, *shown[name]) for name in named}


def _of_files(states: Sequence[StreamState]) -> tuple[Obstacle, ...]:
    files = [file for state in states if state.compacted for file in state.compacted.files]
    dead = sum(file.deletions is not None for file in files)
    others = sum(file.content_type is not ContentType.PARQUET for file in files)
    found = [Obstacle("file with dead rows", dead, "compact --purge rewrites them")] if dead else []
    return (*found, *([Obstacle("file that is not Parquet", others, "compact to parquet")] if others else []))


def _of_delta_table(name: str) -> tuple[Obstacle, ...]:
    engine = EngineName(name.lower())
    if engine not in DELTA_READERS:
        known = ", ".join(DELTA_READERS)
        raise InputError(f"what {name} reads of Delta tables is not known here as of {AS_OF}: {known} are")
    outside = Obstacle("paths outside of the Delta table's folder", 0, "let delta-rs read it, by its QueryBuilder")
    return (outside,) if engine is EngineName.POLARS else ()


def _of_iceberg_table(target: str, named: Mapping[str, Engine]) -> dict[str, tuple[Obstacle, ...]]:
    from deltacompact.iceberg.table import pyiceberg_door
    from deltacompact.iceberg.table.metadata import MAIN
    from deltacompact.iceberg.table.table_state import StateReader
    from deltacompact.maintenance.readable_by import obstacles
    from deltacompact.publication.iceberg.target import IcebergTarget

    there = IcebergTarget.of(target)
    table = pyiceberg_door.IcebergTable.load(pyiceberg_door.open_named(there.catalog), there.table_id)
    state = StateReader(table.store).read(table.metadata, MAIN)
    # The files are ours: no compaction of the Iceberg table may touch them.
    return {
        name: tuple(
            Obstacle(obstacle.kind, obstacle.files, "compact --purge rewrites what they mark")
            if obstacle.files
            else obstacle
            for obstacle in obstacles(state, engine)
        )
        for name, engine in named.items()
    }

"""How a partition's plan is made, from what its store has and from the terms of the table's sessions.

keys id, sort by version        f2 lacks the longest value of `version`: its column is read
snapshot, index, capacity       the plan; a column that Parquet cannot hold is refused before any work
"""

from __future__ import annotations

from dataclasses import replace

from deltacompact.index.primary_key_index import read_manifest
from deltacompact.index.sort_widths import measured
from deltacompact.planning.plan import Capacity, CompactionPlan
from deltacompact.planning.planner import AdoptedSizes, plan
from deltacompact.planning.terms import SessionTerms
from deltacompact.table.ports import PartitionSnapshot, Ports
from deltacompact.tabular.formats import surely_holds


def plan_session(
    ports: Ports,
    snapshot: PartitionSnapshot,
    terms: SessionTerms,
    capacity: Capacity,
    adopted: AdoptedSizes | None = None,
) -> CompactionPlan:
    """The plan of a snapshot, with the sizes of an earlier attempt. Raises SchemaError before any work."""
    snapshot = replace(snapshot, deltas=measured(ports.store, snapshot.deltas, terms.keys))
    manifest = read_manifest(ports.store, snapshot.index) if snapshot.index else None
    decided = plan(snapshot, terms, manifest, capacity, adopted)
    if not surely_holds(terms.options.content_type, decided.stored_schema):
        from deltacompact.tabular.writing import check_writable  # a trial: most plans do without what writes files

        check_writable(decided.stored_schema, terms.options.content_type)
    return decided

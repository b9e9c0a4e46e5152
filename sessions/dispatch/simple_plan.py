"""The simplest plan: a session for each partition, small ones in groups, all of it on this machine.

7 partitions of 10 MiB, one of 40 GiB      ->  g0: seven sessions in one process     g1: one session
"""

from __future__ import annotations

from collections.abc import Callable

from deltacompact import DeltaStreamCatalog, open_catalog
from deltacompact.base.errors import NotFoundError
from deltacompact.base.model import Partition
from deltacompact.catalog.delta_stream.log import genesis_state
from sessions.base.model import Choice, Estimate, SessionPlan
from sessions.documents.instruction import Instruction

Planner = Callable[[Instruction], tuple[SessionPlan, ...]]
"""What the sessions of a document are to run on. Raises NotFoundError, InputError where that cannot be served."""

_GROUPED_BYTES_MAX = 64 << 20
_GROUP_SESSIONS_MAX = 50
_PROCESS_BYTES = 200 << 20
_HEAP_PER_BYTE = 4
_BYTES_PER_S = 50e6
_START_S = 1.0


def simple_plan(instruction: Instruction) -> tuple[SessionPlan, ...]:
    """One plan for each partition of the document, or of the table."""
    catalog = open_catalog(instruction.catalog)
    table = catalog.table(instruction.source_table_id)
    asked = instruction.partition_values
    if asked is None:
        partitions = catalog.partitions(table.table_id)
    else:
        partitions = list(dict.fromkeys(Partition.of(table.partition_keys, values) for values in asked))
    plans: list[SessionPlan] = []
    small, groups = 0, 0
    for partition in partitions:
        plan = _planned(catalog, instruction, partition, "")
        if plan.bytes > _GROUPED_BYTES_MAX:
            group, groups = f"big{groups}", groups + 1
        else:
            group, small = f"g{small // _GROUP_SESSIONS_MAX}", small + 1
        plans.append(_planned(catalog, instruction, partition, group))
    return tuple(plans)


def _planned(catalog: DeltaStreamCatalog, instruction: Instruction, partition: Partition, group: str) -> SessionPlan:
    try:
        state = catalog.state(instruction.source_table_id, partition)
    except NotFoundError:  # the session says so
        state = genesis_state()
    compacted = state.compacted
    size = sum(delta.bytes for delta in state.deltas) + (compacted.bytes if compacted else 0)
    seconds = _START_S + size / _BYTES_PER_S
    return SessionPlan(
        partition=dict(partition.values),
        group=group,
        executor=instruction.engine_settings().executor,
        node_type="local",
        workers_initial=1,
        workers_max=1,
        hash_bucket_count=0,
        rehash=False,
        rounds=1,
        delta_files=sum(len(delta.files) for delta in state.deltas),
        delta_rows=sum(delta.rows for delta in state.deltas),
        base_rows=compacted.rows if compacted else 0,
        bytes=size,
        peak_bytes=_PROCESS_BYTES + _HEAP_PER_BYTE * size,
        expected=Estimate(seconds, seconds / 2, seconds * 2),
        cost_usd=0.0,
        choices=(Choice("group", group, "small" if group.startswith("g") else "large", "by its size"),),
    )

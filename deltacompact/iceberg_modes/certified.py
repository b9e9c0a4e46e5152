"""The fingerprint of the planned snapshot, for snapshots of ours with its rows, or some of them: where it is asked for.

planned 9     tells none, 7 does      what came and went since 7 is added up
ours 10       the rows of 9           it tells the fingerprint of 9
ours 10       the rows of 9 but two   that of 9, less that of the two
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltacompact.base.fingerprint import Fingerprint
from deltacompact.iceberg.commit.proposal import same_rows
from deltacompact.iceberg.fingerprints import fingerprint_since, marked_fingerprint
from deltacompact.iceberg.marks.marking import Mark
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.steps import Call


def certified_head(call: Call[Any, Any], table: IcebergTable, state: TableState) -> Mapping[int, str]:
    """By the id of the snapshot; nothing, if it is not wanted, or the snapshot itself tells it."""
    head = state.snapshot
    if not call.settings.certify or head is None or same_rows(state.metadata, head):
        return {}
    return {head.snapshot_id: str(fingerprint_since(table, state, StateReader(table.store)))}


def certified_marks(call: Call[Any, Any], table: IcebergTable, marks: Sequence[Mark]) -> Fingerprint | None:
    """The fingerprint of the rows that marks delete; None, if it is not wanted."""
    return marked_fingerprint(table, marks) if call.settings.certify else None

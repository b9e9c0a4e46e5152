"""The fingerprint of a state's live rows: of all rows, or from that of an earlier snapshot and the rows that differ.

snapshot 7    2:de64…    recorded
         8    append     1 row came:  1:0c51…
         9    delete     1 row went:  1:f407…       of 9: 2:de64… + 1:0c51… - 1:f407…
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.iceberg.deletes.matching import FileScanTask
from deltacompact.iceberg.differing import differing
from deltacompact.iceberg.live_rows import Bits, LiveFile, LiveReader
from deltacompact.iceberg.marks.marking import Mark, with_marks
from deltacompact.iceberg.scan import BranchScan, live_files, rows_of
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.tabular.fingerprint import fingerprint_of


def live_fingerprint(table: IcebergTable, scan: BranchScan) -> Fingerprint:
    """The fingerprint of the live rows of a branch, or of a snapshot: all columns of today's schema, by field id."""
    return state_fingerprint(table, scan.state(table))


def state_fingerprint(table: IcebergTable, state: TableState) -> Fingerprint:
    """The fingerprint of the live rows of a state, which are all read."""
    live = LiveReader(table.store, table.metadata)
    return _sum_of(live, live_files(live, state))


def fingerprint_since(table: IcebergTable, state: TableState, reader: StateReader) -> Fingerprint:
    """The same, of which only rows are read that came or went since the nearest snapshot that tells its own.

    All rows are read where there is none, or where rows that went cannot be read any more.
    """
    for snapshot in table.metadata.ancestors(state.snapshot):
        recorded = Fingerprint.of_text(table.metadata.recorded_fingerprint(snapshot))
        if recorded is not None:
            with contextlib.suppress(NotFoundError, InputError, CorruptionError):
                then = reader.at(table.metadata, state.branch, snapshot)
                return recorded + changed_fingerprint(LiveReader(table.store, table.metadata), differing(then, state))
            break
    return state_fingerprint(table, state)


def marked_fingerprint(table: IcebergTable, marks: Sequence[Mark]) -> Fingerprint:
    """The fingerprint of the rows that marks delete: they lived before, and live no more."""
    before = [task for mark in marks for task in mark.of]
    after = list(with_marks(marks, table.metadata.next_sequence_number).values())
    return Fingerprint() - changed_fingerprint(LiveReader(table.store, table.metadata), (before, after))


def changed_fingerprint(live: LiveReader, sides: tuple[Sequence[FileScanTask], Sequence[FileScanTask]]) -> Fingerprint:
    """What came minus what went, of files as they were before and as they are after. Only rows that differ are read."""
    went, came = ({one.task.entry.file.path: one for one in live.files(side)} for side in sides)
    only_before = [_without(one, came.get(path)) for path, one in went.items()]
    only_after = [_without(one, went.get(path)) for path, one in came.items()]
    return _sum_of(live, only_after) - _sum_of(live, only_before)


def _without(one: LiveFile, other: LiveFile | None) -> LiveFile:
    """The rows that live here, and not there."""
    if other is None:
        return one
    bits: Bits = np.packbits(one.lives() & ~other.lives(), bitorder="little")
    return LiveFile(one.task, bits)


def _sum_of(live: LiveReader, files: Sequence[LiveFile]) -> Fingerprint:
    schema = live.metadata.schema
    return fingerprint_of(rows_of(live, live.parts(files, schema)), schema, live.metadata.table_id)

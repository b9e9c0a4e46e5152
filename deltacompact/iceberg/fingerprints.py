"""The fingerprint of a branch's live rows: read from all rows, or computed from an earlier snapshot's fingerprint.

snapshot 7    2:de64…    recorded
         8    append     1 row came:  1:0c51…
         9    delete     1 row went:  1:f407…       so that of 9 is 2:de64… + 1:0c51… - 1:f407…

If all rows of a file came or went, its own fingerprint serves if it is known (file_fingerprints.py), and the file stays
closed. Otherwise the file is read, and its fingerprint is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.iceberg.deletes.matching import FileScanTask
from deltacompact.iceberg.differing import differing
from deltacompact.iceberg.file_fingerprints import FileFingerprints
from deltacompact.iceberg.live_rows import Bits, LiveFile, LiveReader
from deltacompact.iceberg.marks.marking import Mark, with_marks
from deltacompact.iceberg.scan import BranchScan, live_files, rows_of
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.reading.parts import TablePart
from deltacompact.tabular.fingerprint import fingerprint_of


def live_fingerprint(table: IcebergTable, scan: BranchScan) -> Fingerprint:
    """The fingerprint of the live rows of a branch, or of a snapshot: all columns of today's schema, by field id."""
    return state_fingerprint(table, scan.state(table))


def state_fingerprint(table: IcebergTable, state: TableState, known: FileFingerprints | None = None) -> Fingerprint:
    """The fingerprint of all live rows of a state. Whole files in `known` are not read."""
    live = LiveReader(table.store, table.metadata)
    return _sum_of(live, live_files(live, state), known)


def fingerprint_since(
    table: IcebergTable, state: TableState, reader: StateReader, known: FileFingerprints | None = None
) -> Fingerprint:
    """The same fingerprint, from the nearest snapshot that has a recorded one and the rows that came or went since.

    Reads all rows if no snapshot has one, or if rows that went can no longer be read.
    """
    for snapshot in table.metadata.ancestors(state.snapshot):
        recorded = Fingerprint.of_text(table.metadata.recorded_fingerprint(snapshot))
        if recorded is not None:
            with contextlib.suppress(NotFoundError, InputError, CorruptionError):
                then = reader.at(table.metadata, state.branch, snapshot)
                live = LiveReader(table.store, table.metadata)
                return recorded + changed_fingerprint(live, differing(then, state), known)
            break
    return state_fingerprint(table, state, known)


def marked_fingerprint(table: IcebergTable, marks: Sequence[Mark]) -> Fingerprint:
    """The fingerprint of the rows that these marks delete."""
    before = [task for mark in marks for task in mark.of]
    after = list(with_marks(marks, table.metadata.next_sequence_number).values())
    return Fingerprint() - changed_fingerprint(LiveReader(table.store, table.metadata), (before, after))


def changed_fingerprint(
    live: LiveReader,
    sides: tuple[Sequence[FileScanTask], Sequence[FileScanTask]],
    known: FileFingerprints | None = None,
) -> Fingerprint:
    """The rows that came minus those that went. `sides`: the files before, and after. Reads only rows that differ."""
    went, came = ({file.task.entry.file.path: file for file in live.files(side)} for side in sides)
    only_before = [_without(file, came.get(path)) for path, file in went.items()]
    only_after = [_without(file, went.get(path)) for path, file in came.items()]
    return _sum_of(live, only_after, known) - _sum_of(live, only_before, known)


def _without(file: LiveFile, other: LiveFile | None) -> LiveFile:
    """The file `one` with only those rows that are dead in `other`. None: `other` does not have the file."""
    if other is None:
        return file
    bits: Bits = np.packbits(file.lives() & ~other.lives(), bitorder="little")
    return LiveFile(file.task, bits)


def _sum_of(live: LiveReader, files: Sequence[LiveFile], known: FileFingerprints | None) -> Fingerprint:
    known = known or FileFingerprints()
    skipped = {file.task.entry.file.path for file in files if file.is_whole} & known.of.keys()
    found = [known.of[path] for path in skipped]
    read = [file for file in files if file.task.entry.file.path not in skipped]
    schema = live.metadata.schema
    parts = (
        replace(part, tables=partial(_as_fingerprint, part, schema, file))
        for part, file in zip(live.parts(read, schema), read, strict=True)
    )
    for file, summed in zip(read, rows_of(live, parts), strict=True):
        fingerprint = Fingerprint.certain(summed["fingerprint"][0].as_py())
        assert fingerprint is not None
        found.append(fingerprint)
        if file.is_whole:
            known.of[file.task.entry.file.path] = fingerprint
    return sum(found, Fingerprint())


def _as_fingerprint(part: TablePart, schema: pa.Schema, file: LiveFile) -> Iterator[pa.Table]:
    """The fingerprint of a part instead of its rows, so that the thread which reads the rows adds them up."""
    yield pa.table({"fingerprint": [str(fingerprint_of(part.tables(), schema, file.task.entry.file.path))]})

"""The certificate of a compacted file: what its sources' live rows add up to is what it holds, read again.

    sources    file 7, live rows 3‥5     2:9a…        output 18, read again    4:51…
               file 8, live rows 0‥2     2:b7…        9a… + b7… = 51…

The sources are decoded a second time, row by row as a reader does, so row groups that are copied as bytes count too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from deltacompact.base.errors import CorruptionError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.model import DataFile
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import files, schemas
from deltacompact.tabular.fingerprint import fingerprint_of

if TYPE_CHECKING:
    from deltacompact.steps.materialize import LivePiece, MaterializeTask


def certified(store: ObjectStore, task: MaterializeTask, pieces: Iterable[LivePiece], written: DataFile) -> Fingerprint:
    """The fingerprint of a written file. Raises CorruptionError where it is not that of its sources' live rows."""
    schema, limits = task.schema, task.limits.reading
    expected = fingerprint_of(_sources(store, task, pieces), schema, written.path)
    slices = files.read(store, written, schema.names, limits=limits)
    found = fingerprint_of((table for _, table in slices), schema, written.path)
    if found != expected:
        raise CorruptionError(
            f"{written.path}: its rows have the fingerprint {found}, those of its sources {expected}: nothing is "
            "committed. Run the compaction again; if it fails again, look at this machine's memory and disks"
        )
    return found


def _sources(store: ObjectStore, task: MaterializeTask, pieces: Iterable[LivePiece]) -> Iterator[pa.Table]:
    for piece in pieces:
        for first, table in files.read(store, piece.file, task.schema.names, piece.rows, task.limits.reading):
            live = table.filter(pa.array(piece.lives[first : first + table.num_rows]))
            yield schemas.align(live, task.schema, task.partition, piece.file.path)

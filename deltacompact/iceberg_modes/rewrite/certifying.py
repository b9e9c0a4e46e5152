"""Tasks that add up the rows of a group: those that live in its inputs, and those of each output, read again.

inputs     a.parquet: rows 0, 2 live    2:0c…        c.parquet: rows 1, 3 live    2:f4…
output     y.parquet, read again        4:00…        0c… + f4… = 00…: the group may be committed
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.limits import ReadLimits
from deltacompact.iceberg.table.parquet_files import tables_each
from deltacompact.iceberg_modes.certified import refuse
from deltacompact.iceberg_modes.rewrite.live_slices import LiveSlices, live_tables
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.fingerprint import fingerprint_of


def of_inputs(store: ObjectStore, live: LiveSlices) -> Fingerprint:
    """The fingerprint of live rows."""
    return fingerprint_of(live_tables(store, live), live.columns, "the rows that are rewritten")


def of_output(store: ObjectStore, file: DataFile, columns: pa.Schema, reading: ReadLimits) -> Fingerprint:
    """The fingerprint of a file that was just written."""
    (slices,) = tables_each(store, [(file, columns, (0, file.rows))], reading)
    return fingerprint_of((table for _, table in slices), columns, file.path)


def refuse_other_rows(inputs: Iterable[Fingerprint], outputs: Iterable[Fingerprint | None], path: str) -> None:
    """Raises CorruptionError unless the outputs add up to the inputs, one of which is at `path`."""
    expected, found = sum(inputs, Fingerprint()), sum((output for output in outputs if output), Fingerprint())
    if found != expected:
        refuse(f"the live rows of {path} and others have the fingerprint {expected}, what was written of them {found}")

"""The certificate of a compacted file: read again, it has the fingerprint of its sources' live rows.

    sources    file 7, live rows 3‥5     2:9a…        output 18, read again    4:51…
               file 8, live rows 0‥2     2:b7…        9a… + b7… = 51…

The sources are decoded a second time, as a reader decodes them, so the check covers copied row groups, too.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import CorruptionError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.limits import ReadLimits
from deltacompact.base.model import Partition
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import files, schemas
from deltacompact.tabular.fingerprint import fingerprint_of


def certified(store: ObjectStore, written: DataFile, sources: Iterable[pa.Table], limits: ReadLimits) -> Fingerprint:
    """The fingerprint of a written file. Raises CorruptionError if its sources' live rows have another one."""
    expected = fingerprint_of(sources, written.schema, written.path)
    found = fingerprint_of_file(store, written, limits)
    if found != expected:
        raise CorruptionError(
            f"{written.path}: its rows have the fingerprint {found}, those of its sources {expected}: nothing is "
            "committed. Run the compaction again; if it fails again, look at this machine's memory and disks"
        )
    return found


def fingerprint_of_file(store: ObjectStore, written: DataFile, limits: ReadLimits) -> Fingerprint:
    """The fingerprint of a file's rows in the types of its schema: a reader may return others (date64 in ORC)."""
    slices = files.read(store, written, written.schema.names, limits=limits)
    tables = (schemas.align(table, written.schema, Partition(), written.path) for _, table in slices)
    return fingerprint_of(tables, written.schema, written.path)

"""Decides whether a session marks a few dead rows, or rewrites their files: it depends on the readers of the table.

asked for    readers     share of dead rows below which a file stays, with a deletion vector
0.3          any         0.3      the user has decided it
-            vectors     0.1      the table is published as Iceberg or Delta Lake, or its readers are declared
-            files       0        readers of plain files would see dead rows
-            -           0        unknown: readers may read plain files
"""

from __future__ import annotations

from dataclasses import replace

from deltacompact.base.model import Readers
from deltacompact.base.settings import Options

MARKED_BELOW = 0.1
"""Up to this share, dead rows cost readers less than a rewrite of the file costs the writer."""


def marking(options: Options, readers: Readers | None) -> Options:
    """The options with `rewrite_dead_fraction` decided."""
    if options.rewrite_dead_fraction is not None:
        return options
    return replace(options, rewrite_dead_fraction=MARKED_BELOW if readers is Readers.VECTORS else 0.0)

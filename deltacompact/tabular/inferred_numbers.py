"""Numbers of text files beyond int64: the parser makes the whole column doubles, and different keys become equal.

    id                        inferred         keys
    9007199254740992          double           9007199254740992.0
    9007199254740993          double           9007199254740992.0     the same: a row would be lost
    18446744073709551615      double           18446744073709551616.0

Such columns are refused as keys and sort keys. A column whose type is known is not inferred.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from deltacompact.base.errors import InputError

_EXACT = 2.0**53
"""Below this, a double holds every whole number exactly."""


def check_keys(table: pa.Table, known: pa.Schema | None, keys: Iterable[str], path: str) -> None:
    """Raises InputError naming file, row and key column of an inexact number. `known` has the types that are given."""
    for name in keys:
        if name in table.column_names and not is_known(known, name) and (row := inexact_row(table[name])) is not None:
            raise refused(f"{path}, row {row + 1:,}", name)


def is_known(known: pa.Schema | None, name: str) -> bool:
    """Whether the type of a column is given, so that the parser does not infer it."""
    return known is not None and name in known.names and not pa.types.is_null(known.field(name).type)


def inexact_row(column: pa.ChunkedArray) -> int | None:
    """The row of the first value that may stand for several whole numbers; None: there is none."""
    if not pa.types.is_float64(column.type):
        return None
    values = np.abs(column.to_numpy())  # nulls are NaN
    found = np.flatnonzero((values >= _EXACT) & np.isfinite(values))
    return int(found[0]) if len(found) else None


def refused(where: str, name: str) -> InputError:
    """The error for an inexact number in a key column."""
    return InputError(
        f"{where}: key column {name!r} was inferred as double, which cannot tell whole numbers from 2^53 on apart, so "
        "rows would be lost: write them as texts, or append Parquet with a decimal column"
    )

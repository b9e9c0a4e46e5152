"""Numbers of text files beyond int64: the parser makes doubles of the whole column, and neighbours become one.

    id                        inferred         keys
    9007199254740992          double           9007199254740992.0
    9007199254740993          double           9007199254740992.0     the same: a row would be lost
    18446744073709551615      double           18446744073709551616.0

Keys and sort keys are refused then. A column whose type is known is not inferred: there int64 has its limits.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from deltacompact.base.errors import InputError

_EXACT = 2.0**53
"""Up to here a double has every whole number."""


def check_keys(table: pa.Table, known: pa.Schema | None, keys: Iterable[str], path: str) -> None:
    """Raises InputError naming file, row and key column with such numbers. `known` are the types that were given."""
    for name in keys:
        if name in table.column_names and not is_known(known, name) and (row := inexact_row(table[name])) is not None:
            raise refused(f"{path}, row {row + 1:,}", name)


def is_known(known: pa.Schema | None, name: str) -> bool:
    """Whether the type of a column need not be inferred."""
    return known is not None and name in known.names and not pa.types.is_null(known.field(name).type)


def inexact_row(column: pa.ChunkedArray) -> int | None:
    """The first value that may stand for several whole numbers."""
    if not pa.types.is_float64(column.type):
        return None
    values = np.abs(column.to_numpy())  # nulls are NaN
    found = np.flatnonzero((values >= _EXACT) & np.isfinite(values))
    return int(found[0]) if len(found) else None


def refused(where: str, name: str) -> InputError:
    """The error for such a number."""
    return InputError(
        f"{where}: key column {name!r} was inferred as double, which cannot tell whole numbers from 2^53 on apart, so "
        "rows would be lost: write them as texts, or append Parquet with a decimal column"
    )

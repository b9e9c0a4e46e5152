"""Numbers of text files beyond int64: the parser makes the whole column doubles, and different keys become equal.

    id                        inferred         keys
    9007199254740992          double           9007199254740992.0
    9007199254740993          double           9007199254740992.0     the same: a row would be lost
    18446744073709551615      double           18446744073709551616.0

Such columns are refused as keys and sort keys, also where the column is known to be double: 9007199254740993 in a later
file would be the key 9007199254740992. A column that is known as int64 is not inferred. Others are decimals if all
their texts are whole numbers up to uint64: MySQL's BIGINT UNSIGNED keeps its digits. A column with 1.0 or 1.2e19 has
measurements, and stays double.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError

UNSIGNED = pa.decimal128(20, 0)
_EXACT = {pa.float32(): 2.0**24, pa.float64(): 2.0**53}
"""Below this, the type holds every whole number exactly."""


def check_keys(table: pa.Table, keys: Iterable[str], path: str) -> None:
    """Raises InputError naming file, row and key column of an inexact number."""
    for name in keys:
        if name in table.column_names and (row := inexact_row(table[name], table[name].type)) is not None:
            raise refused(f"{path}, row {row + 1:,}", name, table[name].type)


def is_unsigned(column: pa.ChunkedArray, parse: Callable[[pa.DataType], object]) -> bool:
    """Whether doubles are whole numbers, and only int64 is too small for them. `UNSIGNED` holds them all.

    `parse` reads their texts as another type: the doubles do not tell 12345678901234567890 from a measurement.
    """
    if not pa.types.is_floating(column.type) or not 2.0**63 <= (pc.max(column).as_py() or 0) <= 2.0**64:
        return False
    with contextlib.suppress(pa.ArrowInvalid, InputError):
        parse(pa.uint64())
        return True
    return False


def inexact_row(column: pa.ChunkedArray, type_: pa.DataType) -> int | None:
    """The row of the first value that may stand for several whole numbers in this type; None: there is none."""
    if type_ not in _EXACT or not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        return None
    values = np.abs(column.cast(pa.float64(), safe=False).to_numpy())  # nulls are NaN
    found = np.flatnonzero((values >= _EXACT[type_]) & np.isfinite(values))
    return int(found[0]) if len(found) else None


def refused(where: str, name: str, type_: pa.DataType) -> InputError:
    """The error for an inexact number in a key column."""
    return InputError(
        f"{where}: key column {name!r} is read as {type_}, which cannot tell whole numbers from "
        f"{_EXACT[type_]:,.0f} on apart, so rows would be lost: declare a decimal column when you create the "
        "table (--columns, columns=), decimal(20,0) for MySQL's BIGINT UNSIGNED, or write texts"
    )

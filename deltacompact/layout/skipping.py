"""Finds the files that may have a row for which a filter is true, by least and greatest values of columns: pure.

    day > 5 and total < 9    day       total
    a                        1 to 3    0.5 to 70.0     day is not above 5: skipped
    b                        4 to 9    only null       null is not below 9: skipped
    c                        4 to 9    unknown         opened
    d                        7 to 9    0.5 to 7.5      opened

Arrow decides: it simplifies the filter by what is certain for all rows of a file. In each column, a row has a value,
null or NaN, and `not (total < 9)` is true for NaN, even if no value is that great. So Arrow is asked once for each of
these cases in which the filter can be true: nearly always one. If a file's values are unknown, or Arrow cannot decide,
the file is opened.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc

_NAN = re.compile(r"\bnan\b")
CASES_MAX = 16
"""If a column would make more cases of a filter than this, it is ignored."""


@dataclass(frozen=True, slots=True)
class KnownColumn:
    """What is known of a column in one file.

    low, high              bounds of the values that are neither null nor NaN, in the column's type. None: unknown
    values, nulls, nans    whether the file may have such a row
    """

    low: pa.Scalar | None = None
    high: pa.Scalar | None = None
    values: bool = True
    nulls: bool = True
    nans: bool = True


KnownColumns = Mapping[str, KnownColumn]
"""By name. A column without an entry may have any value."""

ANYTHING = KnownColumn()
ONLY_NULLS = KnownColumn(values=False, nans=False)


class _ValueKind(enum.Enum):
    VALUE, NULL, NAN = enum.auto(), enum.auto(), enum.auto()


_Case = Mapping[str, _ValueKind]


def may_match(wanted: pc.Expression, columns: pa.Schema, files: Sequence[KnownColumns]) -> list[bool]:
    """For each file, whether it may have a row for which the filter is true. No file is opened."""
    if _has_nan(wanted):  # with bounds on x, Arrow takes `not (x < NaN)` for false
        return [True] * len(files)
    may = [False] * len(files)
    try:
        for case in _cases(wanted, columns, files):
            left = [place for place, file in enumerate(files) if not may[place] and _has(file, case)]
            for place in _satisfiable(wanted, columns, [_certain(columns, files[place], case) for place in left]):
                may[left[place]] = True
    except pa.ArrowException:  # the filter does not fit the columns: the reader will say so
        return [True] * len(files)
    return may


def _has_nan(wanted: pc.Expression) -> bool:
    """Whether the expression may contain NaN."""
    try:
        return bool(_NAN.search(str(wanted)))
    except UnicodeDecodeError:  # a literal of bytes
        return True


def _cases(wanted: pc.Expression, columns: pa.Schema, files: Sequence[KnownColumns]) -> list[_Case]:
    """The cases in which the filter can be true for some file."""
    cases: list[_Case] = [{}]
    for name in columns.names:
        type_ = columns.field(name).type
        if not is_bounded(type_) or not any(name in file for file in files):
            continue
        kinds = [kind for kind in _ValueKind if kind is not _ValueKind.NAN or pa.types.is_floating(type_)]
        longer = [{**case, name: kind} for case in cases for kind in kinds]
        possible = _satisfiable(wanted, columns, [_certain(columns, {}, case) for case in longer])
        if len(possible) <= CASES_MAX:
            cases = [longer[place] for place in possible]
    return cases


def _has(file: KnownColumns, case: _Case) -> bool:
    return all(_may(file.get(name, ANYTHING), kind) for name, kind in case.items())


def _may(known: KnownColumn, kind: _ValueKind) -> bool:
    return {_ValueKind.VALUE: known.values, _ValueKind.NULL: known.nulls, _ValueKind.NAN: known.nans}[kind]


def _satisfiable(wanted: pc.Expression, columns: pa.Schema, certain: Sequence[pc.Expression]) -> list[int]:
    """The places of the expressions under which the filter may be true. Each is given to Arrow as that of a file, named
    by its place, which does not exist and is not opened."""
    import pyarrow.dataset as ds  # `plan` imports this module, and must start fast
    from pyarrow.fs import LocalFileSystem

    format_, here = ds.ParquetFileFormat(), LocalFileSystem()
    files = [format_.make_fragment(str(place), here, expression) for place, expression in enumerate(certain)]
    return [int(file.path) for file in ds.FileSystemDataset(files, columns, format_, here).get_fragments(wanted)]


# What is certain of the rows of a file


def is_bounded(type_: pa.DataType) -> bool:
    """Whether Arrow compares columns of this type with bounds."""
    t = pa.types
    plain = t.is_integer(type_) or t.is_boolean(type_) or t.is_decimal128(type_) or t.is_decimal256(type_)
    moment = t.is_date32(type_) or t.is_timestamp(type_) or t.is_time(type_)
    text = t.is_string(type_) or t.is_large_string(type_) or t.is_binary(type_) or t.is_large_binary(type_)
    return bool(plain or moment or text or t.is_float32(type_) or t.is_float64(type_))


def bound_of(value: Any, type_: pa.DataType) -> pa.Scalar | None:
    """A value as a bound of a column of this type. None: it cannot be a bound, as NaN."""
    if value is None or value != value:
        return None
    try:
        return pa.scalar(bool(value) if pa.types.is_boolean(type_) else value, type_)
    except (pa.ArrowException, OverflowError):
        return None


def _certain(columns: pa.Schema, file: KnownColumns, case: _Case) -> pc.Expression:
    found = (_of_column(columns.field(name), file.get(name, ANYTHING), kind) for name, kind in case.items())
    return reduce(and_, found, pc.scalar(True))


def _of_column(field: pa.Field, known: KnownColumn, kind: _ValueKind) -> pc.Expression:
    column, low, high = pc.field(field.name), known.low, known.high
    if kind is _ValueKind.NULL:
        return column.is_null()
    if kind is _ValueKind.NAN:
        return column == pa.scalar(float("nan"), field.type)
    valid = column.is_valid() & ~pc.is_nan(column) if pa.types.is_floating(field.type) else column.is_valid()
    if low is not None and high is not None:
        if pc.greater(low, high).as_py():  # bounds that contradict each other say nothing
            return valid
        if low == high and not pa.types.is_floating(field.type):  # zeros have signs
            return column == low
    if pa.types.is_float32(field.type):
        low, high = _neighbour(low, -math.inf), _neighbour(high, math.inf)
    above = valid if low is None else valid & (column >= low)
    return above if high is None else above & (column <= high)


def _neighbour(bound: pa.Scalar | None, towards: float) -> pa.Scalar | None:
    """The next float32 after a bound. Arrow compares bounds with the doubles of a set as they are, but rows with those
    doubles as float32: 0.1 lies outside of 0.1f to 0.1f, and `isin([0.1])` is true for 0.1f."""
    if bound is None:
        return None
    with np.errstate(over="ignore"):  # infinity follows the greatest value
        return pa.scalar(np.nextafter(np.float32(bound.as_py()), np.float32(towards)), pa.float32())

"""Times in seconds and milliseconds, and the same in microseconds. Pure.

Iceberg has microseconds alone. Its readers in Spark compare the milliseconds of a Parquet file with them as they are:
a filter on such a column loses all rows. Files of a table that is published as Iceberg get microseconds.

    at     timestamp[ms]            2026 … 9999       timestamp[us]
    s.at   timestamp[s, UTC]        2026              timestamp[us, UTC]
    old    timestamp[ms]            year 300000       stays: microseconds end in the year 294247
"""

from __future__ import annotations

import pyarrow as pa

from deltacompact.base.data_file import FarValues
from deltacompact.base.model import ICEBERG
from deltacompact.tabular.conversion import is_list
from deltacompact.tabular.far_values import leaves, misfit, misfit_text


def needs_micros(publication: str | None) -> bool:
    """Whether readers of the table to which another one is published, if it is, know microseconds alone."""
    return publication is not None and publication.startswith(ICEBERG)


def is_coarse(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) and type_.unit in ("s", "ms"))


def in_micros(columns: pa.Schema, far: FarValues) -> pa.Schema:
    """The columns with microseconds for coarser units, also inside of nested columns. `far`: all far values of the
    rows; what would not fit stays as it is."""
    return pa.schema([field.with_type(_in_micros(field.name, field.type, far)) for field in columns])


def _in_micros(path: str, type_: pa.DataType, far: FarValues) -> pa.DataType:
    """`path`: of the type's leaves, as far_values.py names them."""
    t = pa.types
    if t.is_dictionary(type_):
        value = _in_micros(path, type_.value_type, far)
        return type_ if value == type_.value_type else value
    if is_coarse(type_):
        finer = pa.timestamp("us", type_.tz)
        return finer if misfit((path, finer), far) is None else type_
    if t.is_struct(type_):
        return pa.struct([field.with_type(_in_micros(f"{path}.{field.name}", field.type, far)) for field in type_])
    if t.is_map(type_):
        key, value = (
            _in_micros(f"{path}.{part}", of_part, far)
            for part, of_part in (("key", type_.key_type), ("value", type_.item_type))
        )
        return pa.map_(key, value)
    if is_list(type_):
        value = _in_micros(f"{path}[]", type_.value_type, far)
        return type_ if value == type_.value_type else pa.list_(value)
    return type_


def beyond_micros(columns: pa.Schema, far: FarValues) -> str | None:
    """The first column with a time that microseconds do not hold, in words; None: there is none."""
    for path, type_ in leaves(columns):
        micros = pa.timestamp("us")
        if pa.types.is_timestamp(type_) and (found := misfit((path, micros), far)) is not None:
            return f"column {path!r} has {misfit_text(micros, found)}"
    return None


def are_coarser(columns: pa.Schema, others: pa.Schema) -> bool:
    """Whether a column, or a part of one, has seconds or milliseconds, and has microseconds in the other columns."""
    finer = dict(leaves(others))
    return any(
        is_coarse(type_) and pa.types.is_timestamp(wanted := finer.get(path, type_)) and wanted.unit == "us"
        for path, type_ in leaves(columns)
    )

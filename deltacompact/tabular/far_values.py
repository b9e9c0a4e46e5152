"""*Far* values: values of a file that might not fit the wider type that the column gets from other files.

    at timestamp[us]    2026-11-22 … 9999-12-31      far: timestamp[ns] ends in the year 2262
    at timestamp[us]    1970-01-01 … 2026-11-22      not far: every unit holds them
    n  uint64           5 … 2^63                     far: together with signed integers, the column becomes int64
    s.tags[].at         …                            a leaf of a nested column

Few files have far values. The log records each file's, as the range of each leaf with far values: times and durations
in nanoseconds, whatever the column's unit. So nobody must read rows to know whether a file of another type fits.
Release 0.1 recorded nothing: its files are measured when a wider type comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.data_file import FarValues
from deltacompact.base.model import INT64_MAX
from deltacompact.tabular.conversion import is_list

if TYPE_CHECKING:  # who plans needs the types alone
    import pyarrow.parquet as pq

_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_INT64_MIN = -INT64_MAX - 1
Leaf = tuple[str, pa.DataType]
"""A leaf of a column: its path and type."""


def leaves(schema: pa.Schema) -> Iterator[Leaf]:
    """The leaves of all columns, in Parquet's order."""
    for field in schema:
        yield from _leaves(field.name, field.type)


def _leaves(path: str, type_: pa.DataType) -> Iterator[Leaf]:
    if isinstance(type_, pa.BaseExtensionType):
        yield from _leaves(path, type_.storage_type)
    elif pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        yield from _leaves(path, type_.value_type)
    elif pa.types.is_struct(type_):
        for field in type_:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(type_):
        yield from _leaves(f"{path}.key", type_.key_type)
        yield from _leaves(f"{path}.value", type_.item_type)
    elif is_list(type_):
        yield from _leaves(f"{path}[]", type_.value_type)
    else:
        yield path, type_


def may_be_far(type_: pa.DataType) -> bool:
    """Whether the type may be widened to a type that cannot hold all of its values."""
    return bool(pa.types.is_uint64(type_)) or (_has_unit(type_) and type_.unit != "ns")


def ranged_columns(schema: pa.Schema) -> list[str]:
    """The columns that may have far values."""
    return [field.name for field in schema if any(may_be_far(leaf) for _, leaf in _leaves(field.name, field.type))]


def fits(type_: pa.DataType, low: int, high: int) -> bool:
    """Whether a type holds a range of far values. True for types that bound no far value: there the schema decides."""
    if _has_unit(type_):
        unit = _NS[type_.unit]
        return _truncated(low, unit) >= _INT64_MIN and _truncated(high, unit) <= INT64_MAX
    return high <= INT64_MAX if pa.types.is_signed_integer(type_) else True


def misfit(leaf: Leaf, far: FarValues) -> tuple[int, int] | None:
    """The first range of a leaf's far values that its type does not hold."""
    path, type_ = leaf
    return next(((low, high) for name, low, high in far if name == path and not fits(type_, low, high)), None)


def misfit_text(type_: pa.DataType, found: tuple[int, int]) -> str:
    """The value of a range that the type does not hold, in words."""
    return far_value_text(type_, next(value for value in found[::-1] if not fits(type_, value, value)))


def far_value_text(type_: pa.DataType, value: int) -> str:
    """A far value in words."""
    if not pa.types.is_timestamp(type_):
        return f"{value} ns" if pa.types.is_duration(type_) else str(value)
    try:
        return f"{datetime.fromtimestamp(0, UTC) + timedelta(microseconds=value // 1000):%Y-%m-%d}"
    except OverflowError:
        return "a time beyond the year 9999"


def of_table(table: pa.Table) -> FarValues:
    """The far values of a table's rows."""
    found: list[tuple[str, int, int]] = []
    for name in ranged_columns(table.schema):
        for path, array in leaf_arrays(name, table[name]):
            found += _of_array(path, array)
    return merged([tuple(found)])


def of_footer(metadata: pq.FileMetaData, schema: pa.Schema) -> FarValues | None:
    """The far values by a Parquet footer; None: a row group has no statistics of a leaf that may be far."""
    found: list[tuple[str, int, int]] = []
    ranged = [(number, *leaf) for number, leaf in enumerate(leaves(schema)) if may_be_far(leaf[1])]
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)) if ranged else ():
        for number, path, type_ in ranged:
            chunk = group.column(number)
            known = chunk.statistics
            if known is not None and known.has_null_count and known.null_count == chunk.num_values:
                continue
            if known is None or not known.has_min_max or chunk.physical_type != "INT64":
                return None
            found += _far(path, type_, known.min_raw, known.max_raw)
    return merged([tuple(found)])


def merged(parts: Iterable[FarValues]) -> FarValues:
    """The ranges of several parts together."""
    ranges: dict[str, tuple[int, int]] = {}
    for path, low, high in (far for part in parts for far in part):
        known = ranges.get(path, (low, high))
        ranges[path] = min(low, known[0]), max(high, known[1])
    return tuple((path, low, high) for path, (low, high) in ranges.items())


def of_columns(far: FarValues, names: Iterable[str]) -> FarValues:
    """The far values of these columns. Leaves of nested columns are left out."""
    wanted = set(names)
    return tuple(leaf for leaf in far if leaf[0] in wanted)


def leaf_arrays(path: str, column: pa.ChunkedArray) -> Iterator[tuple[str, pa.Array]]:
    """The values of the leaves of a column, chunk by chunk."""
    for chunk in column.chunks:
        yield from _leaf_arrays(path, chunk)


def _leaf_arrays(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        yield from _leaf_arrays(path, array.storage)
    elif pa.types.is_dictionary(type_):
        yield from _leaf_arrays(path, array.dictionary)
    elif pa.types.is_run_end_encoded(type_):
        yield from _leaf_arrays(path, array.values)
    elif pa.types.is_struct(type_):
        for field, child in zip(type_, array.flatten(), strict=True):
            yield from _leaf_arrays(f"{path}.{field.name}", child)
    elif pa.types.is_map(type_):
        whole = pc.list_flatten(array.cast(pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)]))))
        yield from _leaf_arrays(path, whole)
    elif is_list(type_):
        yield from _leaf_arrays(f"{path}[]", pc.list_flatten(array))
    else:
        yield path, array


def _of_array(path: str, array: pa.Array) -> Iterator[tuple[str, int, int]]:
    """The range of the far values of a leaf."""
    type_ = array.type
    if may_be_far(type_):
        bounds = pc.min_max(array if pa.types.is_uint64(type_) else array.view(pa.int64())).as_py()
        if bounds["min"] is not None:
            yield from _far(path, type_, bounds["min"], bounds["max"])


def _far(path: str, type_: pa.DataType, low: int, high: int) -> Iterator[tuple[str, int, int]]:
    """The range of a leaf, if one of its values is far. Footers store a uint64 above int64 as a negative number."""
    if _has_unit(type_):
        low, high = low * _NS[type_.unit], high * _NS[type_.unit]
    else:
        low, high = low % 2**64, high % 2**64
    if not _INT64_MIN <= low <= high <= INT64_MAX:
        yield path, low, high


def _has_unit(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) or pa.types.is_duration(type_))


def _truncated(nanoseconds: int, unit: int) -> int:
    """The number of whole units, rounded towards zero."""
    return nanoseconds // unit if nanoseconds >= 0 else -(-nanoseconds // unit)

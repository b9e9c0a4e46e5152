"""Counts and bounds of a file's columns, from its Parquet footer: readers skip whole files by them.

    row group 0    name    least "ada"     greatest "bob"     0 nulls of 2 values
    row group 1    name    no least        no greatest        0 nulls of 2 values: one is longer than 4 kB
    the file       name    no bounds                          0 nulls of 4 values

A column has bounds only if every row group with values of it has them, and a count of nulls only if every row group
counts them: else readers would skip rows. Values are taken as they are stored, because Python's dates end with the
year 9999. A bound that is too long is cut down below and rounded up above (spec, "Manifests", fields 125 and 128).

Bounds leave out nulls and NaN. Where counts of them are missing, Iceberg's strict evaluator takes them for zero: it
deletes a whole file if `d < 1` is true of its bounds, with the NaN rows in it. So there are no bounds without counts.

    d    1.0 to 2.0, no null, 1 NaN       bounds and both counts
    d    1.0 to 2.0, no null, NaN: ?      the count of nulls, and no bounds
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq

_PACKED = {"boolean": "<?", "int": "<i", "date": "<i", "float": "<f", "double": "<d"}
_OF_TIME = ("time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_NANOSECONDS = {"milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}
_NOTHING: Mapping[int, int] = {}
_FIRST_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xE000


@dataclass(frozen=True, slots=True)
class MeasuredColumn:
    """A column of a file, and which metrics are wanted. `type` is Iceberg's text of the type ("long", "decimal(9, 2)").

    length    bounds are cut to so many characters of a string, or bytes of a binary; None: they are not cut
    """

    field_id: int
    type: str
    counts: bool = True
    bounds: bool = True
    length: int | None = None

    @property
    def may_be_nan(self) -> bool:
        return self.type in ("float", "double")


@dataclass(frozen=True, slots=True)
class Metrics:
    """Counts and bounds by field id, and where the row groups begin."""

    split_offsets: tuple[int, ...]
    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)


def metrics_of(
    footer: pq.FileMetaData,
    measured: Mapping[str, MeasuredColumn],
    nan_counts: Mapping[int, int] = _NOTHING,
    row_groups: Sequence[int] | None = None,
) -> Metrics:
    """The metrics of a file, or of some of its row groups. `measured`: the columns, by their paths in the file.

    `nan_counts`: by field id. No footer has them.
    """
    groups = [
        footer.row_group(number) for number in (range(footer.num_row_groups) if row_groups is None else row_groups)
    ]
    found = Metrics(tuple(sorted(_first_byte(group) for group in groups)))
    for place in range(footer.num_columns):
        column = footer.schema.column(place)
        if (wanted := measured.get(column.path)) is None:
            continue
        number, chunks = wanted.field_id, [group.column(place) for group in groups]
        found.column_sizes[number] = sum(chunk.total_compressed_size for chunk in chunks)
        if not wanted.counts:
            continue
        found.value_counts[number] = sum(chunk.num_values for chunk in chunks)
        statistics = [chunk.statistics for chunk in chunks if chunk.num_values]
        if all(of_group is not None and of_group.has_null_count for of_group in statistics):
            found.null_value_counts[number] = sum(of_group.null_count for of_group in statistics)
        if wanted.may_be_nan and number in nan_counts:
            found.nan_value_counts[number] = nan_counts[number]
        are_counted = number in found.null_value_counts and (not wanted.may_be_nan or number in nan_counts)
        if wanted.bounds and are_counted:
            lower, upper = _bounds(wanted, column, statistics)
            found.lower_bounds.update({} if lower is None else {number: lower})
            found.upper_bounds.update({} if upper is None else {number: upper})
    return found


def _first_byte(group: pq.RowGroupMetaData) -> int:
    """Where a row group begins: at the dictionary of its first column, or at its first page."""
    column = group.column(0)
    pages = int(column.data_page_offset)
    return min(pages, int(column.dictionary_page_offset)) if column.has_dictionary_page else pages


def _bounds(
    wanted: MeasuredColumn, column: pq.ColumnSchema, statistics: Sequence[pq.Statistics | None]
) -> tuple[bytes | None, bytes | None]:
    """The least and the greatest value in their binary form; None: unknown."""
    known = [of_group for of_group in statistics if of_group is not None and of_group.has_min_max]
    of_nulls = [of_group for of_group in statistics if of_group is not None and not of_group.num_values]
    if not known or len(known) + len(of_nulls) < len(statistics):
        return None, None
    logical = json.loads(column.logical_type.to_json())
    try:
        lower = min(_read(of_group.min_raw, wanted.type, logical, is_upper=False) for of_group in known)
        upper = max(_read(of_group.max_raw, wanted.type, logical, is_upper=True) for of_group in known)
        lower = lower if wanted.length is None else lower[: wanted.length]
        upper = _rounded_up(upper, wanted.length)
        return _binary(lower, wanted.type), None if upper is None else _binary(upper, wanted.type)
    except (ValueError, TypeError, AttributeError, struct.error):  # NaN, no UTF-8, another type than the table's
        return None, None


def _read(value: Any, type_: str, logical: Mapping[str, Any], is_upper: bool) -> Any:
    """A stored bound as a value in the column's order. Raises ValueError for a bound that is none."""
    if type_ == "string":
        return value.decode()
    if type_.startswith("decimal"):
        return value if isinstance(value, int) else int.from_bytes(value, "big", signed=True)
    if type_ in ("float", "double"):
        if value != value:
            raise ValueError("NaN is no bound")
        return value or (0.0 if is_upper else -0.0)  # Parquet: a zero may stand for the other one
    if type_ == "date" and logical["Type"] not in ("Date", "None"):
        raise ValueError(f"a date is stored as {logical['Type']}")
    if type_ in _OF_TIME:
        return _in_unit(value, logical, 1 if type_.endswith("_ns") else 1_000, is_upper)
    if logical["Type"] == "Int" and not logical["isSigned"]:
        return value % (1 << max(32, logical["bitWidth"]))
    return value


def _in_unit(value: int, logical: Mapping[str, Any], unit_ns: int, is_upper: bool) -> int:
    """A time in units of so many nanoseconds, rounded so that it stays a bound."""
    if logical["Type"] == "None":
        return value
    if "timeUnit" not in logical:
        raise ValueError(f"a time is stored as {logical['Type']}")
    nanoseconds = value * _NANOSECONDS[logical["timeUnit"]]
    return -(-nanoseconds // unit_ns) if is_upper else nanoseconds // unit_ns


def _rounded_up(value: Any, length: int | None) -> Any:
    """An upper bound of at most `length` characters or bytes: cut, then raised. None: no such bound exists."""
    if length is None or len(value) <= length:
        return value
    for end in range(length, 0, -1):
        if (greater := _successor(value[end - 1 : end])) is not None:
            return value[: end - 1] + greater
    return None


def _successor(one: str | bytes) -> str | bytes | None:
    """The next character that UTF-8 has, or the next byte."""
    if isinstance(one, bytes):
        return bytes([one[0] + 1]) if one[0] < 0xFF else None
    following = ord(one) + 1
    return chr(_AFTER_SURROGATES if following == _FIRST_SURROGATE else following) if following < 0x110000 else None


def _binary(value: Any, type_: str) -> bytes:
    """A value in Iceberg's binary form (spec, "Binary single-value serialization")."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if type_.startswith("decimal"):
        bits = (value if value >= 0 else ~value).bit_length()
        found: bytes = value.to_bytes(bits // 8 + 1, "big", signed=True)
        return found
    return struct.pack(_PACKED.get(type_, "<q"), value)

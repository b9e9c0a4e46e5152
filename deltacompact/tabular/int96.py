"""Timestamps of 12 bytes (INT96), which old writers store: in which unit those of a file are read. pyarrow wraps.

valid_to   9999-12-31                       in microseconds; nanoseconds end in 2262, and would be 1816-03-29
at         2026-11-22 12:00:00.123456789    in nanoseconds
both in one file                            refused: no unit holds both

The values decide when a file is appended, unless Spark wrote it: its timestamps have microseconds. Older builds
recorded nanoseconds for every file. Readers of these look for values that do not fit.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact.base.errors import InputError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.tabular import far_values
from deltacompact.tabular.parquet_read import INT96_UNIT, Described, batches, stored_schema

_NANOSECONDS = pa.timestamp("ns")
_SPARK, _WRITER_OF_SPARK = b"org.apache.spark.version", "parquet-mr "
"""Who writes a Spark file's rows, and what it says of Spark. Others keep the latter when they write its rows again."""


def is_in(metadata: pq.FileMetaData) -> bool:
    """Whether a file has such timestamps."""
    columns = (metadata.schema.column(number) for number in range(metadata.num_columns))
    return any(column.physical_type == "INT96" for column in columns)


def unit_of(source: pa.NativeFile, parquet: Described) -> str:
    """The unit that holds all values of a new file. Raises InputError naming two columns if none does.

    Reads all such columns, twice, of files that Spark did not write.
    """
    if _is_by_spark(parquet.metadata):
        return INT96_UNIT
    names = list(_in_nanoseconds(source, parquet))
    fine, far, rows = None, None, (0, parquet.metadata.num_rows)
    both = [batches(source, parquet, names, *rows, READ_LIMITS, unit) for unit in ("ns", "us")] if names else [(), ()]
    for (_, nanoseconds), (_, microseconds) in zip(*both, strict=True):
        cut = (name for name in names if _cuts(microseconds[name], nanoseconds[name]))
        fine, far = fine or next(cut, None), far or _far(microseconds)
    if fine and far:
        column, value = far
        raise InputError(
            f"column {fine!r} has nanoseconds, and column {column!r} has the value {value}, beyond all nanoseconds: no "
            "unit holds both. Write the file again without timestamps of 12 bytes (INT96)"
        )
    return "ns" if fine else INT96_UNIT


def _is_by_spark(metadata: pq.FileMetaData) -> bool:
    return _SPARK in (metadata.metadata or {}) and str(metadata.created_by).startswith(_WRITER_OF_SPARK)


def recorded_unit(schema: pa.Schema) -> str:
    """The unit of a file that the log has with these types. Without nanoseconds in it, it is not read in these."""
    fine = any(pa.types.is_timestamp(type_) and type_.unit == "ns" for _, type_ in far_values.leaves(schema))
    return "ns" if fine else INT96_UNIT


def recorded_in_nanoseconds(source: pa.NativeFile, parquet: Described, wanted: pa.Schema) -> list[str]:
    """Those of the wanted columns, with the log's types, that have such timestamps in nanoseconds."""
    if recorded_unit(wanted) == INT96_UNIT:
        return []
    types = _in_nanoseconds(source, parquet)
    return [column.name for column in wanted if column.type == types.get(column.name)]


def check(
    source: pa.NativeFile, parquet: Described, names: list[str], rows: tuple[int, int], limits: ReadLimits
) -> None:
    """Raise ArrowInvalid naming a column if nanoseconds do not hold its values in these rows."""
    for _, microseconds in batches(source, parquet, names, *rows, limits):
        if (far := _far(microseconds)) is not None:
            column, value = far
            raise pa.ArrowInvalid(
                f"column {column!r} is timestamp[ns] in the log of an earlier release, which does not hold {value}: "
                "restate the partition from its sources, of which pyarrow reads timestamps of 12 bytes (INT96) with "
                "coerce_int96_timestamp_unit='us'"
            )


def _in_nanoseconds(source: pa.NativeFile, parquet: Described) -> dict[str, pa.DataType]:
    """The columns with such timestamps, and their types in nanoseconds."""
    if not is_in(parquet.metadata):
        return {}
    both = zip(*(stored_schema(source, parquet, unit) for unit in ("ns", "us")), strict=True)
    return {column.name: column.type for column, other in both if column.type != other.type}


def _cuts(microseconds: pa.ChunkedArray, nanoseconds: pa.ChunkedArray) -> bool:
    """Whether microseconds lack digits. Beyond 2262 both wrap alike, so that digits alone count.

    Only times are compared: a NaN beside them in a struct is equal to nothing.
    """
    leaves = (far_values.leaf_arrays("", column) for column in (microseconds, nanoseconds))
    return any(
        fine.type == _NANOSECONDS and not coarse.cast(_NANOSECONDS, safe=False).equals(fine)
        for (_, coarse), (_, fine) in zip(*leaves, strict=True)
    )


def _far(microseconds: pa.Table) -> tuple[str, str] | None:
    """A column, and a value of it that nanoseconds do not hold."""
    for path, low, high in far_values.of_table(microseconds):
        value = high if far_values.fits(_NANOSECONDS, low, low) else low
        return path, far_values.far_value_text(_NANOSECONDS, value)
    return None

"""The types in which text is parsed, and what is said of a value that has another one.

long                as it is
map, in JSON        null: a column with values is refused
timestamp[s]        if a value has a fraction, in microseconds, and then in nanoseconds
struct<>            left out: it has had no value yet, so the parser finds its fields
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from math import isfinite

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType
from deltacompact.tabular import column_types
from deltacompact.tabular.conversion import is_list

_TIME = re.compile(r"\d{4,}-\d\d-\d\d")
_COARSE = re.compile(r"(timestamp|time32|time64)\[")


def parsed_type(type_: pa.DataType, content_type: ContentType) -> pa.DataType:
    """The type to parse a column in, which the parser supports. It is cast to the schema's own type afterwards.

    Null where the text cannot hold a value: maps in JSON, all that is nested in CSV. The column may be absent, or null.
    """
    t = pa.types
    is_json = content_type is ContentType.JSON
    if is_json and is_list(type_):
        return pa.list_(parsed_type(type_.value_type, content_type))
    if is_json and t.is_struct(type_):  # one without fields, too: the text has `{}`
        return pa.struct([(field.name, parsed_type(field.type, content_type)) for field in type_])
    if t.is_map(type_) or (not is_json and t.is_nested(type_)):
        return pa.null()
    if (plain := column_types.plain_type(type_)) != type_:
        return parsed_type(plain, content_type)
    if is_json and t.is_duration(type_):
        return pa.int64()
    if is_json and t.is_fixed_size_binary(type_):
        return pa.binary()
    if t.is_float16(type_):
        return pa.float32()
    if t.is_large_string(type_) or (is_json and (t.is_date(type_) or t.is_time(type_))):
        return pa.string()
    return type_


def time_type(texts: pa.ChunkedArray) -> pa.DataType | None:
    """The type of these texts as times, which are in order as texts only if all have one zone and as many digits.

    None: some of them is no time, or only some have a zone.
    """
    for type_ in (pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in ("us", "ns")):
        with contextlib.suppress(pa.ArrowInvalid):
            texts.cast(type_)
            return type_
    return None


def microseconds(times: pa.ChunkedArray) -> pa.DataType | None:
    """The type for times with a fraction, of which the parser of CSV makes nanoseconds; None: they need these.

    The year 9999 fits no nanoseconds.
    """
    if pa.types.is_timestamp(times.type) and times.type.unit == "ns":
        with contextlib.suppress(pa.ArrowInvalid):
            times.cast(type_ := pa.timestamp("us", times.type.tz))
            return type_
    return None


def with_values(type_: pa.DataType) -> pa.DataType | None:
    """The type without the parts that have had no value: nulls, structs without fields. None: nothing is left."""
    if pa.types.is_null(type_):
        return None
    if pa.types.is_struct(type_):
        fields = [field.with_type(known) for field in type_ if (known := with_values(field.type)) is not None]
        return pa.struct(fields) if fields else None
    if is_list(type_) and not pa.types.is_fixed_size_list(type_):
        item = with_values(type_.value_type)
        return None if item is None else type_ if item == type_.value_type else pa.list_(item)
    return type_


def in_finer_units(types: dict[str, pa.DataType], parse: Callable[[dict[str, pa.DataType]], pa.Table]) -> pa.Table:
    """What `parse` finds with these types; with finer times, if a value has more digits than its column.

    The parser infers seconds where no value has a fraction, and a later file may have some. Only the family in the
    error gets finer: the year 9999 has no nanoseconds.
    """
    try:
        return parse(types)
    except (pa.ArrowInvalid, InputError) as error:
        if (coarse := _COARSE.search(str(error))) is not None:
            family = pa.types.is_timestamp if coarse[1] == "timestamp" else pa.types.is_time
            for unit in ("us", "ns"):
                finer = {name: _in_unit(type_, unit, family) for name, type_ in types.items()}
                if finer != types:
                    try:
                        return in_finer_units(finer, parse)
                    except (pa.ArrowInvalid, InputError) as other:
                        if _COARSE.search(str(other)) is None:  # the times fit now, another value does not
                            raise
        raise


def _in_unit(type_: pa.DataType, unit: str, family: Callable[[pa.DataType], bool]) -> pa.DataType:
    """The type with times of the family in at least this unit, at every depth."""
    if family(type_):
        return column_types.widened(
            type_, pa.timestamp(unit, type_.tz) if pa.types.is_timestamp(type_) else pa.time64(unit)
        )
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_in_unit(field.type, unit, family)) for field in type_])
    return pa.list_(_in_unit(type_.value_type, unit, family)) if is_list(type_) else type_


def not_of_type(name: str, type_: str, value: str | None) -> str:
    """What is said of a value that is not of its column's type. None: a number with finer digits than its decimals."""
    if type_ == "null":  # see `parsed_type`
        return f"column {name!r} is nested in earlier files, and {value} in CSV cannot be read: write JSON or Parquet"
    shown, helps = value or "a number with more digits after the point", _declaration(type_, value or "0.1")
    return f"column {name!r} is {type_} in earlier rows or files, and {shown} is not{helps}"


def _declaration(type_: str, value: str) -> str:
    """What helps, if the value is of the kind that earlier files have made too narrow: a number, or a time."""
    value = value.strip("'\"")
    is_time = type_.startswith(("date", "timestamp")) and _TIME.match(value)
    if is_time or (type_.startswith(("int", "uint", "decimal")) and _is_number(value)):
        return ": declare a wider type when you create the table (--columns, columns=)"
    return ""


def _is_number(value: str) -> bool:
    with contextlib.suppress(ValueError):
        return isfinite(float(value))
    return False

"""Turns rows into Python values that can be printed. Times that Python cannot represent become texts.

    timestamp[us]    2024-01-02 03:04:05.000006        a datetime, as pyarrow makes it
    timestamp[ns]    2024-01-02 03:04:05.000006007     a text: a datetime ends with microseconds
    time64[ns]       03:04:05.000006007
    duration[ns]     1 day, 0:00:00.000000007
    timestamp[s]     +20000-01-01 00:00:00             a text: a datetime ends with the year 9999
    string           stra\\xdfe                         other writers' text may be no UTF-8: such bytes are spelled

pyarrow would turn nanoseconds into Timestamps of pandas, and fail without pandas.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from deltacompact.tabular import column_types

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_S = 86400
_YEARS_400_DAYS = 146097
"""After 400 years the calendar begins again."""


def printed_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch, each with the values by column."""
    columns = [_values(column) for column in batch.columns]
    for values in zip(*columns, strict=True) if columns else [()] * batch.num_rows:
        yield dict(zip(batch.schema.names, values, strict=True))


def _values(column: pa.Array) -> list[Any]:
    if not _has_nanoseconds(column.type):
        try:
            return list(column.to_pylist())
        except (OverflowError, ValueError):  # beyond what datetime can hold, or no UTF-8
            pass
    return [_value(scalar) for scalar in column]


def _has_nanoseconds(type_: pa.DataType) -> bool:
    if getattr(type_, "unit", None) == "ns":
        return True
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return _has_nanoseconds(type_.value_type)
    return any(_has_nanoseconds(type_.field(number).type) for number in range(type_.num_fields))


def _value(scalar: pa.Scalar) -> Any:
    type_ = scalar.type
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.ExtensionScalar):
        return _value(scalar.value)
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_) or pa.types.is_union(type_):
        return _value(scalar.value)
    if pa.types.is_struct(type_):
        return {name: _value(scalar[number]) for number, name in enumerate(type_.names)}
    if pa.types.is_map(type_):
        return [(_value(entry["key"]), _value(entry["value"])) for entry in scalar.values]
    if isinstance(scalar, pa.ListScalar):
        return [_value(element) for element in scalar.values]
    if pa.types.is_timestamp(type_):
        return _timestamp(scalar.value, _PER_SECOND[type_.unit], scalar)
    if pa.types.is_date(type_):
        return _date(scalar.value // (_DAY_S * 1000) if pa.types.is_date64(type_) else scalar.value)
    if pa.types.is_time(type_):
        return _clock(scalar.value, _PER_SECOND[type_.unit])
    if pa.types.is_duration(type_):
        return _duration(scalar.value, _PER_SECOND[type_.unit])
    if isinstance(scalar, pa.BinaryScalar) and column_types.is_string(type_):
        return scalar.as_buffer().to_pybytes().decode(errors="backslashreplace")
    return scalar.as_py()


def _timestamp(value: int, per_second: int, scalar: pa.Scalar) -> str:
    seconds, fraction = divmod(value, per_second)
    zone = ""
    if scalar.type.tz is not None:
        offset_s = _offset_s(seconds, scalar.type.tz)
        seconds += offset_s
        zone = _zone(offset_s)
    days, second = divmod(seconds, _DAY_S)
    return f"{_date(days)} {_clock(second * per_second + fraction, per_second)}{zone}"


def _zone(offset_s: int) -> str:
    """The offset as Python prints it: with seconds only if there are some, as in Monrovia until 1972."""
    size = abs(offset_s)
    seconds = f":{_two(size % 60)}" if size % 60 else ""
    return f"{'-' if offset_s < 0 else '+'}{_two(size // 3600)}:{_two(size // 60 % 60)}{seconds}"


def _offset_s(seconds: int, zone: str) -> int:
    """The offset of a zone from UTC at this time. 0 in years beyond the calendars of zones."""
    try:
        instant = pa.scalar(seconds, pa.timestamp("s", zone)).as_py()
    except (OverflowError, ValueError):
        return 0
    offset: datetime.timedelta = instant.utcoffset()
    return round(offset.total_seconds())


def _date(days: int) -> str:
    """The date so many days after 1970-01-01, in any year. Years beyond 9999 have a sign, as in ISO 8601."""
    cycles, day = divmod(days, _YEARS_400_DAYS)
    date = datetime.date(1970, 1, 1) + datetime.timedelta(day)
    year = date.year + 400 * cycles
    text = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{text}-{_two(date.month)}-{_two(date.day)}"


def _clock(value: int, per_second: int) -> str:
    seconds, fraction = divmod(value, per_second)
    hours = f"{_two(seconds // 3600)}:{_two(seconds // 60 % 60)}:{_two(seconds % 60)}"
    return hours + _fraction(fraction, per_second)


def _duration(value: int, per_second: int) -> str:
    """As Python prints a timedelta: days may be negative, the rest is not."""
    seconds, fraction = divmod(value, per_second)
    days, second = divmod(seconds, _DAY_S)
    clock = f"{second // 3600}:{_two(second // 60 % 60)}:{_two(second % 60)}{_fraction(fraction, per_second)}"
    return f"{days} day{'' if abs(days) == 1 else 's'}, {clock}" if days else clock


def _fraction(value: int, per_second: int) -> str:
    """Six digits, as Python prints them; nine if the value has nanoseconds; none if it is 0."""
    nanoseconds = value * (10**9 // per_second)
    if nanoseconds == 0:
        return ""
    return f".{nanoseconds:09}" if nanoseconds % 1000 else f".{nanoseconds // 1000:06}"


def _two(number: int) -> str:
    return f"{number:02}"

"""The types of columns: what two types have in common, and how a type is stored.

    int32, uint16                       widened: int32                 int64, string       widened: none
    struct<a: int32>, struct<b: date>   widened: struct<a, b>          list, large_list    widened: large_list
    string_view, run-end encoded        stored: string, the values     dictionary          stored: a dictionary
    json, uuid                          plain: string, binary(16)

A wider type holds each value of both. So time zones, scales of decimals, and texts beside numbers never mix.
"""

from __future__ import annotations

import pyarrow as pa

from deltacompact.tabular.conversion import is_list, without_view

_DIGITS_OF_128_BITS = 38
_TIME_UNITS = ("s", "ms", "us", "ns")
_SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_UNSIGNED = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


def widened(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type that can hold the values of both, or None."""
    if a == b:
        return a
    if pa.types.is_null(a) or pa.types.is_null(b):
        return b if pa.types.is_null(a) else a
    plain_a, plain_b = plain_type(a), plain_type(b)
    if (plain_a, plain_b) != (a, b):
        return widened(plain_a, plain_b)
    for family in (_integers, _floats, _decimals, _timestamps, _times, _strings, _binaries, _nested):
        if (wider := family(a, b)) is not None:
            return wider
    return None


def _integers(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_integer(a) and pa.types.is_integer(b)):
        return None
    if pa.types.is_unsigned_integer(a) == pa.types.is_unsigned_integer(b):
        family = _UNSIGNED if pa.types.is_unsigned_integer(a) else _SIGNED
        return family[max(a.bit_width, b.bit_width)]
    signed, unsigned = (b, a) if pa.types.is_unsigned_integer(a) else (a, b)
    return _SIGNED[max(signed.bit_width, min(64, unsigned.bit_width * 2))]  # casting refuses a uint64 above int64


def _floats(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_floating(a) and pa.types.is_floating(b):
        return a if a.bit_width > b.bit_width else b
    return None


def _decimals(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_decimal(a) and pa.types.is_decimal(b)) or a.scale != b.scale:
        return None
    return decimal_of(max(a.precision, b.precision), a.scale)


def _timestamps(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_timestamp(a) and pa.types.is_timestamp(b) and (a.tz is None) == (b.tz is None):
        return pa.timestamp(_finer(a.unit, b.unit), a.tz)
    if pa.types.is_duration(a) and pa.types.is_duration(b):
        return pa.duration(_finer(a.unit, b.unit))
    return None


def _times(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_time(a) and pa.types.is_time(b):
        unit = _finer(a.unit, b.unit)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if pa.types.is_date(a) and pa.types.is_date(b):
        return pa.date32()  # casting refuses a date64 that is not a whole day
    return None


def _finer(a: str, b: str) -> str:
    return _TIME_UNITS[max(_TIME_UNITS.index(a), _TIME_UNITS.index(b))]


def _strings(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if is_string(a) and is_string(b):
        return pa.large_string() if pa.types.is_large_string(a) or pa.types.is_large_string(b) else pa.string()
    return None


def _binaries(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if is_binary(a) and is_binary(b):
        return pa.large_binary() if pa.types.is_large_binary(a) or pa.types.is_large_binary(b) else pa.binary()
    return None


def _nested(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if is_list(a) and is_list(b):
        return _lists(a, b)
    if pa.types.is_map(a) and pa.types.is_map(b):
        key, item = widened(a.key_type, b.key_type), widened(a.item_type, b.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    return _structs(a, b) if pa.types.is_struct(a) and pa.types.is_struct(b) else None


def _lists(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Two lists of one fixed size stay so. Other lists become large lists if one of the two is large."""
    item = widened(a.value_type, b.value_type)
    if item is None:
        return None
    if pa.types.is_fixed_size_list(a) and pa.types.is_fixed_size_list(b) and a.list_size == b.list_size:
        return pa.list_(item, a.list_size)
    return pa.large_list(item) if pa.types.is_large_list(a) or pa.types.is_large_list(b) else pa.list_(item)


def _structs(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The union of the children by name. If a name occurs twice, both types need the same names in the same order."""
    names = [[field.name for field in type_] for type_ in (a, b)]
    if any(len(set(children)) < len(children) for children in names):
        if names[0] != names[1]:
            return None
        children = [(f.name, widened(f.type, g.type)) for f, g in zip(a, b, strict=True)]
    else:
        types: dict[str, pa.DataType | None] = {field.name: field.type for field in a}
        for field in b:
            types[field.name] = widened(types.get(field.name, field.type), field.type)
        children = list(types.items())
    return None if any(type_ is None for _, type_ in children) else pa.struct(children)


def grown(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """The known type, with what only the other one has at any depth: fields of structs, and types instead of null.

    struct<a: date, b: null>, struct<a: string, b: int64, c: double>  ->  struct<a: date, b: int64, c: double>
    """
    if known == found or pa.types.is_null(known):
        return found
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        types = {field.name: field.type for field in found}
        own = [field.with_type(grown(field.type, types.get(field.name, field.type))) for field in known]
        names = {field.name for field in known}
        return pa.struct([*own, *(field for field in found if field.name not in names)])
    if is_list(known) and is_list(found):
        item = known.value_field.with_type(grown(known.value_type, found.value_type))
        if pa.types.is_fixed_size_list(known):
            return pa.list_(item, known.list_size)
        return pa.large_list(item) if pa.types.is_large_list(known) else pa.list_(item)
    return known


def lacks_types(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the stored type, or a part of it, is null where the wanted one is not."""
    t = pa.types
    if t.is_null(stored):
        return not t.is_null(wanted)
    if t.is_struct(stored) and t.is_struct(wanted):
        types = {field.name: field.type for field in wanted}
        return any(lacks_types(field.type, types.get(field.name, field.type)) for field in stored)
    if t.is_map(stored) and t.is_map(wanted):
        return lacks_types(stored.key_type, wanted.key_type) or lacks_types(stored.item_type, wanted.item_type)
    return is_list(stored) and is_list(wanted) and lacks_types(stored.value_type, wanted.value_type)


def stored_type(type_: pa.DataType) -> pa.DataType:
    """The type of a column in tables and compacted files.

    Views and run-end encoding become plain types, because few functions of Arrow accept them. A dictionary stays a
    dictionary, with indices wide enough for several files, but unordered, because the dictionaries of several files
    have no common order. A nested dictionary becomes its values, because few formats can hold it. Children are
    nullable. A struct without fields, which JSON has for `{}`, becomes null, and a list of the fixed size 0 a list of
    any size: Parquet cannot hold them. PyIceberg reads decimals of 128 bits only, and no lists of structs of a fixed
    size: other decimals become those where the digits fit, such lists plain lists.
    """
    t = pa.types
    if t.is_primitive(type_) or t.is_string(type_):  # the most frequent types skip the many tests below
        return type_
    if isinstance(type_, pa.BaseExtensionType):
        storage = stored_type(type_.storage_type)
        return type_ if storage == type_.storage_type else storage
    if t.is_run_end_encoded(type_):
        return stored_type(type_.value_type)
    if t.is_dictionary(type_):
        values = stored_type(type_.value_type)
        if t.is_nested(values) or t.is_null(values) or plain_type(values) != values:
            return values
        return pa.dictionary(pa.int64() if type_.index_type.bit_width == 64 else pa.int32(), values)
    if t.is_decimal(type_):
        return decimal_of(type_.precision, type_.scale)
    if t.is_struct(type_):
        return pa.struct([pa.field(field.name, _inside(field.type)) for field in type_]) if len(type_) else pa.null()
    if t.is_map(type_):
        return pa.map_(_inside(type_.key_type), _inside(type_.item_type))
    if is_list(type_):
        item = _inside(type_.value_type)
        if t.is_fixed_size_list(type_) and type_.list_size and not t.is_struct(item):
            return pa.list_(item, type_.list_size)
        return pa.large_list(item) if t.is_large_list(type_) or t.is_large_list_view(type_) else pa.list_(item)
    return without_view(type_)


def _inside(type_: pa.DataType) -> pa.DataType:
    """The stored type of a child."""
    stored = stored_type(type_)
    return stored.value_type if pa.types.is_dictionary(stored) else stored


def decimal_of(precision: int, scale: int) -> pa.DataType:
    """The type of stored decimals."""
    return (pa.decimal128 if precision <= _DIGITS_OF_128_BITS else pa.decimal256)(precision, scale)


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values inside of a dictionary or an extension type."""
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    return stored_type(type_)


def values_type(type_: pa.DataType) -> pa.DataType:
    """As `plain_type`, but a type that is plain already stays the same object: its fields keep their metadata."""
    plain = plain_type(type_)
    return type_ if plain == type_ else plain


def is_variable(type_: pa.DataType) -> bool:
    """Whether values of the type may have any size."""
    if type_.num_fields:
        lists = not (pa.types.is_struct(type_) or pa.types.is_fixed_size_list(type_))
        return lists or any(is_variable(type_.field(child).type) for child in range(type_.num_fields))
    return has_lengths(plain_type(type_))


def has_lengths(type_: pa.DataType) -> bool:
    """Whether values of this plain type vary in length: strings, and binaries without a fixed size."""
    return is_string(type_) or (is_binary(type_) and not pa.types.is_fixed_size_binary(type_))


def is_string(type_: pa.DataType) -> bool:
    """Whether the type is a string of any layout."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def is_number(type_: pa.DataType | None) -> bool:
    t = pa.types
    return type_ is not None and bool(t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_))


def is_binary(type_: pa.DataType) -> bool:
    """Whether the type is a binary of any layout. Decimals are not binaries."""
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_binary_view(type_)
        or (pa.types.is_fixed_size_binary(type_) and not pa.types.is_decimal(type_))
    )

"""Converts a column to another type without changing its values: pyarrow's casts, and the casts that it lacks.

    struct<b: int32, a: string>      ->  struct<a, b: int64, c>        children by name, missing children are null
    list<dictionary<string_view>>    ->  list<string>                  at any depth
    string                           ->  dictionary<int32, string>
    struct<>                         ->  null
    extension<json, string_view>     ->  string                        converts the storage values
    string 10:00:00                  ->  time64                        by way of a timestamp

The functions work array by array, never row by row. They raise pyarrow's own errors for values that do not fit.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

Convert = Callable[[pa.Array, pa.DataType], pa.Array]
"""Converts an array to a type."""


def converted(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The values in the type. Raises ArrowInvalid or ArrowNotImplementedError if a value does not fit."""
    t = pa.types
    if array.type == type_:
        return array
    if array.null_count == len(array):  # nulls fit every type
        return pa.nulls(len(array), type_)
    if isinstance(array.type, pa.BaseExtensionType):
        return converted(array.storage, type_)
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, converted(array, type_.storage_type))
    if t.is_run_end_encoded(array.type):
        from deltacompact.base import compute as pc

        return converted(pc.run_end_decode(array), type_)
    if t.is_dictionary(type_):
        return _into_dictionary(array, type_)
    if t.is_dictionary(array.type):
        # `take` does not accept views, so make the dictionary plain first: it is small.
        return converted(converted(array.dictionary, without_view(array.type.value_type)).take(array.indices), type_)
    if t.is_struct(array.type) and not len(array.type) and t.is_null(type_):
        return pa.nulls(len(array))
    if t.is_struct(array.type) and t.is_struct(type_):
        return _struct(array, type_)
    if t.is_map(array.type) and t.is_map(type_):
        return remapped(array, type_, converted, converted)
    if is_list(array.type) and is_list(type_):
        return relisted(array, type_, converted)
    if t.is_string(array.type) and t.is_time(type_):
        return _times_of_day(array, type_)
    return array.cast(type_)


def converted_column(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """A column's values in the type. Raises what `converted` raises."""
    if column.type == type_:
        return column
    return pa.chunked_array([converted(chunk, type_) for chunk in column.chunks], type_)


def is_list(type_: pa.DataType) -> bool:
    """Whether the type is a list of any layout. A map is not a list."""
    t = pa.types
    tests = (t.is_list, t.is_large_list, t.is_fixed_size_list, t.is_list_view, t.is_large_list_view)
    return any(test(type_) for test in tests)


def without_view(type_: pa.DataType) -> pa.DataType:
    """The plain type of a string view or binary view; any other type unchanged."""
    if pa.types.is_string_view(type_):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(type_) else type_


def _times_of_day(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """The texts as times of day. Raises ArrowInvalid with the first text that is none."""
    from deltacompact.base import compute as pc

    some_day = "1970-01-01 "
    try:
        return pc.binary_join_element_wise(some_day, texts, "").cast(pa.timestamp(type_.unit)).cast(type_)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(str(error).replace(some_day, "").partition(" as a scalar")[0]) from error


def _into_dictionary(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The array as a dictionary array. Nulls are in its indices, where most readers expect them."""
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count == 0:
        encoded, values = array, converted(array.dictionary, type_.value_type)
    else:
        encoded = converted(array, type_.value_type).dictionary_encode()
        values = encoded.dictionary
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(type_.index_type), values, ordered=type_.ordered)


def _struct(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A struct with its children matched by name. Children with the same name are matched by index."""
    known, children = array.flatten(), []
    for number, field in enumerate(type_):
        found = array.type.get_all_field_indices(field.name)
        if len(found) > 1:
            found = [number]
        children.append(converted(known[found[0]], field.type) if found else pa.nulls(len(array), field.type))
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=null_mask(array))


def remapped(array: pa.Array, type_: pa.DataType, key: Convert, item: Convert) -> pa.Array:
    """A map of this type. The two functions convert its keys and its items."""
    from deltacompact.base import compute as pc

    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[len(array)].as_py()
    keys = key(array.keys.slice(first, last - first), type_.key_type)
    items = item(array.items.slice(first, last - first), type_.item_type)
    mask = null_mask(array)
    return pa.MapArray.from_arrays(pc.subtract(offsets, first).cast(pa.int32()), keys, items, type_, mask=mask)


def relisted(array: pa.Array, type_: pa.DataType, item: Convert) -> pa.Array:
    """A list of this type. The function converts its items."""
    if pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        if not pa.types.is_fixed_size_list(array.type):  # some formats return fixed-size lists as plain lists
            array = array.cast(pa.list_(array.type.value_field, size))
        values = array.values.slice(array.offset * size, len(array) * size)
        return pa.FixedSizeListArray.from_arrays(item(values, type_.value_type), type=type_, mask=null_mask(array))
    from deltacompact.base import compute as pc

    large = pa.types.is_large_list(type_)
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths).cast(pa.int64() if large else pa.int32())
    offsets = pa.concat_arrays([pa.array([0], ends.type), ends])
    items = item(array.flatten(), type_.value_type)
    make = pa.LargeListArray if large else pa.ListArray
    return make.from_arrays(offsets, items, type=type_, mask=null_mask(array))


def with_own_nulls(array: pa.Array, type_: pa.DataType | None = None) -> pa.Array:
    """The same values; below a null struct, every child is null too, at any depth."""
    if pa.types.is_struct(array.type):
        children = [with_own_nulls(child) for child in array.flatten()]  # flattening gives them their parent's nulls
        return pa.StructArray.from_arrays(children, fields=list(array.type), mask=null_mask(array))
    if pa.types.is_map(array.type):
        return remapped(array, array.type, with_own_nulls, with_own_nulls)
    return relisted(array, array.type, with_own_nulls) if is_list(array.type) else array


def null_mask(array: pa.Array) -> pa.Array | None:
    """True for each null. None: no value is null."""
    return array.is_null() if array.null_count else None

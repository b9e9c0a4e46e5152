"""Counts the bytes of a table's rows in memory, and in a row group made of these rows.

    rows 0..3 of a string column           3 offsets and the rows' characters, whatever lies around them
    rows 0..3 of a dictionary of 100,000   3 indices, and the dictionary or the rows' values: the smaller

Arrow's `nbytes` does not do: for each slice it counts the whole dictionary, or a part by a rule of its own.
"""

from __future__ import annotations

import contextlib

import pyarrow as pa

from deltacompact.base import compute as pc

_OFFSET = 9
"""Bytes of one value's offset and null bit."""


def of_table(table: pa.Table, with_dictionaries: bool = True) -> int:
    """The bytes of a table. `with_dictionaries`: the format keeps dictionaries. Otherwise every occurrence counts."""
    return sum(_of_array(chunk, with_dictionaries) for column in table.columns for chunk in column.chunks)


def widest(table: pa.Table) -> int:
    """An upper bound of the widest row's bytes: the widest values of all columns together."""
    return sum(max((_widest(chunk) for chunk in column.chunks), default=0) for column in table.columns)


def _widest(array: pa.Array) -> int:
    type_ = array.type
    if not len(array):
        return 0
    if pa.types.is_dictionary(type_):
        return _of_array(array, True)  # even one row brings the whole dictionary
    if isinstance(array, pa.ExtensionArray):
        return _widest(array.storage)
    if pa.types.is_struct(type_):
        return 1 + sum(map(_widest, array.flatten()))
    with contextlib.suppress(pa.ArrowNotImplementedError):
        return _OFFSET + _longest(pc.binary_length(array))
    with contextlib.suppress(pa.ArrowNotImplementedError):
        return _OFFSET + _longest(pc.list_value_length(array)) * _widest(array.flatten())
    whole = _of_array(array, True)
    return -(-whole // len(array)) if pa.types.is_primitive(type_) or pa.types.is_decimal(type_) else whole


def _longest(lengths: pa.Array) -> int:
    return int(pc.max(lengths).as_py() or 0)


def has_dictionary(type_: pa.DataType) -> bool:
    """Whether the type contains a dictionary, at any depth."""
    if pa.types.is_dictionary(type_):
        return True
    return any(has_dictionary(type_.field(child).type) for child in range(type_.num_fields))


def compact(table: pa.Table) -> pa.Table:
    """The same rows. A dictionary that is larger than the rows' values is replaced by a dictionary of these values."""
    for number, field in enumerate(table.schema):
        if not pa.types.is_dictionary(field.type):
            continue
        column = table.column(number)
        if any(_decoded(chunk) < chunk.dictionary.nbytes for chunk in column.chunks):
            plain = column.cast(field.type.value_type).dictionary_encode()
            table = table.set_column(number, field, plain.cast(field.type))
    return table


def _of_array(array: pa.Array, with_dictionaries: bool) -> int:
    type_ = array.type
    if pa.types.is_dictionary(type_):
        decoded = _decoded(array)
        return int(array.indices.nbytes) + (
            min(decoded, int(array.dictionary.nbytes)) if with_dictionaries else decoded
        )
    if not has_dictionary(type_):
        return int(array.nbytes)
    if pa.types.is_struct(type_):
        return len(array) + sum(_of_array(field, with_dictionaries) for field in array.flatten())
    if pa.types.is_map(type_):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        entries = (array.keys.slice(first, last - first), array.items.slice(first, last - first))
        return 8 * len(array) + sum(_of_array(part, with_dictionaries) for part in entries)
    return 8 * len(array) + _of_array(array.flatten(), with_dictionaries)


def _decoded(array: pa.DictionaryArray) -> int:
    """The bytes of the array's values; a repeated value counts each time."""
    values = array.dictionary
    try:
        lengths = pc.binary_length(values)
    except pa.ArrowNotImplementedError:
        return int(len(array) * values.nbytes / max(1, len(values)))
    return int(pc.sum(lengths.take(array.indices).cast(pa.int64())).as_py() or 0)

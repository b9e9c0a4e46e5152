"""Rows of JSON lines.

{"id": 1, "day": null}     one JSON object a line; the file has each column that an object names
{"day": null}              so this file has no column id, even if the table has one
{"s": {"a": 1, "b": 2}}    b is kept, although earlier files have a struct of a alone
{"m": {"k": 1}}            refused where the table has a map m: a key that a line lacks cannot be told from a null
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
import pyarrow.json

from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType
from deltacompact.base.wording import with_article
from deltacompact.tabular.file_text import FileText, in_blocks
from deltacompact.tabular.text_types import not_of_type, parsed_type

_NO_SUCH_VALUE = re.compile(
    r"Failed to convert JSON to (.+?)(?:, couldn't parse:|: )(.*?)(?: requires (?:precision|scale) \d+)?\Z", re.DOTALL
)
"""What the parser says of a value that is not of the type: the type, and the value."""

_WANTED = "but it must hold one JSON object a line"
_CHANGE = re.compile(r"Column\(/(.+)\) changed from (\w+) to (\w+)")
_NULL_LINE = re.compile(rb"\}[ \t]*[\r\n]\s*null")
_KINDS = {str: "string", int: "number", float: "number", bool: "boolean", dict: "object", list: "array"}
"""What the parser calls values."""

_DECODER = json.JSONDecoder()
_SPACES = " \t\r\n"
"""What may stand between values."""

_WIDER = ((pa.int64(), pa.float64()), (pa.timestamp("s"), pa.string()))
"""What the parser infers of numbers, and of texts; what it infers where one of them is another."""


def read_json(text: FileText, types: dict[str, pa.DataType], columns: list[str] | None) -> pa.Table:
    """The objects as rows. Raises InputError for a line that begins with `null`.

    The parser takes the word alone for a row of nulls, and a null is a key like others. Where a block begins with it,
    pyarrow ends the process, whatever follows, so look for it before anything is parsed.
    """
    first = text.begins_with()
    if not first:
        return pa.schema([(name, types[name]) for name in columns or ()]).empty_table()
    refuse_array(first)
    if first != b"{":
        raise InputError(f"it holds text that is no JSON object, {_WANTED}")
    if columns is not None:
        return typed(text, {name: types[name] for name in columns if name in types})
    _check_objects(text)
    table = inferred(text, types)
    # The parser adds every column of the given types. A column with a value is in the text; a second pass, without the
    # types of the others, finds which of them are.
    doubtful = {name for name in types if table[name].null_count == table.num_rows}
    if not doubtful:
        return table
    certain = {name: type_ for name, type_ in types.items() if name not in doubtful}
    own = set(inferred(text, certain).column_names)
    return table.select([name for name in table.column_names if name in own])


def refuse_array(first: bytes) -> None:
    """Raise InputError for a text whose first byte begins an array."""
    if first == b"[":
        raise InputError(f"it holds a JSON array, {_WANTED}: jq -c '.[]' prints its elements so")


def _check_objects(text: FileText) -> None:
    """Raise InputError for a line that begins with `null` where an object may begin: below another, or in a block."""
    above = 0
    for block in text.blocks():
        below_object = b"}\n" + block
        if (found := _NULL_LINE.search(below_object)) is not None:
            line = above + len(below_object[: found.end()].splitlines()) - 1
            raise InputError(f"line {line:,} begins with null, but it must hold one JSON object")
        above += block.count(b"\n")


def broken_line(text: FileText, said: str) -> str | None:
    """Which line the parser could not read, and why. It counts the rows of a block of bytes itself, from 0 on.

    None: each line is JSON, or the first one does not end, as where objects lie on several lines.
    """
    change = _CHANGE.search(said)
    with text.opened() as opened:
        lines = bytes(opened.read()).splitlines()
    for number, line in enumerate(lines, 1):
        values: list[Any] = []
        try:
            values.extend(_values(line))
        except ValueError:
            return f"line {number:,} is no JSON object" if number > 1 or values else None
        if change is not None and any(_kind_at(value, change[1].split("/")) == change[3] for value in values):
            was, is_ = map(with_article, change.groups()[1:])
            return f"line {number:,}: {change[1]!r} is {is_}, in earlier rows {was}"
    return None


def _values(line: bytes) -> Iterator[Any]:
    """What a line holds: one value, or several objects, which the parser takes, too. Raises ValueError at any other."""
    text = line.decode("utf-8-sig", "surrogatepass").strip(_SPACES)
    place = 0
    while place < len(text):
        value, end = _DECODER.raw_decode(text, place)
        if place and not isinstance(value, dict):
            raise ValueError(f"{value!r} follows an object")
        yield value
        place = end
        while place < len(text) and text[place] in _SPACES:
            place += 1


def _kind_at(value: Any, path: Sequence[str]) -> str | None:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return _KINDS.get(type(value))


def column_named(text: FileText, types: dict[str, pa.DataType], said: str) -> str | None:
    """What the parser says of a value that is not of the type that its column has, with the column's name.

    The parser names no column, so look for the one without which the text can be parsed. None: it is not one of these.
    """

    def fails(names: list[str]) -> bool:
        try:
            typed(text, {name: parsed_type(types[name], ContentType.JSON) for name in names})
        except pa.ArrowInvalid:
            return True
        return False

    names = list(types)
    if fails([]) or not fails(names):
        return None
    while len(names) > 1:
        half = names[: len(names) // 2]
        names = half if fails(half) else names[len(half) :]
    type_ = types[names[0]]
    if pa.types.is_map(type_) or "JSON to null from" in said:  # see `parsed_type`
        return (
            f"column {names[0]!r} is {type_} in earlier files, and JSON with a map in it cannot be read: "
            "write it as Parquet"
        )
    if (value := _NO_SUCH_VALUE.search(said)) is not None:
        return not_of_type(names[0], str(type_), value[2])
    return f"column {names[0]!r} is {type_} in earlier rows or files, and this text has other values ({said})"


def inferred(text: FileText, types: Mapping[str, pa.DataType]) -> pa.Table:
    """The objects as rows. Fields without a type get the one that holds their values in all blocks.

    Where the parser infers types, it compares the kinds of values inside of a block only: after a block with {"x": 1}
    it takes 5 for {"x": null}, and at [1] pyarrow ends the process. It loses the null of [null, 1], too. So each block
    says its types by itself, and the text is parsed in these: in those of the first block, if they are all.
    """
    blocks = (_in_block(block, types) for block in text.blocks() if not block.isspace())
    first = next(blocks)
    try:
        return typed(text, {field.name: field.type for field in first}, "error")
    except pa.ArrowInvalid:
        return typed(text, {field.name: field.type for field in reduce(_of_both, blocks, first)})


def _in_block(block: bytes, types: Mapping[str, pa.DataType]) -> pa.StructType:
    """The fields of a block that is parsed by itself."""
    return pa.struct(list(_read(pa.BufferReader(block), len(block), types, "infer").schema))


def _of_both(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type in which the parser takes the values of two blocks. Of two kinds the first: it refuses the other's."""
    if pa.types.is_null(a):
        return b
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        types = {field.name: field.type for field in a}
        types |= {field.name: _of_both(types.get(field.name, field.type), field.type) for field in b}
        return pa.struct(list(types.items()))
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.list_(_of_both(a.value_type, b.value_type))
    return b if (a, b) in _WIDER else a


def typed(
    text: FileText, types: Mapping[str, pa.DataType], unexpected: Literal["ignore", "error"] = "ignore"
) -> pa.Table:
    """The objects as rows with these fields. `unexpected`: what becomes of others, at any depth."""
    return in_blocks(lambda block_bytes: _read(text.opened(), block_bytes, types, unexpected))


def _read(
    source: pa.NativeFile,
    block_bytes: int,
    types: Mapping[str, pa.DataType],
    unexpected: Literal["infer", "ignore", "error"],
) -> pa.Table:
    return pa.json.read_json(
        source,
        read_options=pa.json.ReadOptions(block_size=block_bytes),
        parse_options=pa.json.ParseOptions(
            explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior=unexpected
        ),
    )

"""Writes a split tree, or the ranges of a sort order, as JSON, and reads it back. Cuts keep their exact values.

    {"format": 1, "kind": "split tree", "sha256": "5c5c…",
     "tree": {"table": "8e…",
              "columns": [{"name": "day", "nulls": "first",
                           "type": "/////7gA…", "cuts": [20458, 20459]},                 Arrow's type; days since 1970
                          {"name": "customer", "nulls": "first", "type": "/////4AA…", "cuts": ["m"]}],
              "splits": [[0, 1, 1, -3], [1, 0, -1, -2]],                                 column, cut, left, right
              "leaves": [[2, 1], [1, 1]]}}                                               cells, files

A cell takes about 100 bytes. Dates, times and timestamps are whole numbers in the unit of their type; floats are
hexadecimal, decimals text, bytes {"hex": …}. A negative child of a split is a cell: -1 is cell 0.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.layout.ranges import ColumnKey, CurveKey, Key, RangeCuts
from deltacompact.layout.sort_order import Curve
from deltacompact.layout.split_tree import CutColumn, Leaf, Split, SplitTree
from deltacompact.layout.stored_values import stored_value, value_of
from deltacompact.storage.checksummed import is_whole, with_checksum

TREE_FORMAT = 1
TREE, RANGES = "split tree", "sort ranges"
_BODY = {TREE: "tree", RANGES: "ranges"}

Layout = SplitTree | RangeCuts
"""Sends each row to a cell, and each cell to a file."""


def layout_document(layout: Layout, table: str) -> dict[str, Any]:
    """The document of a tree or of ranges. `table`: the identity of the only table that they are for."""
    body: dict[str, Any] = {"table": table, "leaves": [[leaf.cells, leaf.files] for leaf in layout.leaves]}
    if isinstance(layout, SplitTree):
        splits = [[split.column, split.cut, split.left, split.right] for split in layout.splits]
        body |= {"columns": list(map(_column, layout.columns)), "splits": splits}
        return with_checksum("tree", body, format=TREE_FORMAT, kind=TREE)
    body |= {"keys": list(map(_key, layout.keys)), "cuts": list(map(_values, layout.cuts))}
    body |= {"behind": list(layout.behind)} if layout.behind else {}
    return with_checksum("ranges", body, format=TREE_FORMAT, kind=RANGES)


def layout_from_json(text: str | bytes, table: str) -> Layout:
    """The tree or ranges in a document. Raises InputError if it has neither, is damaged, or is for another table."""
    try:
        document = json.loads(text)
    except ValueError:
        raise InputError("this is no split tree: it is not JSON") from None
    return layout_from_document(document, table)


def layout_from_document(document: Any, table: str) -> Layout:
    """The same for a parsed document."""
    if not isinstance(document, dict) or document.get("kind") not in (TREE, RANGES):
        raise InputError("this is no split tree")
    kind, found = document["kind"], document.get("format")
    if found != TREE_FORMAT:
        raise InputError(f"the {kind} has format {found!r}, not {TREE_FORMAT}: update deltacompact")
    if not is_whole(document, _BODY[kind]):
        raise InputError(f"the {kind} is damaged: its SHA-256 differs")
    body = document[_BODY[kind]]
    if body["table"] != table:
        raise InputError(f"the {kind} is of table {body['table']}, and not of {table}")
    leaves = tuple(Leaf(*leaf) for leaf in body["leaves"])
    if kind == TREE:
        return SplitTree(
            tuple(map(_column_of, body["columns"])), tuple(Split(*split) for split in body["splits"]), leaves
        )
    cuts, behind = tuple(map(_values_of, body["cuts"])), tuple(body.get("behind", ()))
    return RangeCuts(tuple(map(_key_of, body["keys"])), cuts, leaves, behind)


def _column(column: CutColumn) -> dict[str, Any]:
    return {"name": column.name, "nulls": "first" if column.nulls_first else "last"} | _values(column.cuts)


def _column_of(stored: Mapping[str, Any]) -> CutColumn:
    return CutColumn(stored["name"], _values_of(stored), stored["nulls"] == "first")


def _key(key: Key) -> dict[str, Any]:
    way = {"descending": key.descending, "nulls": "first" if key.nulls_first else "last"}
    if isinstance(key, ColumnKey):
        return {"name": key.name} | way
    return {"curve": key.curve.value, "columns": list(map(_column, key.columns))} | way


def _key_of(stored: Mapping[str, Any]) -> Key:
    way = stored["descending"], stored["nulls"] == "first"
    if "name" in stored:
        return ColumnKey(stored["name"], *way)
    return CurveKey(Curve(stored["curve"]), tuple(map(_column_of, stored["columns"])), *way)


# Values


def _values(values: pa.Array) -> dict[str, Any]:
    type_ = pa.schema([pa.field("", values.type)]).serialize()
    return {"type": base64.b64encode(type_).decode(), "cuts": [stored_value(value) for value in _storage(values)]}


def _values_of(stored: Mapping[str, Any]) -> pa.Array:
    types = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored["type"])))
    return _array(stored["cuts"], types.field(0).type)


def _storage(values: pa.Array) -> list[Any]:
    """The values as Python's numbers, texts and bytes, without loss: also of nanoseconds and far years."""
    return list(values.cast(_stored_type(values.type)).to_pylist())


def _array(stored: list[Any], type_: pa.DataType) -> pa.Array:
    values = [value_of(value) for value in stored]
    return pa.array(values, _stored_type(type_)).cast(type_, safe=False)  # text may not be valid UTF-8


def _stored_type(type_: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_date32(type_) or t.is_time32(type_):
        return pa.int32()
    if t.is_date64(type_) or t.is_time64(type_) or t.is_timestamp(type_) or t.is_duration(type_):
        return pa.int64()
    if t.is_string(type_) or t.is_large_string(type_):
        return pa.large_binary()  # a file may hold text that is not valid UTF-8
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_

"""A split tree as JSON, and back: about 100 bytes a cell, with the exact values at which columns are cut.

    {"format": 1, "kind": "split tree", "sha256": "5c5c…",
     "tree": {"table": "8e…", "types": "/////7gA…",                                      Arrow's names and types
              "columns": [{"name": "day", "nulls": "first", "cuts": [20458, 20459]},     days since 1970
                          {"name": "customer", "nulls": "first", "cuts": ["m"]}],
              "splits": [[0, 1, 1, -3], [1, 0, -1, -2]],                                 column, cut, left, right
              "leaves": [[2, 1], [1, 1]]}}                                               cells, files

Whole numbers stand for dates, times and timestamps in the unit of their type. Floats are hexadecimal, decimals text,
bytes {"hex": …}. A split's child below 0 is a cell: -1 is cell 0.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.layout.split_tree import CutColumn, Leaf, Split, SplitTree
from deltacompact.storage.checksummed import is_whole, with_checksum

TREE_FORMAT = 1
KIND = "split tree"


def tree_document(tree: SplitTree, table: str) -> dict[str, Any]:
    """The document of a tree, which is for the table of this identity alone."""
    types = pa.schema([pa.field(column.name, column.cuts.type) for column in tree.columns])
    columns = [
        {
            "name": column.name,
            "nulls": "first" if column.nulls_first else "last",
            "cuts": [_stored(value) for value in _storage(column.cuts)],
        }
        for column in tree.columns
    ]
    body = {
        "table": table,
        "types": base64.b64encode(types.serialize()).decode(),
        "columns": columns,
        "splits": [[split.column, split.cut, split.left, split.right] for split in tree.splits],
        "leaves": [[leaf.cells, leaf.files] for leaf in tree.leaves],
    }
    return with_checksum("tree", body, format=TREE_FORMAT, kind=KIND)


def tree_from_json(text: str | bytes, table: str) -> SplitTree:
    """The tree of a document. Raises InputError if it is none, is damaged, or is of another table."""
    try:
        document = json.loads(text)
    except ValueError:
        raise InputError("this is not a split tree: it is not JSON") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise InputError("this is not a split tree")
    if document.get("format") != TREE_FORMAT:
        raise InputError(f"the tree has format {document.get('format')!r}, not {TREE_FORMAT}: update deltacompact")
    if not is_whole(document, "tree"):
        raise InputError("the split tree is damaged: its SHA-256 differs")
    body = document["tree"]
    if body["table"] != table:
        raise InputError(f"the split tree is of table {body['table']}, and not of {table}")
    types = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(body["types"])))
    columns = tuple(
        CutColumn(one["name"], _array(one["cuts"], field.type), one["nulls"] == "first")
        for one, field in zip(body["columns"], types, strict=True)
    )
    splits = tuple(Split(*split) for split in body["splits"])
    return SplitTree(columns, splits, tuple(Leaf(*leaf) for leaf in body["leaves"]))


# Values


def _storage(values: pa.Array) -> list[Any]:
    """The values as Python's numbers, texts and bytes, which lose nothing: nanoseconds and far years neither."""
    return list(values.cast(_stored_type(values.type)).to_pylist())


def _array(stored: list[Any], type_: pa.DataType) -> pa.Array:
    values = [_value(value, type_) for value in stored]
    return pa.array(values, _stored_type(type_)).cast(type_, safe=False)  # text may be no UTF-8


def _stored_type(type_: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_date32(type_) or t.is_time32(type_):
        return pa.int32()
    if t.is_date64(type_) or t.is_time64(type_) or t.is_timestamp(type_) or t.is_duration(type_):
        return pa.int64()
    if t.is_string(type_) or t.is_large_string(type_):
        return pa.large_binary()  # a file may hold text that is no UTF-8
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_


def _stored(value: Any) -> Any:
    match value:
        case bytes():
            return _text_or_hex(value)
        case float():
            return {"float": value.hex()}
        case Decimal():
            return {"decimal": str(value)}
    return value


def _text_or_hex(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def _value(stored: Any, type_: pa.DataType) -> Any:
    read: dict[str, Callable[[str], Any]] = {"hex": bytes.fromhex, "float": float.fromhex, "decimal": Decimal}
    if isinstance(stored, dict):
        ((kind, text),) = stored.items()
        return read[kind](text)
    return stored.encode() if isinstance(stored, str) else stored

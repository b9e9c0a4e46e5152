"""Puffin files that hold deletion vectors (Puffin spec, "deletion-vector-v1"), or one blob of ours.

    PFA1 · vector of a · vector of c · PFA1 · footer as JSON · its length · flags · PFA1
         4             49            94

Readers of a table find a vector by its manifest entry. The footer says the same, for those who read the file alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltacompact import _kernels

MAGIC = b"PFA1"
_ROW_POSITION = 2147483645
"""The field id of `_pos`, the column that a deletion vector is about."""
_INHERITED = -1
_NO_FLAGS = bytes(4)


@dataclass(frozen=True, slots=True)
class VectorBlob:
    """The deletion vector of a data file. `cardinality` is the number of its positions."""

    data_file: str
    blob: bytes
    cardinality: int


def puffin_file(vectors: Sequence[VectorBlob]) -> tuple[bytes, list[int]]:
    """The bytes of a file with these vectors, and the offset of each."""
    data = bytearray(MAGIC)
    offsets: list[int] = []
    for vector in vectors:
        offsets.append(len(data))
        data += vector.blob
    described = [_described(vector, offset) for vector, offset in zip(vectors, offsets, strict=True)]
    return bytes(data) + _footer(described), offsets


def _footer(described: Sequence[Mapping[str, Any]]) -> bytes:
    footer = json.dumps({"blobs": described, "properties": {"created-by": "deltacompact"}}).encode()
    return MAGIC + footer + len(footer).to_bytes(4, "little") + _NO_FLAGS + MAGIC


def statistics_file(type_: str, blob: bytes, snapshot_id: int, sequence_number: int) -> tuple[bytes, int]:
    """The bytes of a file with one blob about a snapshot, and how many of them are the footer."""
    about = {"type": type_, "fields": [], "snapshot-id": snapshot_id, "sequence-number": sequence_number}
    checked = {"crc-32": str(_kernels.crc32(blob))}
    footer = _footer([{**about, "offset": len(MAGIC), "length": len(blob), "properties": checked}])
    return MAGIC + blob + footer, len(footer)


def statistics_blob(data: bytes, type_: str) -> bytes | None:
    """The blob of that type. None: the file has none that is whole."""
    size = int.from_bytes(data[-12:-8], "little")
    try:
        for entry in json.loads(data[-12 - size : -12])["blobs"]:
            blob = data[entry["offset"] : entry["offset"] + entry["length"]]
            if entry["type"] == type_ and entry["properties"]["crc-32"] == str(_kernels.crc32(blob)):
                return blob
    except (ValueError, KeyError, TypeError):
        return None
    return None


def _described(vector: VectorBlob, offset: int) -> dict[str, Any]:
    return {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION],
        "snapshot-id": _INHERITED,
        "sequence-number": _INHERITED,
        "offset": offset,
        "length": len(vector.blob),
        "properties": {"referenced-data-file": vector.data_file, "cardinality": str(vector.cardinality)},
    }

"""Deletion vectors in Delta's format (PROTOCOL.md, "Deletion DeltaVector Format").

    deletion_vector_1f….bin      01 · size (4 bytes, big endian) · D1 D3 39 64 · 64-bit roaring bitmap · CRC-32 · …
                                 offset 1 of the file

A single vector has the same bytes as Iceberg's. All vectors of a commit are in one file in the table's folder, named by
a UUID ("u"), because Trino reads neither inline vectors nor absolute paths.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _FROM_Z85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)
_UUID_CHARACTERS = 20
_VERSION = b"\x01"
_AROUND = 8
"""Bytes of a blob around the bitmap and its magic number: the size before, the CRC-32 after."""

PREFIX = "deletion_vector_"
"""The beginning of the names of vector files."""
_NAME = re.compile(PREFIX + r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin")

Descriptor = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeltaVector:
    """The dead rows of a file: the framed bitmap, and their number."""

    blob: bytes
    rows: int


def vector_file(vectors: Sequence[DeltaVector], unique: uuid.UUID) -> tuple[str, bytes, list[dict[str, Any]]]:
    """The name and the bytes of a file with these vectors, and the descriptor of each."""
    data, descriptors = bytearray(_VERSION), []
    named = base64.b85encode(unique.bytes).translate(_TO_Z85).decode()
    for vector in vectors:
        descriptors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": named,
                "offset": len(data),
                "sizeInBytes": len(vector.blob) - _AROUND,
                "cardinality": vector.rows,
            }
        )
        data += vector.blob
    return f"{PREFIX}{unique}.bin", bytes(data), descriptors


def file_of(descriptor: Descriptor) -> str | None:
    """The name of the file in the table's folder with this vector. None: the vector is elsewhere, or in the log."""
    named = descriptor["pathOrInlineDv"]
    if descriptor["storageType"] != "u" or len(named) != _UUID_CHARACTERS:
        return None
    return f"{PREFIX}{uuid.UUID(bytes=base64.b85decode(named.encode().translate(_FROM_Z85)))}.bin"


def is_vector_file(name: str) -> bool:
    """Whether an object of the table's folder has a name of our vector files."""
    return bool(_NAME.fullmatch(name))


def unique_id(descriptor: Descriptor | None) -> str | None:
    """The id that distinguishes the vectors of a file ("Derived Fields")."""
    if descriptor is None:
        return None
    offset = descriptor.get("offset")
    return f"{descriptor['storageType']}{descriptor['pathOrInlineDv']}" + ("" if offset is None else f"@{offset}")

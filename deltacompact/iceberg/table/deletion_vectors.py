"""Deletion vectors in Puffin files, the only door to pyroaring.

    offset 4, size 45    length (4 bytes, big endian) · D1 D3 39 64 · 64-bit roaring bitmap (portable) · CRC-32

A manifest entry says where a vector lies in its file, so the Puffin footer is not needed: a file may hold vectors that
newer ones have superseded. CRC-32 covers magic and bitmap (Puffin spec, "deletion-vector-v1").
"""

from __future__ import annotations

import zlib
from array import array

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from deltacompact.base.errors import CorruptionError

MAGIC = b"\xd1\xd3\x39\x64"


def positions(blob: bytes, path: str) -> npt.NDArray[np.uint64]:
    """The deleted positions, in order. Raises CorruptionError naming the file."""
    length, body, crc = int.from_bytes(blob[:4], "big"), blob[4:-4], int.from_bytes(blob[-4:], "big")
    if len(body) != length or body[:4] != MAGIC:
        raise CorruptionError(f"{path}: no deletion vector lies where the manifest says")
    if zlib.crc32(body) != crc:
        raise CorruptionError(f"{path}: the CRC-32 of a deletion vector differs")
    try:
        bitmap = BitMap64.deserialize(body[4:])
    except ValueError as error:
        raise CorruptionError(f"{path}: a deletion vector is not a bitmap: {error}") from error
    return np.asarray(bitmap.to_array(), np.uint64)


def blob_of(dead: npt.NDArray[np.uint64]) -> bytes:
    """The blob of a deletion vector with these positions, each of them once, in order."""
    bitmap = BitMap64(array("Q", dead.tobytes()))
    bitmap.run_optimize()
    body = MAGIC + bitmap.serialize()
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

"""Entries: 32 bytes a row plus its sort key. All steps before materialize work on entries alone.

    digest 20 | sort key 0‥ | file ordinal 4 | row 8        little-endian pointer

    a delta's entry     digest of k1 | sort key | file 7 | row 12                     an upsert
                        digest of k1 | sort key | file 8 | row 3 + delete bit         a delete, keyed
                        digest of k1 | 0…       | file 8 | row 4 + both bits          a delete, keyless
    an index's entry    digest of k1 | sort key | file 2 | row 90,112                 the live row of k1
                        digest of k1 | sort key | 0xFFFFFFFF | position 1512203633403 a tombstone
                        digest of k1 | 0…       | 0xFFFFFFFE | 0              gone: only older runs still have k1

So memory is known before the work begins: rows times `Encoding.entry_bytes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact.index.keys import DIGEST_BYTES, POINTER_BYTES

Entries = npt.NDArray[np.uint8]
"""(n, entry_bytes), C-contiguous."""

TOMBSTONE = 0xFFFFFFFF
GONE = 0xFFFFFFFE
"""File number in a newer run of an index: the key is gone, although an older run has an entry for it."""
DELETE_BIT = np.uint64(1 << 63)
KEYLESS_BIT = np.uint64(1 << 62)


def fields(entries: Entries) -> npt.NDArray[Any]:
    """The same memory as records with the fields digest, sort_key, file and row."""
    width = entries.shape[1]
    sort_key_bytes = width - DIGEST_BYTES - POINTER_BYTES
    record = np.dtype(
        {
            "names": ["prefix", "digest", "sort_key", "file", "row"],
            "formats": [">u8", f"V{DIGEST_BYTES}", f"V{max(1, sort_key_bytes)}", "<u4", "<u8"],
            "offsets": [0, 0, DIGEST_BYTES, width - 12, width - 8],
            "itemsize": width,
        }
    )
    return entries.reshape(-1).view(record)


def digests(entries: Entries) -> Entries:
    return entries[:, :DIGEST_BYTES]


def sort_keys(entries: Entries) -> Entries:
    return entries[:, DIGEST_BYTES : entries.shape[1] - POINTER_BYTES]


def none(entry_bytes: int) -> Entries:
    return np.empty((0, entry_bytes), np.uint8)


def sorted_by_digest(entries: Entries) -> Entries:
    """Entries of distinct keys in digest order."""
    prefix = fields(entries)["prefix"].astype(np.uint64)
    order = np.argsort(prefix, kind="stable")
    if len(order) > 1 and (np.diff(prefix[order]) == 0).any():  # the first eight bytes are equal: compare all twenty
        order = np.lexsort(digests(entries).T[::-1])
    return np.ascontiguousarray(entries[order])

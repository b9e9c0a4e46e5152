"""Hash buckets of digests as ranges: bucket 1 of 4 has all digests from 40… to 7f….

Digests are uniform, so ranges have equally many keys. A run in the order of digests has each bucket in one piece,
however many buckets a reader wants: the number of buckets is no part of what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.index.entries import Entries, fields, none
from deltacompact.storage.objects import ObjectStore

_HALF = np.uint64(32)

Prefixes = npt.NDArray[np.uint64]
"""The first eight bytes of digests, as numbers."""


def buckets_of(prefixes: Prefixes, count: int) -> npt.NDArray[np.int64]:
    """The bucket of each digest."""
    return (((prefixes >> _HALF) * np.uint64(count)) >> _HALF).astype(np.int64)


def bounds_of(bucket: int, count: int) -> tuple[int, int]:
    """The least and the greatest prefix of a bucket."""
    low, high = (-(-(number << 32) // count) << 32 for number in (bucket, bucket + 1))
    return low, high - 1


def prefixes_of(entries: Entries) -> Prefixes:
    return fields(entries)["prefix"].astype(np.uint64)


def write_by_bucket(store: ObjectStore, path: str, parts: Sequence[Entries], width: int, count: int) -> None:
    """Entries as an Arrow file with a batch for each bucket."""
    entries = np.concatenate(parts) if parts else none(width)
    buckets = buckets_of(prefixes_of(entries), count)
    order = np.argsort(buckets, kind="stable")
    offsets = np.searchsorted(buckets[order], np.arange(count + 1))
    write_batches(store, path, entries[order], offsets.tolist())


def write_batches(store: ObjectStore, path: str, entries: Entries, offsets: Sequence[int]) -> None:
    """Entries as an Arrow file of batches: the first ends at `offsets[1]`, and so on."""
    type_ = pa.binary(entries.shape[1])
    with store.writer(path) as sink, pa.ipc.new_file(sink, pa.schema([("entry", type_)])) as out:
        for start, stop in pairwise(offsets):
            buffers = [None, pa.py_buffer(entries[start:stop].reshape(-1))]
            column = pa.Array.from_buffers(type_, stop - start, buffers)
            out.write_batch(pa.record_batch([column], names=["entry"]))


def read_batch(store: ObjectStore, paths: Sequence[str], number: int, width: int) -> Iterator[Entries]:
    """One batch of each of the files: of entries, or of numbers. Tasks read their own batch and no other."""
    for path in paths:
        with store.open(path) as source:
            column = pa.ipc.open_file(source).get_batch(number).column(0)
        data = np.frombuffer(column.buffers()[1] or b"", np.uint8)[: len(column) * width]
        yield data.reshape(-1, width)

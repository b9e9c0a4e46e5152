"""Rehashing: moves an index to another number of hash buckets, without reading data files.

2 buckets                            3 buckets
0: 08… -> (2, 4)  9e… -> (2, 1)      0: 9e… -> (2, 1)        bucket = int(digest) % 3
1: 31… -> (3, 0)                     1: 31… -> (3, 0)
                                     2: 08… -> (2, 4)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from deltacompact import _kernels
from deltacompact.index.entries import none, sorted_by_digest
from deltacompact.index.index_files import BucketWriter, Closing, IndexFile
from deltacompact.index.keys import Encoding
from deltacompact.index.primary_key_index import IndexManifest, read_index
from deltacompact.steps.shuffle import Groups, Passed, received
from deltacompact.storage.objects import ObjectStore


def split_bucket(
    store: ObjectStore, manifest: IndexManifest, bucket: int, hash_bucket_count: int, parcel_starts: Sequence[int]
) -> Iterator[Groups]:
    """The entries of one old bucket, by new bucket."""
    parts = list(read_index(store, manifest, bucket)) or [none(manifest.encoding.entry_bytes)]
    entries, offsets = _kernels.group_entries(parts, hash_bucket_count)
    yield from Groups(0, (entries,), offsets).parcels(parcel_starts)


def merge_buckets(
    store: ObjectStore,
    encoding: Encoding,
    buckets: range,
    rows_per_file: int,
    chunk_entries: int,
    path_of: Callable[[], str],
    *parts: Passed,
) -> tuple[tuple[IndexFile, ...], ...]:
    """Write a group of new buckets from the entries of all old buckets."""
    written, groups = [], received(parts)
    with Closing(store) as closing:
        for bucket in buckets:
            pieces = [entries for part in groups for entries in part.of(bucket)]
            with BucketWriter(store, path_of, encoding.entry_bytes, rows_per_file, chunk_entries, closing) as writer:
                writer.write(sorted_by_digest(np.concatenate(pieces)))
                written.append(writer.close())
    return tuple(written)

"""Rehashing: an index moves to another number of hash buckets without any data being read.

2 buckets                            3 buckets
0: 08… -> (2, 4)  9e… -> (2, 1)      0: 9e… -> (2, 1)        bucket = int(digest) % 3
1: 31… -> (3, 0)                     1: 31… -> (3, 0)
                                     2: 08… -> (2, 4)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from deltacompact import _kernels
from deltacompact.entries import none, sorted_by_digest
from deltacompact.executors import Executor
from deltacompact.hash_bucket import BucketGroup
from deltacompact.index_files import IndexFile, bucket_writer
from deltacompact.keys import Encoding
from deltacompact.primary_key_index import IndexManifest, read_index
from deltacompact.sizing import bucket_groups
from deltacompact.storage import ObjectStore


def split_bucket(
    store: ObjectStore, manifest: IndexManifest, bucket: int, hash_bucket_count: int, group_starts: Sequence[int]
) -> Iterator[BucketGroup]:
    """One old bucket's entries by new bucket, one result for each group of new buckets."""
    parts = list(read_index(store, manifest, bucket)) or [none(manifest.encoding.entry_bytes)]
    entries, offsets = _kernels.group_entries(parts, hash_bucket_count)
    for start, stop in pairwise(group_starts):
        low, high = int(offsets[start]), int(offsets[stop])
        yield entries[low:high], offsets[start : stop + 1] - low


def merge_buckets(
    store: ObjectStore,
    encoding: Encoding,
    buckets: range,
    rows_per_file: int,
    path_of: Callable[[], str],
    *parts: BucketGroup,
) -> tuple[tuple[IndexFile, ...], ...]:
    """Write a group of new buckets from what every old bucket has for them."""
    written = []
    for place, _ in enumerate(buckets):
        pieces = [entries[offsets[place] : offsets[place + 1]] for entries, offsets in parts]
        with bucket_writer(store, path_of, encoding.entry_bytes, rows_per_file) as writer:
            writer.write(sorted_by_digest(np.concatenate(pieces)))
            written.append(writer.close())
    return tuple(written)


def rehash(
    executor: Executor,
    store: ObjectStore,
    manifest: IndexManifest,
    hash_bucket_count: int,
    rows_per_file: int,
    path_of: Callable[[], str],
) -> IndexManifest:
    """The same entries in other buckets. Nothing is published; the caller owns the files."""
    slots = executor.capacity.slots
    groups = bucket_groups(
        hash_bucket_count, manifest.entries, manifest.encoding.entry_bytes, manifest.hash_bucket_count, slots
    )
    starts = spread(hash_bucket_count, groups)
    split = [
        executor.submit(split_bucket, store, manifest, bucket, hash_bucket_count, starts, returns=groups)
        for bucket in range(manifest.hash_bucket_count)
    ]
    merged = [
        executor.submit(
            merge_buckets,
            store,
            manifest.encoding,
            range(starts[place], starts[place + 1]),
            rows_per_file,
            path_of,
            *(task.values[place] for task in split),
        )
        for place in range(groups)
    ]
    for _ in executor.finish(merged):
        pass
    buckets = tuple(bucket for task in merged for bucket in executor.get(task.values[0]))
    return IndexManifest(manifest.encoding, (buckets,), manifest.rows, manifest.tombstones, manifest.publishable)


def spread(items: int, groups: int) -> tuple[int, ...]:
    """Boundaries of `groups` consecutive groups of about equal size: (0, …, items)."""
    return tuple(items * place // groups for place in range(groups + 1))

"""Rehashing: an index moves to another number of hash buckets without any data being read.

2 buckets                            3 buckets
0: 08… -> (2, 4)  9e… -> (2, 1)      0: 9e… -> (2, 1)        bucket = int(digest) % 3
1: 31… -> (3, 0)                     1: 31… -> (3, 0)
                                     2: 08… -> (2, 4)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from deltacompact import _kernels
from deltacompact.executors.executor import Executor
from deltacompact.index.entries import none, sorted_by_digest
from deltacompact.index.index_files import IndexFile, bucket_writer
from deltacompact.index.keys import Encoding
from deltacompact.index.primary_key_index import IndexManifest, read_index
from deltacompact.planning.sizing import bucket_groups
from deltacompact.steps.shuffle import Groups, Layout
from deltacompact.storage.objects import ObjectStore


def split_bucket(
    store: ObjectStore, manifest: IndexManifest, bucket: int, hash_bucket_count: int, parcel_starts: Sequence[int]
) -> Iterator[Groups]:
    """One old bucket's entries by new bucket."""
    parts = list(read_index(store, manifest, bucket)) or [none(manifest.encoding.entry_bytes)]
    entries, offsets = _kernels.group_entries(parts, hash_bucket_count)
    yield from Groups(0, (entries,), offsets).parcels(parcel_starts)


def merge_buckets(
    store: ObjectStore,
    encoding: Encoding,
    buckets: range,
    rows_per_file: int,
    path_of: Callable[[], str],
    *parts: Groups,
) -> tuple[tuple[IndexFile, ...], ...]:
    """Write a group of new buckets from what every old bucket has for them."""
    written = []
    for bucket in buckets:
        pieces = [entries for part in parts for entries in part.of(bucket)]
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
    slots, nodes = executor.capacity.slots, executor.capacity.node_slots
    groups = bucket_groups(hash_bucket_count, manifest.entries, slots, len(nodes), manifest.hash_bucket_count)
    layout = Layout.of(hash_bucket_count, groups, nodes)
    split = [
        executor.submit(
            split_bucket,
            store,
            manifest,
            bucket,
            hash_bucket_count,
            layout.parcel_starts,
            returns=layout.parcel_count,
            spread=True,
        )
        for bucket in range(manifest.hash_bucket_count)
    ]
    merged = []
    for group, members in enumerate(layout.tasks):
        node = layout.parcel_of(group)
        parts = [task.values[node] for task in split]
        merged.append(
            executor.submit(merge_buckets, store, manifest.encoding, members, rows_per_file, path_of, *parts, node=node)
        )
    for _ in executor.finish(merged):
        pass
    buckets = tuple(bucket for task in merged for bucket in executor.get(task.values[0]))
    return IndexManifest(manifest.encoding, (buckets,), manifest.rows, manifest.tombstones, manifest.publishable)

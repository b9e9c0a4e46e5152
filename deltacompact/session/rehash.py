"""Rehashes an index: splits every old bucket, then merges the pieces into the new buckets.

split 0    split 1    split 2          a task for each old bucket; a parcel for each node
   \\         |         /
merge 0‥3        merge 4‥7             a task for each group of new buckets
"""

from __future__ import annotations

from collections.abc import Callable

from deltacompact.base.settings import Options
from deltacompact.executors.executor import Executor
from deltacompact.index.primary_key_index import IndexManifest
from deltacompact.planning.sizing.driver_time import parcels_each
from deltacompact.planning.sizing.task_counts import bucket_groups
from deltacompact.session.all_to_all import Relays, gather, scatter
from deltacompact.steps.rehash import merge_buckets, split_bucket
from deltacompact.steps.shuffle import ParcelLayout
from deltacompact.storage.objects import ObjectStore


def rehash(
    executor: Executor,
    store: ObjectStore,
    manifest: IndexManifest,
    hash_bucket_count: int,
    options: Options,
    path_of: Callable[[], str],
) -> IndexManifest:
    """Write the same entries into other buckets. Publishes nothing; the caller owns the files."""
    slots, nodes, limits = executor.capacity.slots, executor.capacity.node_slots, options.limits
    groups = bucket_groups(hash_bucket_count, manifest.entries, slots, len(nodes), manifest.hash_bucket_count, limits)
    layout = ParcelLayout.of(hash_bucket_count, groups, nodes)
    several = layout.several(parcels_each(layout.parcel_count, limits))
    senders = (
        (store, manifest, bucket, hash_bucket_count, several.parcel_starts)
        for bucket in range(manifest.hash_bucket_count)
    )
    split = scatter(executor, several, split_bucket, senders)
    relays = Relays(executor, layout, several, split, limits)
    for number, stats in executor.finish(split):
        relays.ended(number, stats.seconds)
    rows_per_file, chunk_entries = options.rows_per_primary_key_index_file, limits.chunk_entries
    receivers = ((store, manifest.encoding, members, rows_per_file, chunk_entries, path_of) for members in layout.tasks)
    merged = gather(executor, layout, merge_buckets, receivers, relays.sent)
    for _ in executor.finish(merged):
        pass
    buckets = tuple(bucket for task in merged for bucket in executor.get(task.values[0]))
    return IndexManifest(manifest.encoding, (buckets,), manifest.rows, manifest.tombstones, manifest.publishable)

"""When we last compacted a branch, by the summaries of its snapshots. `show` uses it for lists, so it imports little.

snapshot 3    ours, deleted-data-files 12          it compacted
snapshot 4    ours, manifests were written anew    it did not
snapshot 5    Flink's, or a batch of a mirror      it did not
"""

from __future__ import annotations

from deltacompact.iceberg.settled import COMPARED
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata

_COMPACTS = ("deleted-data-files", "removed-delete-files", "added-delete-files", COMPARED)
"""Keys in the summary of a snapshot that compacted something. A snapshot that only rewrote manifests has none of
them."""


def has_compacted(snapshot: Snapshot) -> bool:
    """Whether the snapshot is upkeep of ours and compacted something."""
    return snapshot.is_upkeep and any(key in snapshot.summary for key in _COMPACTS)


def compacted_s(metadata: TableMetadata, head: Snapshot | None) -> float | None:
    """When we compacted a branch last. None: never, or the snapshots have been expired."""
    ours = next((snapshot for snapshot in metadata.ancestors(head) if has_compacted(snapshot)), None)
    return None if ours is None else ours.timestamp_ms / 1000

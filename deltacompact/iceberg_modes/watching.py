"""A branch that is looked at again and again, by whoever decides when it is to be compacted: sizes and counts.

    look    head 7        the catalog's answer, the manifest list, 40 manifests        42 requests
    look    head 7 still  the catalog's answer                                          1
    look    head 8        the catalog's answer, the manifest list, 1 new manifest       3

Manifests never change, so each is read once. Of a file only its size, rows and age are kept: 32 bytes, no bounds. Who
wants to know what a layout would gain has them read again for each new head, and the heat at each look.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact.iceberg.table import locations, manifests
from deltacompact.iceberg.table.content_files import Content, Manifest, Status
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader
from deltacompact.iceberg.table_heat import heat_of_table
from deltacompact.iceberg_modes.compacted import has_compacted
from deltacompact.iceberg_modes.rewrite.options import RewriteOptions, rewrite_options
from deltacompact.iceberg_modes.rewrite.worth import gain_of
from deltacompact.planning.worth import LayoutGain
from deltacompact.storage.objects import ObjectStore

_MANIFESTS_AT_ONCE = 64
"""So many manifests are held with all their entries, while those of a new branch are read."""

Numbers = npt.NDArray[np.int64]
_FILE = np.dtype([("content", "i8"), ("bytes", "i8"), ("rows", "i8"), ("added", "i8")])


@dataclass(frozen=True, slots=True, eq=False)
class BranchSizes:
    """What lies in a branch. Times are Unix seconds, by the clocks of those who committed.

    head                the newest snapshot that is not our upkeep: where it is the same, nobody has written since
                        (None: of those that have not been expired, all are)
    data_file_bytes     of each data file
    small_file_bytes    below this size a rewrite takes a file for small, unless its options say otherwise
    delete_files        position-delete files, deletion vectors and equality-delete files
    delete_rows         rows that they say are dead: an equality delete counts for one row
    new_bytes           of files that were added since the last compaction, or ever
    compacted_s         when that was; None: never, or so long ago that it has been expired
    known_since_s       when the oldest snapshot of the branch that is known was committed
    written_s           when `head` was committed
    snapshots           of the table, on all branches
    layout_depth        how many files hold a value of the columns by which the table is clustered; 0: nobody asked
    layout_gain         how many times what clustering costs the reads of the heat would save
    """

    head: int | None = None
    data_file_bytes: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    small_file_bytes: int = 0
    data_rows: int = 0
    delete_files: int = 0
    delete_rows: int = 0
    new_bytes: int = 0
    compacted_s: float | None = None
    known_since_s: float | None = None
    written_s: float | None = None
    snapshots: int = 0
    layout_depth: float = 0.0
    layout_gain: float = 0.0

    @property
    def data_files(self) -> int:
        return len(self.data_file_bytes)

    def small_files(self, below_bytes: int | None = None) -> int:
        """Data files below a size, or below that of a rewrite."""
        return int(np.count_nonzero(self.data_file_bytes < (below_bytes or self.small_file_bytes)))


class WatchedBranch:
    """One branch of a table of a catalog. `layout`: whether it is looked at how its files lie."""

    def __init__(self, catalog: Any, table_id: str, branch: str, layout: bool = False) -> None:
        self._catalog = catalog
        self._table_id = table_id
        self._branch = branch
        self._layout = layout
        self._gain = LayoutGain()
        self._files: dict[str, npt.NDArray[Any]] = {}
        self._table: IcebergTable | None = None
        self._seen: tuple[str, Snapshot, RewriteOptions] | None = None
        self._sizes = BranchSizes()

    def look(self) -> BranchSizes:
        """The branch as it is now. Raises NotFoundError, InputError, StoreError or CorruptionError in one line."""
        self._table = table = IcebergTable.load(self._catalog, self._table_id, self._table)
        head = table.metadata.branch(self._branch)
        if head is None:
            return BranchSizes()
        seen = table.metadata.uuid, head, rewrite_options({}, table.metadata.properties)
        if self._seen != seen:
            store = table.store
            self._sizes = _sizes(table.metadata, head, self._live_files(store, head))
            if self._layout:
                self._gain = gain_of(StateReader(store).at(table.metadata, self._branch, head))
            self._seen = seen
        found = replace(self._sizes, snapshots=len(table.metadata.snapshots), layout_depth=self._gain.depth)
        if not self._gain.cost_s:
            return found
        heat = heat_of_table(table.store, table.metadata).read().now(time.time())
        return replace(found, layout_gain=self._gain.by_heat(heat.columns))

    def _live_files(self, store: ObjectStore, head: Snapshot) -> npt.NDArray[Any]:
        listed = manifests.read_manifest_list(locations.fetched(store, head.manifest_list), head.manifest_list)
        known = self._files
        self._files = {manifest.path: known[manifest.path] for manifest in listed if manifest.path in known}
        missing = [manifest for manifest in listed if manifest.path not in known]
        for start in range(0, len(missing), _MANIFESTS_AT_ONCE):
            self._files |= _read(store, missing[start : start + _MANIFESTS_AT_ONCE])
        return np.concatenate([np.zeros(0, _FILE), *self._files.values()])


def _read(store: ObjectStore, listed: Sequence[Manifest]) -> dict[str, npt.NDArray[Any]]:
    """The live files of each manifest."""
    found = {}
    for manifest, entries in zip(listed, StateReader(store).entries_of(listed), strict=True):
        files = [
            (int(entry.file.content), entry.file.content_bytes, entry.file.rows, entry.added_at)
            for entry in entries
            if entry.status is not Status.DELETED
        ]
        found[manifest.path] = np.array(files, _FILE)
    return found


def _sizes(metadata: TableMetadata, head: Snapshot, files: npt.NDArray[Any]) -> BranchSizes:
    is_data = files["content"] == int(Content.DATA)
    line, options = list(metadata.ancestors(head)), rewrite_options({}, metadata.properties)
    written = next((snapshot for snapshot in line if not snapshot.is_upkeep), None)
    ours = next((snapshot for snapshot in line if has_compacted(snapshot)), None)
    new = files["added"] > ours.sequence_number if ours else np.ones(len(files), bool)
    return BranchSizes(
        head=written.snapshot_id if written else None,
        data_file_bytes=files["bytes"][is_data],
        small_file_bytes=options.laid_out_file_bytes_min if options.cluster_by else options.min_file_bytes,
        data_rows=int(files["rows"][is_data].sum()),
        delete_files=int(np.count_nonzero(~is_data)),
        delete_rows=int(files["rows"][~is_data].sum()),
        new_bytes=int(files["bytes"][new].sum()),
        compacted_s=ours.timestamp_ms / 1000 if ours else None,
        known_since_s=line[-1].timestamp_ms / 1000,
        written_s=written.timestamp_ms / 1000 if written else None,
    )

"""Finds the files of a published table that a vacuum must keep, because snapshots of the Iceberg table refer to them.

    snapshot 5, 9 days old      a, b       replaced 4 days ago: expired, as a version that was sealed so long ago
    snapshot 6, 4 days old      b, c       replaced an hour ago: b and c stay, because readers may have begun since
    snapshot 7, main            c, d       c and d stay, however old the snapshot is
    tag "audit"                 snapshot 4: e stays
    another pointer, by chance  snapshot 8: what it has stays (iceberg/table/other_heads.py)

Other engines must not expire the snapshots of a publication (`gc.enabled` is false), because they would delete files of
the stream. So the vacuum expires them, and deletes metadata and delete files that only expired snapshots had.

Data files are compared by name, which a stream gives only once, because the vacuum may reach the lake by another path
(a link, another bucket of the same objects) than the publication.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.iceberg.commit.expiry import Expiry, expire
from deltacompact.iceberg.table import locations, manifests
from deltacompact.iceberg.table.content_files import ContentFile, Manifest, Status
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata
from deltacompact.iceberg.table.other_heads import snapshots_elsewhere
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader
from deltacompact.storage.identity import file_name

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


def held_files(catalog: Any, table_id: str, old_s: float, dry_run: bool) -> frozenset[str]:
    """Expire snapshots that were replaced before `old_s` (seconds). Returns the names of the data files of the others.

    `catalog` is PyIceberg's. Raises InputError if the Iceberg table is not there, what `expire` raises, and the errors
    of the catalog: then nobody knows what may be deleted.
    """
    try:
        table = IcebergTable.load(catalog, table_id)
    except NotFoundError as error:
        raise InputError(
            f"{error}, to which the table is published: `compact` and `publish` create it from compacted rows, "
            "`publish --stop` ends it (nothing was deleted)"
        ) from error
    gone: list[Snapshot] = []
    if dry_run:
        old, left = _old(table.metadata, old_s), table.metadata.snapshots
        left = {number: snapshot for number, snapshot in left.items() if number not in old}
        elsewhere = snapshots_elsewhere(table)
    else:
        table, expired = expire(table, lambda metadata: Expiry(_old(metadata, old_s)))
        gone, left, elsewhere = [*expired.snapshots.values()], table.metadata.snapshots, expired.elsewhere
    reached = _SnapshotFiles(table)
    kept = reached.of(left.values())
    others = reached.of((snapshot for snapshot in elsewhere if snapshot.snapshot_id not in left), tolerant=True)
    still = set(map(locations.identity_of, kept.own | others.own))
    unreached = (path for path in reached.of(gone).own if locations.identity_of(path) not in still)
    locations.discard_all(reached.store, sorted(unreached))
    return frozenset(map(file_name, kept.data | others.data))


def _old(metadata: TableMetadata, old_s: float) -> frozenset[int]:
    """The ids of snapshots that are not the head of a branch or tag, and have not been since."""
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    until_ms = {number: snapshot.timestamp_ms for number, snapshot in metadata.snapshots.items()}
    for snapshot in metadata.snapshots.values():
        if (parent := snapshot.parent_id) in until_ms:
            until_ms[parent] = max(until_ms[parent], snapshot.timestamp_ms)
    return frozenset(number for number, ms in until_ms.items() if ms < old_s * 1000) - heads


@dataclass(frozen=True, slots=True)
class _HeldFiles:
    """The data files of some snapshots, and the files that only the Iceberg table has: metadata, delete files."""

    data: frozenset[str]
    own: frozenset[str]


class _SnapshotFiles:
    """Reads the files of snapshots. Each manifest is read once."""

    def __init__(self, table: IcebergTable) -> None:
        self.store = table.store
        self._reader = StateReader(self.store)

    def of(self, snapshots: Iterable[Snapshot], tolerant: bool = False) -> _HeldFiles:
        """`tolerant`: a manifest list or a manifest that is gone names nothing. Else NotFoundError is raised."""
        lists = sorted({snapshot.manifest_list for snapshot in snapshots})
        with ThreadPoolExecutor(locations.READS_AT_ONCE) as pool:
            listed = chain.from_iterable(pool.map(partial(_unless_missing, self._listed, tolerant), lists))
            found = {manifest.path: manifest for manifest in listed}
            read = pool.map(partial(_unless_missing, self._live, tolerant), found.values())
            live = [file for files in read for file in files]
        data = frozenset(file.path for file in live if file.is_data)
        return _HeldFiles(data, frozenset((*lists, *found, *(file.path for file in live if not file.is_data))))

    def _listed(self, path: str) -> Iterable[Manifest]:
        return manifests.read_manifest_list(locations.fetched(self.store, path), path)

    def _live(self, manifest: Manifest) -> Iterable[ContentFile]:
        (entries,) = self._reader.entries_of([manifest])
        return [entry.file for entry in entries if entry.status is not Status.DELETED]


def _unless_missing(read: Callable[[_Asked], Iterable[_Answer]], tolerant: bool, asked: _Asked) -> Iterable[_Answer]:
    """What is read. Nothing, if that is gone and `tolerant` is true."""
    with suppress(*(NotFoundError,) if tolerant else ()):
        return read(asked)
    return ()

"""A branch at one moment: its live data files and its live delete files, with their sequence numbers.

    main, snapshot 7    manifest 1    a.parquet added       2    b.parquet deleted
                        manifest 2    d.parquet (deletes)
    live                data a.parquet                      deletes d.parquet

Manifests never change, so the reader keeps the entries of those that it has read: reading the branch again, after
another writer's commit, reads only what is new. What changes is the row id that a manifest list gives a manifest which
was written before the table was upgraded to version 3: its entries are read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from deltacompact.base.errors import InputError
from deltacompact.iceberg.table import locations, manifests
from deltacompact.iceberg.table.content_files import Content, Manifest, ManifestEntry, PartitionTuple, Spec, Status
from deltacompact.iceberg.table.lost_partitions import refuse_lost_partitions
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata
from deltacompact.storage.objects import ObjectStore

Heading = tuple[str, str, Mapping[int, Spec], str, int | None, int]
Scope = tuple[int, PartitionTuple]
"""Spec id and partition values. Equality deletes of a partitioned spec apply only within their scope; position deletes
compare only the values that are not lost (lost_partitions.py).
"""


def scope_of(entry: ManifestEntry) -> Scope:
    return entry.file.spec_id, entry.file.partition


@dataclass(frozen=True, slots=True)
class TableState:
    """A branch of a table. `snapshot` is None where the table has none yet."""

    metadata: TableMetadata
    branch: str
    snapshot: Snapshot | None
    manifests: tuple[Manifest, ...]
    data: tuple[ManifestEntry, ...]
    deletes: tuple[ManifestEntry, ...]

    @property
    def sequence_number(self) -> int:
        """The snapshot's sequence number. Plans keep it, because the snapshot may expire meanwhile (rule 7)."""
        return self.snapshot.sequence_number if self.snapshot else 0

    @property
    def snapshot_id(self) -> int | None:
        return self.snapshot.snapshot_id if self.snapshot else None

    @property
    def heading(self) -> Heading:
        """The heading of a plan: table, its UUID and specs, branch, snapshot and sequence number."""
        table = self.metadata
        return table.table_id, table.uuid, table.specs, self.branch, self.snapshot_id, self.sequence_number

    def is_global(self, entry: ManifestEntry) -> bool:
        """Whether a delete applies to every partition: an equality delete of an unpartitioned spec (rule 2)."""
        file = entry.file
        return file.is_equality_delete and self.metadata.specs[file.spec_id].is_unpartitioned


_Listed = tuple[str, int | None]
"""Identifies the entries of a manifest: its path, and the row id that its manifest list gives it."""


def _listed(manifest: Manifest) -> _Listed:
    return manifest.path, manifest.first_row_id


class StateReader:
    """Reads branches, and keeps the entries of manifests that it has read."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._entries: dict[_Listed, tuple[ManifestEntry, ...]] = {}

    def read(self, metadata: TableMetadata, branch: str) -> TableState:
        """The branch as `metadata` has it.

        Raises NotFoundError or CorruptionError naming a bad manifest; InputError naming a file that is listed twice, or
        an equality delete that may reach the rows of any partition (lost_partitions.py).
        """
        return self.at(metadata, branch, metadata.branch(branch))

    def at(self, metadata: TableMetadata, branch: str, snapshot: Snapshot | None) -> TableState:
        """The table as of a snapshot, which is or was the head of a branch. Raises what `read` raises."""
        if snapshot is None:
            return TableState(metadata, branch, None, (), (), ())
        listed = self.listed(snapshot)
        live = [entry for entries in self.entries_of(listed) for entry in entries if entry.status is not Status.DELETED]
        _refuse_listed_twice(metadata.table_id, branch, live)
        refuse_lost_partitions(metadata, live)
        return TableState(
            metadata,
            branch,
            snapshot,
            tuple(listed),
            tuple(entry for entry in live if entry.file.is_data),
            tuple(entry for entry in live if entry.file.content is not Content.DATA),
        )

    def listed(self, snapshot: Snapshot) -> list[Manifest]:
        """The manifests of a snapshot. If a line lacks its counts, the manifest is read and counted."""
        data = locations.fetched(self._store, snapshot.manifest_list)
        listed = manifests.read_manifest_list(data, snapshot.manifest_list)
        unknown = [manifest for manifest in listed if not manifests.is_counted(manifest)]
        of_path = {manifest.path: entries for manifest, entries in zip(unknown, self.entries_of(unknown), strict=True)}
        return [
            manifests.counted(manifest, of_path[manifest.path]) if manifest.path in of_path else manifest
            for manifest in listed
        ]

    def entries_of(self, listed: Sequence[Manifest]) -> list[tuple[ManifestEntry, ...]]:
        """The entries of each manifest, deleted ones included."""
        missing = [manifest for manifest in listed if _listed(manifest) not in self._entries]
        if missing:
            with ThreadPoolExecutor(min(locations.READS_AT_ONCE, len(missing))) as pool:
                for manifest, entries in zip(missing, pool.map(self._read, missing), strict=True):
                    self._entries[_listed(manifest)] = entries
        return [self._entries[_listed(manifest)] for manifest in listed]

    def changes(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """The entries that a snapshot added or deleted, from the manifests that it wrote."""
        written = [manifest for manifest in self.listed(snapshot) if manifest.snapshot_id == snapshot.snapshot_id]
        return [
            entry
            for entries in self.entries_of(written)
            for entry in entries
            if entry.status is not Status.EXISTING and entry.snapshot_id == snapshot.snapshot_id
        ]

    def forget(self, keep: Iterable[Manifest]) -> None:
        """Drop the entries of all manifests that are not in `keep`."""
        wanted = {_listed(manifest) for manifest in keep}
        self._entries = {listed: entries for listed, entries in self._entries.items() if listed in wanted}

    def _read(self, manifest: Manifest) -> tuple[ManifestEntry, ...]:
        if manifest.key_metadata is not None:
            raise InputError(f"{manifest.path} is encrypted: encrypted Iceberg tables cannot be compacted")
        return tuple(manifests.read_manifest(locations.fetched(self._store, manifest.path), manifest))


def _refuse_listed_twice(table_id: str, branch: str, live: Sequence[ManifestEntry]) -> None:
    """Refuse a branch that lists a file twice, so that readers see its rows twice.

    Files are removed by name, so nobody could remove one of the two: a rewrite would leave the rows once, and removing
    a delete file would remove both of its entries.
    """
    keys = [entry.file.key for entry in live]
    if len(set(keys)) == len(keys):
        return
    known: dict[tuple[str, int | None], ManifestEntry] = {}
    for key, entry in zip(keys, live, strict=True):
        former = known.setdefault(key, entry)
        if former is not entry:
            raise InputError(
                f"branch {branch!r} of {table_id!r} lists {entry.file.path} twice, added by snapshots "
                f"{former.snapshot_id} and {entry.snapshot_id}: remove it with the writer that added it, and add it "
                "once"
            )

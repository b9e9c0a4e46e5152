"""What a commit asks for: requirements, which the catalog checks, and updates, which it then makes.

a snapshot     the table is still that table, the branch's head still snapshot 8
               add snapshot 9; the head is 9; properties and statistics that go with it
a rollback     the table is still that table, the branch's head still snapshot 8
               the head is 7
an expiry      the table is still that table, no ref came, went or moved
               remove refs, statistics, snapshots
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata as PyTableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.snapshots import Snapshot as PySnapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)

from deltacompact.iceberg.table.metadata import Ref, Snapshot, StatisticsFile, TableMetadata
from deltacompact.iceberg.table.pyiceberg_door.errors import committing
from deltacompact.iceberg.table.pyiceberg_door.plain import plain_metadata
from deltacompact.iceberg.table.pyiceberg_door.views import view_of

Change: TypeAlias = tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]
"""Requirements and updates."""


def adding(
    metadata: TableMetadata,
    snapshot: Snapshot,
    branch: str,
    properties: Mapping[str, str] = MappingProxyType({}),
    properties_gone: Collection[str] = (),
    statistics: StatisticsFile | None = None,
) -> Change:
    """Add a snapshot and make it the head of a branch, if the head is still the one of `metadata`."""
    ref = metadata.refs.get(branch)
    requirements = (_same_table(metadata), _same_head(branch, ref))
    updates: list[TableUpdate] = [added(snapshot), moved(branch, snapshot.snapshot_id, ref)]
    if statistics is not None:
        updates.append(_statistics_update(statistics))
    if properties_gone:
        updates.append(RemovePropertiesUpdate(removals=list(properties_gone)))
    if properties:
        updates.append(SetPropertiesUpdate(updates=dict(properties)))
    return requirements, tuple(updates)


def _statistics_update(statistics: StatisticsFile) -> SetStatisticsUpdate:
    """The update that sets a statistics file. It lists no blobs, because PyIceberg refuses unknown blob types."""
    described = {
        "snapshot-id": statistics.snapshot_id,
        "statistics-path": statistics.path,
        "file-size-in-bytes": statistics.file_bytes,
        "file-footer-size-in-bytes": statistics.footer_bytes,
        "blob-metadata": [],
    }
    return SetStatisticsUpdate.model_validate({"statistics": described})


def expiring(metadata: TableMetadata, snapshots: Collection[int], refs: Collection[str]) -> Change:
    """Remove snapshots with their statistics, and refs, if all refs of `metadata` are as they were."""
    requirements = (_same_table(metadata), *(_same_head(name, ref) for name, ref in metadata.refs.items()))
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in refs]
    gone = [file for file in metadata.statistics if file.snapshot_id in snapshots]
    for number in sorted({file.snapshot_id for file in gone if not file.of_partitions}):
        updates.append(RemoveStatisticsUpdate.model_validate({"snapshot-id": number}))
    for number in sorted({file.snapshot_id for file in gone if file.of_partitions}):
        updates.append(RemovePartitionStatisticsUpdate.model_validate({"snapshot-id": number}))
    if snapshots:
        updates.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(snapshots)}))
    return requirements, tuple(updates)


def moving(metadata: TableMetadata, branch: str, snapshot_id: int) -> Change:
    """Make another snapshot the head of a branch, if the head is still the one of `metadata`."""
    ref = metadata.refs.get(branch)
    return (_same_table(metadata), _same_head(branch, ref)), (moved(branch, snapshot_id, ref),)


def tagging(
    metadata: TableMetadata, tags: Mapping[str, int | None], until_ms: int, properties: Mapping[str, str | None]
) -> Change:
    """Set tags and properties, or (None) remove them, if all tags are still as in `metadata`.

    Tags expire at `until_ms`. Iceberg counts a tag's age from the time of its snapshot.
    """
    refs = {name: metadata.refs.get(name) for name in tags}
    requirements = (_same_table(metadata), *(SameTag.of(name, ref) for name, ref in refs.items()))
    updates: list[TableUpdate] = []
    for name, snapshot_id in tags.items():
        if snapshot_id is not None:
            described = {"ref-name": name, "type": "tag", "snapshot-id": snapshot_id}
            age_ms = max(1, until_ms - metadata.snapshots[snapshot_id].timestamp_ms)
            updates.append(SetSnapshotRefUpdate.model_validate(described | {"max-ref-age-ms": age_ms}))
        elif refs[name] is not None:
            updates.append(RemoveSnapshotRefUpdate.model_validate({"ref-name": name}))
    changed = {name: value for name, value in properties.items() if value != metadata.properties.get(name)}
    if gone := [name for name, value in changed.items() if value is None]:
        updates.append(RemovePropertiesUpdate(removals=gone))
    if put := {name: value for name, value in changed.items() if value is not None}:
        updates.append(SetPropertiesUpdate(updates=put))
    return requirements, tuple(updates)


def commit(
    table: Table,
    metadata: TableMetadata,
    change: Change,
    staged: Callable[[str], None],
    all_refs: bool = False,
) -> TableMetadata:
    """Carry out a change. Returns the metadata after it, and raises as errors.committing() says.

    `staged` is told the new metadata file before it is written, if the catalog's client writes it.
    `all_refs`: require that there is no new ref, too. REST catalogs have no such requirement, so they do not check it.
    """
    requirements, updates = change
    catalog = view_of(table.catalog, table, metadata.last_sequence_number, staged)
    if all_refs and catalog is not table.catalog:
        refs = {name: ref.snapshot_id for name, ref in metadata.refs.items()}
        requirements = (*requirements, SameRefs(refs=refs))  # type: ignore[arg-type]
    with committing(metadata.table_id):
        done = catalog.commit_table(table, requirements, updates)
        return plain_metadata(metadata.table_id, done.metadata, done.metadata_location)


class SameRefs(ValidatableTableRequirement):
    """Requires that no ref came, went or moved. Checked by catalogs in which PyIceberg itself replaces the metadata."""

    type: Literal["deltacompact-same-refs"] = "deltacompact-same-refs"
    refs: dict[str, int]

    def validate(self, base_metadata: PyTableMetadata | None) -> None:  # type: ignore[override]
        found = {} if base_metadata is None else base_metadata.refs
        if {name: ref.snapshot_id for name, ref in found.items()} != self.refs:
            raise CommitFailedException("a branch or tag has been changed")


class SameTag(AssertRefSnapshotId):
    """Requires that a tag has not been moved, or set anew on the same snapshot. REST catalogs see only the former."""

    _age_ms: int | None = None

    @classmethod
    def of(cls, name: str, tag: Ref | None) -> SameTag:
        made = cls.model_validate({"ref": name, "snapshot-id": tag.snapshot_id if tag else None})
        made._age_ms = tag.max_ref_age_ms if tag else None
        return made

    def validate(self, base_metadata: PyTableMetadata | None) -> None:  # type: ignore[override]
        super().validate(base_metadata)
        found = base_metadata.refs.get(self.ref) if base_metadata else None
        if found is not None and found.max_ref_age_ms != self._age_ms:
            raise CommitFailedException(f"tag {self.ref} has been set anew")


def _same_table(metadata: TableMetadata) -> TableRequirement:
    return AssertTableUUID(uuid=uuid.UUID(metadata.uuid))


def _same_head(name: str, ref: Ref | None) -> TableRequirement:
    return AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id if ref else None})


def added(snapshot: Snapshot) -> AddSnapshotUpdate:
    others = {name: value for name, value in snapshot.summary.items() if name != "operation"}
    described = {
        "snapshot-id": snapshot.snapshot_id,
        "parent-snapshot-id": snapshot.parent_id,
        "sequence-number": snapshot.sequence_number,
        "timestamp-ms": snapshot.timestamp_ms,
        "manifest-list": snapshot.manifest_list,
        "schema-id": snapshot.schema_id,
        "summary": Summary(Operation(snapshot.summary["operation"]), **others),
        "first-row-id": snapshot.first_row_id,
        "added-rows": snapshot.added_rows,
    }
    return AddSnapshotUpdate(snapshot=PySnapshot.model_validate(described))


def moved(branch: str, snapshot_id: int, before: Ref | None) -> SetSnapshotRefUpdate:
    """The branch's new head. The update replaces the ref, so its retention is repeated."""
    described = {
        "ref-name": branch,
        "type": "branch",
        "snapshot-id": snapshot_id,
        "max-ref-age-ms": before.max_ref_age_ms if before else None,
        "max-snapshot-age-ms": before.max_snapshot_age_ms if before else None,
        "min-snapshots-to-keep": before.min_snapshots_to_keep if before else None,
    }
    return SetSnapshotRefUpdate.model_validate(described)

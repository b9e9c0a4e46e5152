"""Finds out whether a table is registered twice: another pointer leaves metadata files that ours does not remember.

    our pointer   00007-a3   its log: 00003, 00004, 00005, 00006
    00002-…       written before 00003                              the log forgot it
    00007-f1      same uuid, older than ours, not in our log        another head: what it reaches stays
    00008-c9      same uuid, newer, ours is the last one in its log     may be committed: what it reaches stays
    00007-d2      same uuid, newer, built on 00006, as ours was         it lost a race, or may be committed: as 00008-c9
    00009-b4      same uuid, newer, built on one that is not ours       our pointer is old: nothing may be deleted
    00008-5e      another uuid                                      not asked here (other_tables.py)

A commit that died before the catalog took it leaves 00008-c9, and another pointer may have it: we cannot tell. Where
the file names another folder for metadata, what was built on it may lie there, unseen: it is refused like 00009-b4.
A commit that lost a race has no manifests any more. Whoever needs them to know what is no orphan refuses it, too.

Times of files are the store's, times in metadata the writers'. While others commit, a file is there a moment before the
catalog has it. So we load the table again before we blame a file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.events import logger
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.locations import identity_of
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata, metadata_folder
from deltacompact.iceberg.table.metadata_files import is_metadata_file, metadata_document
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.storage.identity import identity
from deltacompact.storage.objects import ObjectStat, ObjectStore

LOOKS = 3
"""How often we compare the table with its files before we blame a newer file."""
LOOK_AGAIN_AFTER_S = 0.5
"""The second look comes after so long, the third one after twice as long."""

Listed = tuple[ObjectStore, Iterable[ObjectStat]]
"""A folder's store, and what is in it."""


@dataclass(frozen=True, slots=True)
class OtherHead:
    """A metadata file of this table that our pointer does not remember, and its snapshots.

    `is_newer` than our head; `is_next`: made from our head, for the same folder of metadata; `is_beside`: from a former
    one. `files`: the metadata files of its log, and its statistics files.
    """

    location: str
    identity: str
    is_newer: bool
    is_next: bool
    is_beside: bool
    files: tuple[str, ...]
    snapshots: tuple[Snapshot, ...]


def other_heads(
    table: IcebergTable, listed: Iterable[Listed] = (), wait: Callable[[float], None] = time.sleep
) -> tuple[OtherHead, ...]:
    """The metadata files that another pointer may have. `listed`: folders that are listed already."""
    folders = [*listed, *_metadata_folders(table)]
    found: tuple[OtherHead, ...] = ()
    for look in range(LOOKS):
        if look:
            wait(look * LOOK_AGAIN_AFTER_S)
            table = table.reloaded()
        found = tuple(_unknown(table.metadata, folders))
        if not any(head.is_newer for head in found):
            break
    return found


def refuse_newer(metadata: TableMetadata, heads: Iterable[OtherHead]) -> None:
    """Raise InputError, naming the file, if another pointer is ahead of ours by more than what one file shows."""
    newer = next((head.location for head in heads if head.is_newer and not head.is_next), None)
    if newer is not None:
        raise InputError(
            f"{metadata.table_id}: {newer} is newer than {metadata.metadata_location}, which the catalog has: the "
            "table is registered twice, or a commit was never finished. Nothing was deleted. Maintain it where that "
            "file is known; if no catalog knows it, remove it"
        )


def snapshots_elsewhere(table: IcebergTable, wait: Callable[[float], None] = time.sleep) -> tuple[Snapshot, ...]:
    """The snapshots that another pointer may have, each once: what they reach stays, if it is there. Raises as
    `refuse_newer` does, but not for a commit that lost a race to ours.

    The log names the metadata files that have snapshots of their own: nobody else tells why files stay for ever.
    """
    heads, ours = other_heads(table, wait=wait), table.metadata.snapshots
    refuse_newer(table.metadata, (head for head in heads if not head.is_beside))
    for head in heads:
        if any(snapshot.snapshot_id not in ours for snapshot in head.snapshots):
            logger.warning(
                "%s: the files of snapshots in %s stay: another pointer may lead there. If no catalog knows that file, "
                "remove it",
                table.metadata.table_id,
                head.location,
            )
    return snapshots_of(heads)


def snapshots_of(heads: Iterable[OtherHead]) -> tuple[Snapshot, ...]:
    """The snapshots of these heads, each once: most have the same ones."""
    return tuple({snapshot.manifest_list: snapshot for head in heads for snapshot in head.snapshots}.values())


def _metadata_folders(table: IcebergTable) -> Iterator[Listed]:
    """The folders of today's metadata file and of the next one."""
    metadata = table.metadata
    places = {metadata.metadata_location.rpartition("/")[0], metadata.metadata_folder}
    for folder in {identity_of(place): place for place in places}.values():
        yield locations.everything_in(table.store, folder)


def _unknown(metadata: TableMetadata, folders: Iterable[Listed]) -> Iterator[OtherHead]:
    stats = {
        identity(store, stat.path): (store, stat)
        for store, files in folders
        for stat in files
        if is_metadata_file(stat.path)
    }
    known = set(map(identity_of, (metadata.metadata_location, *metadata.metadata_log)))
    remembered_s = min((stat.modified_s for name, (_, stat) in stats.items() if name in known), default=0.0)
    asked = [file for name, file in stats.items() if name not in known and file[1].modified_s >= remembered_s]
    if asked:
        with ThreadPoolExecutor(min(locations.READS_AT_ONCE, len(asked))) as pool:
            for (store, stat), document in zip(asked, pool.map(_document, asked), strict=True):
                if document is not None and str(document.get("table-uuid")) == metadata.uuid:
                    yield _head(store.uri + stat.path, identity(store, stat.path), document, metadata)


def _document(found: tuple[ObjectStore, ObjectStat]) -> dict[str, Any] | None:
    """The JSON of a metadata file; None: it is gone, or was never finished."""
    store, stat = found
    try:
        return metadata_document(store.get(stat.path), stat.path)
    except (NotFoundError, CorruptionError):
        return None


def _head(location: str, name: str, document: dict[str, Any], ours: TableMetadata) -> OtherHead:
    when = int(document.get("last-updated-ms", 0)), int(document.get("last-sequence-number", 0))
    snapshots = tuple(
        Snapshot(
            snapshot["snapshot-id"],
            snapshot.get("parent-snapshot-id"),
            snapshot.get("sequence-number", 0),
            snapshot.get("timestamp-ms", 0),
            snapshot["manifest-list"],
        )
        for snapshot in document.get("snapshots") or ()
        if "manifest-list" in snapshot  # the oldest tables list manifests themselves
    )
    log = [entry["metadata-file"] for entry in document.get("metadata-log") or ()]
    named = [*log, *(file["statistics-path"] for file in document.get("statistics") or ())]
    named += [file["statistics-path"] for file in document.get("partition-statistics") or ()]
    is_newer = when[0] > ours.last_updated_ms or when[1] > ours.last_sequence_number
    folder = metadata_folder(document.get("location", ""), document.get("properties") or {})
    former = identity_of(log[-1]) if log and folder == ours.metadata_folder else None
    is_next = former == identity_of(ours.metadata_location)
    is_beside = former in {*map(identity_of, ours.metadata_log)}
    return OtherHead(location, name, is_newer, is_next, is_beside, tuple(named), snapshots)

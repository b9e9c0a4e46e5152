"""Finds the files of a published table that a vacuum must keep, because readers of the Delta table may need them.

    shown now                          c, d       stay, however old they are
    removed an hour ago                b          stays: a reader may be at the version before
    removed 4 days ago                 a          may be deleted

The vacuum also deletes objects of the Delta table itself: commits and checkpoints before the newest checkpoint that is
old enough, and files of deletion vectors that no file refers to.
"""

from __future__ import annotations

from collections.abc import Iterable

from deltacompact.base.errors import InputError
from deltacompact.publication.delta import log, vectors
from deltacompact.publication.delta.log import Action, Head
from deltacompact.publication.delta.table import PUBLICATION
from deltacompact.storage.identity import file_name
from deltacompact.storage.objects import ObjectStore


def held_files(store: ObjectStore, folder: str, old_s: float, dry_run: bool) -> frozenset[str]:
    """The names of the files that are shown, or were removed since `old_s` (seconds).

    `store` is the Delta table's folder, `folder` its URI. Raises InputError if the table is not there.
    """
    head = log.read_head(store)
    if head is None or PUBLICATION not in head.configuration:
        raise InputError(
            f"Delta table {folder}, to which the table is published, is not there: `compact` and `publish` create it "
            "from compacted rows, `publish --stop` ends it (nothing was deleted)"
        )
    needed = _needed(head, old_s * 1000)
    if not dry_run:
        _forget(store, old_s, needed)
    return frozenset(file_name(log.location_of(file, folder)) for file in needed)


def _needed(head: Head, old_ms: float) -> list[Action]:
    young = [file for file in head.removed.values() if file.get("deletionTimestamp", old_ms) >= old_ms]
    return [*head.added.values(), *young]


def _forget(store: ObjectStore, old_s: float, needed: Iterable[Action]) -> None:
    listing = log.listed(store)
    old = [version for version, stat in listing.checkpoints.items() if stat.modified_s < old_s]
    first = max(old, default=0)
    gone = [stat.path for files in (listing.commits, listing.checkpoints) for v, stat in files.items() if v < first]
    used = {vectors.file_of(file["deletionVector"]) for file in needed if file.get("deletionVector")}
    for stat in store.list(vectors.PREFIX):
        if vectors.is_vector_file(stat.path) and stat.path not in used and stat.modified_s < old_s:
            gone.append(stat.path)
    store.delete(gone)

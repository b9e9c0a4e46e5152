"""Removes files below a table's location that nothing reaches.

    1  list       every file below the location: before reachability is computed, so that a file which comes later is
                  not listed, and a file which is listed was there when the metadata was read
    2  reach      metadata files, lists, manifests, data, deletes and statistics of the current table
    3  compare    files that the metadata names below the location, and that were there before, must be listed;
                  otherwise names in metadata and names in storage differ, and nothing can be said about any file
    4  delete     what is listed, not reached, and old enough

A scheme that changed (s3a, s3), an escaped name, a link or a slash too many show in step 3, or are the same identity. A
bucket that has two names does not: so a candidate whose file name is that of a reached file elsewhere stops everything.

These stay: files in hidden folders (".x", "_x"), other tables below the location, `version-hint.text`, the work of
sessions that can still be resumed, and key indexes that somebody uses.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from deltacompact.base.errors import CorruptionError, InputError
from deltacompact.base.wording import counted
from deltacompact.catalog.iceberg.key_index.upkeep import kept_files
from deltacompact.catalog.iceberg.maintain.options import MaintainOptions
from deltacompact.catalog.iceberg.maintain.reach import (
    PATHS_SHOWN,
    File,
    each_live_file,
    is_inside,
    manifests_of,
    metadata_document,
)
from deltacompact.catalog.iceberg.maintain.sessions import Sessions
from deltacompact.catalog.iceberg.table import locations
from deltacompact.catalog.iceberg.table.locations import folder_identity, identity_of
from deltacompact.catalog.iceberg.table.metadata import TableMetadata
from deltacompact.catalog.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.storage.identity import identity
from deltacompact.storage.objects import ObjectStat, ObjectStore, discard, unfinished

_METADATA_FILE = re.compile(r"(.*/|)metadata/[^/]+\.metadata\.json(\.gz)?")
_VERSION_HINT = "version-hint.text"


@dataclass(frozen=True, slots=True)
class OrphansResult:
    """What was removed (in a dry run: what would be)."""

    location: str
    listed: int = 0
    files: int = 0
    bytes: int = 0
    folders: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Removed files by folder: the first part of their paths below the location."""
    paths: tuple[str, ...] = ()
    """The first of them."""
    too_young: int = 0
    at_work: int = 0
    """Files of sessions that work or can be resumed."""
    hidden: int = 0
    unfinished: int = 0
    """Writes that a process began and never ended: on S3 uploads, on a disk files that no listing shows."""
    other_tables: tuple[str, ...] = ()
    """Folders of other tables below the location. Nothing in them is touched."""
    nothing_to_do: str | None = None


@dataclass(frozen=True, slots=True)
class _Reached:
    """By identity, the location that the metadata names: all files that the current table reaches, and those of them
    that it reached before the listing, too."""

    all: Mapping[str, str]
    before: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RemoveOrphans:
    """Removes orphans of one table. `say` is told what happens, `now_ms` is the moment ages are counted from."""

    store: ObjectStore
    options: MaintainOptions
    now_ms: int
    io_properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    say: Callable[[str], None] = lambda line: None
    after_listing: Callable[[], None] = lambda: None
    """Called when the storage is listed. Tests let other writers commit there."""

    def run(self, table: IcebergTable, dry_run: bool = False) -> OrphansResult:
        """Raises CorruptionError if the listing lacks a file that the metadata names, and InputError if another table
        has its metadata here; then nothing has been deleted."""
        location = self.options.orphans_in or table.metadata.location
        folder = locations.store_of(location, self.io_properties)
        self.say(f"listing {location}")
        listed = list(folder.list(""))
        sessions = Sessions.of(self.store, self.now_ms, self.options.orphan_age_ms)
        self.after_listing()
        now = table.reloaded().metadata
        self.say(f"{counted(len(listed), 'file')} listed; reading {counted(len(now.snapshots), 'snapshot')}")
        reached = self._reached(table.metadata, now)
        names = {identity(folder, stat.path): stat for stat in listed}
        inside = folder_identity(location)
        self._refuse_holes(now, location, inside, names, reached)
        indexed = {identity(self.store, path) for path in kept_files(self.store, self.now_ms)}
        unreached = [stat for name, stat in names.items() if name not in reached.all and name not in indexed]
        others = self._other_tables(folder, now, unreached)
        hidden_names = _hidden_names(now)
        found = [stat for stat in unreached if not is_inside(stat.path, others)]
        shown = [stat for stat in found if not _is_hidden(stat.path, hidden_names)]
        old = [stat for stat in shown if self._is_old(stat)]
        orphans = [stat for stat in old if not sessions.at_work(stat.path)]
        self._refuse_other_names(now, inside, orphans, reached)
        begun = [stat for stat in unfinished(folder, "") if self._is_old(stat) and not is_inside(stat.path, others)]
        result = OrphansResult(
            location=location,
            listed=len(listed),
            files=len(orphans),
            bytes=sum(stat.bytes for stat in orphans),
            folders=dict(Counter(stat.path.partition("/")[0] for stat in orphans)),
            paths=tuple(stat.path for stat in orphans[:PATHS_SHOWN]),
            too_young=len(shown) - len(old),
            at_work=len(old) - len(orphans),
            hidden=len(found) - len(shown),
            other_tables=tuple(others),
            unfinished=len(begun),
            nothing_to_do=None if orphans or begun else _why_nothing(len(listed), len(shown)),
        )
        if not dry_run:
            free, journals = sessions.closed(orphans)
            self._delete(folder, [stat.path for stat in free])
            for journal in journals:
                journal.clear()
            discard(folder, begun)
        return result

    def _is_old(self, stat: ObjectStat) -> bool:
        return self.now_ms - stat.modified_s * 1000 > self.options.orphan_age_ms

    def _delete(self, folder: ObjectStore, paths: list[str]) -> None:
        for start in range(0, len(paths), locations.DELETED_AT_ONCE):
            batch = paths[start : start + locations.DELETED_AT_ONCE]
            folder.delete(batch)
            self.say(f"deleted {start + len(batch):,} of {counted(len(paths), 'file')}")

    def _reached(self, before: TableMetadata, now: TableMetadata) -> _Reached:
        """What the current table reaches; and what it reached already before the listing."""
        old = [found for number, found in now.snapshots.items() if number in before.snapshots]
        new = [found for number, found in now.snapshots.items() if number not in before.snapshots]
        statistics = [found.path for found in now.statistics if found in before.statistics]
        expected = self._named(statistics)
        lists, manifests = manifests_of(self.store, old)
        expected |= self._named([*manifests, *(file.location for file in lists)])

        def taken_by(found: dict[str, str]) -> Callable[[Mapping[str, File]], None]:
            return lambda files: found.update({name: file.location for name, file in files.items()})

        each_live_file(self.store, manifests.values(), taken_by(expected), self.say)
        lists, more = manifests_of(self.store, new)
        reached = self._named([*more, *(file.location for file in lists)])
        each_live_file(self.store, [more[path] for path in more.keys() - manifests.keys()], taken_by(reached), self.say)
        reached |= self._named((now.metadata_location, before.metadata_location, *now.metadata_log))
        reached |= self._named((*before.metadata_log, *(found.path for found in now.statistics)))
        return _Reached(reached | expected, expected)

    def _named(self, paths: Iterable[str]) -> dict[str, str]:
        return {identity_of(path): path for path in paths}

    def _refuse_holes(
        self, now: TableMetadata, location: str, inside: str, names: Collection[str], reached: _Reached
    ) -> None:
        missing = [path for name, path in reached.before.items() if name.startswith(inside) and name not in names]
        if missing:
            raise CorruptionError(
                f"{now.table_id}: {counted(len(missing), 'file')} that the metadata names, such as {missing[0]}, "
                f"{'is' if len(missing) == 1 else 'are'} not in the listing of {location}: nothing was deleted"
            )

    def _refuse_other_names(
        self, now: TableMetadata, inside: str, orphans: Iterable[ObjectStat], reached: _Reached
    ) -> None:
        """Raise CorruptionError if an orphan may be a file that the metadata names by another bucket or folder."""
        elsewhere = {
            posixpath.basename(path): path for name, path in reached.all.items() if not name.startswith(inside)
        }
        for stat in orphans:
            if (other := elsewhere.get(posixpath.basename(stat.path))) is not None:
                raise CorruptionError(
                    f"{now.table_id}: {stat.path} may be {other}, which the metadata names: nothing was deleted"
                )

    def _other_tables(self, folder: ObjectStore, now: TableMetadata, unreached: Iterable[ObjectStat]) -> list[str]:
        """Folders of tables below the location. Raises InputError if another table's metadata lies among ours."""
        own = folder_identity(now.metadata_folder)
        found = set()
        for stat in unreached:
            if match := _METADATA_FILE.fullmatch(stat.path):
                if match[1] == "" or identity(folder, stat.path).startswith(own):
                    self._refuse_foreign_metadata(folder, now, stat)
                else:
                    found.add(match[1])
        return sorted(found)

    def _refuse_foreign_metadata(self, folder: ObjectStore, now: TableMetadata, stat: ObjectStat) -> None:
        try:
            found = metadata_document(folder.get(stat.path), stat.path).get("table-uuid")
        except CorruptionError:
            return  # a file that was never finished belongs to nobody
        if found is not None and str(found) != now.uuid:
            raise InputError(
                f"{now.table_id}: {stat.path} is metadata of another table ({found}) with the same location, whose "
                "files cannot be told from orphans: nothing was deleted. Remove that file if the other table is gone"
            )


def _why_nothing(listed: int, unreached: int) -> str:
    if not unreached:
        return f"{counted(listed, 'file')}: each is reached, hidden or another table's"
    return f"{counted(listed, 'file')}: {unreached:,} that nothing reaches are too young"


def _hidden_names(metadata: TableMetadata) -> tuple[str, ...]:
    """Beginnings of folders that look hidden and are partitions ("_day=3")."""
    return tuple(f"{part.name}=" for spec in metadata.specs.values() for part in spec.fields if part.name[:1] in "._")


def _is_hidden(path: str, partitions: tuple[str, ...]) -> bool:
    """Whether other programs keep the file for themselves, as Spark sees it."""
    if posixpath.basename(path) == _VERSION_HINT:
        return True
    return any(part[:1] in "._" and not part.startswith(partitions or "/") for part in path.split("/"))

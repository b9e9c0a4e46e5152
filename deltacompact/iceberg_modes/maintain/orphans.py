"""Removes files below a table's location that nothing reaches.

    1  list       every file below the location: before reachability is computed, so that a file which comes later is
                  not listed, and a file which is listed was there when the metadata was read
    2  reach      metadata files, lists, manifests, data, deletes and statistics of the current table
    3  compare    files that the metadata names below the location, and that were there before, must be listed;
                  otherwise names in metadata and names in storage differ, and nothing can be said about any file
    4  ask        only if something could be deleted: are these files another table's? Signs of tables among the files
                  and other tables of the catalog whose folders overlap (other_tables.py), other pointers of this
                  table (table/other_heads.py): in doubt, nothing is deleted
    5  delete     what is listed, not reached, and old enough

A scheme that changed (s3a, s3), an escaped name, a link or a slash too many show in step 3, or are the same identity. A
bucket that has two names does not: so a candidate whose file name is that of a reached file elsewhere stops everything.

These stay: files in hidden folders (".x", "_x"), `version-hint.text`, the work of sessions that can still be resumed,
key indexes that somebody uses, and folders of other tables where a wider folder is searched.
"""

from __future__ import annotations

import posixpath
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.wording import counted
from deltacompact.iceberg.key_index.upkeep import kept_files
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.locations import folder_identity, identity_of
from deltacompact.iceberg.table.metadata import PUBLICATION, TableMetadata
from deltacompact.iceberg.table.metadata_files import is_metadata_file, metadata_document
from deltacompact.iceberg.table.other_heads import OtherHead, other_heads, refuse_newer, snapshots_of
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.maintain.options import MaintainOptions
from deltacompact.iceberg_modes.maintain.other_tables import DECLARED, VERSION_HINT, Searched, signs
from deltacompact.iceberg_modes.maintain.reach import (
    PATHS_SHOWN,
    File,
    each_live_file,
    is_below,
    manifests_of,
)
from deltacompact.iceberg_modes.maintain.sessions import Sessions
from deltacompact.storage.identity import identity
from deltacompact.storage.objects import ObjectStat, ObjectStore, discard, is_there, unfinished


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
    """Folders of other tables in a wider folder that was asked for. Nothing in them is touched."""
    nothing_to_do: str | None = None


@dataclass(frozen=True, slots=True)
class _ReachedFiles:
    """The locations of files by identity: all that the current table reaches, and those that it already reached before
    the listing."""

    all: dict[str, str]
    before: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _UnreachedFiles:
    """Files that nothing reaches. `orphans` are those that may be deleted."""

    unreached: tuple[ObjectStat, ...]
    orphans: tuple[ObjectStat, ...]
    shown: int
    hidden: int
    too_young: int
    at_work: int

    @classmethod
    def of(
        cls,
        files: Iterable[ObjectStat],
        partitions: tuple[str, ...],
        is_old: Callable[[ObjectStat], bool],
        sessions: Sessions,
    ) -> _UnreachedFiles:
        unreached = tuple(files)
        shown = [stat for stat in unreached if not _is_hidden(stat.path, partitions)]
        old = [stat for stat in shown if is_old(stat)]
        orphans = tuple(stat for stat in old if not sessions.at_work(stat.path))
        hidden, too_young = len(unreached) - len(shown), len(shown) - len(old)
        return cls(unreached, orphans, len(shown), hidden, too_young, len(old) - len(orphans))


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
    wait: Callable[[float], None] = time.sleep

    def run(self, table: IcebergTable, dry_run: bool = False) -> OrphansResult:
        """Raises CorruptionError if the listing lacks a file that the metadata names, and InputError if files may be
        another table's, or if a folder that was asked for has none; then nothing has been deleted."""
        location = self.options.orphans_in or table.metadata.location
        folder = locations.store_of(location, self.io_properties)
        self.say(f"listing {location}")
        listed = list(folder.list(""))
        own = map(folder_identity, (table.metadata.location, table.metadata.data_folder))  # empty in a new table
        if not listed and folder_identity(location) not in own and next(unfinished(folder, ""), None) is None:
            raise InputError(f"{table.metadata.table_id}: nothing lies below {location}: name another folder")
        sessions = Sessions.of(self.store, self.now_ms, self.options.orphan_age_ms)
        self.after_listing()
        table, before = table.reloaded(), table.metadata
        now = table.metadata
        self.say(f"{counted(len(listed), 'file')} listed; reading {counted(len(now.snapshots), 'snapshot')}")
        reached = self._reached(before, now)
        searched = Searched.of(location, now)
        names = {identity(folder, stat.path): stat for stat in listed}
        self._refuse_holes(now, location, searched.inside, names, reached)
        indexed = {identity(self.store, path) for path in kept_files(self.store, self.now_ms)}
        begun = {identity(folder, stat.path): stat for stat in unfinished(folder, "") if self._is_old(stat)}

        def sorted_out(others: Collection[str]) -> _UnreachedFiles:
            kept = reached.all.keys() | indexed
            mine = {name: stat for name, stat in names.items() if name not in kept and not is_below(name, others)}
            return _UnreachedFiles.of(mine.values(), _hidden_names(now), self._is_old, sessions)

        found, others = sorted_out(()), dict[str, str]()
        if found.orphans or begun:
            heads = other_heads(table, [(folder, listed)], self.wait)
            refuse_newer(now, heads)
            self._keep_other_heads(heads, reached)
            others = searched.left_alone(table, self.options.unlisted_allowed, self.say)
            found = sorted_out(others)
            begun = {name: stat for name, stat in begun.items() if not is_below(name, others)}
            self._refuse_signs(folder, now, location, found.unreached)
            _refuse_streams(now, searched, self.io_properties)
        orphans = found.orphans
        self._refuse_other_names(now, searched.inside, orphans, reached)
        result = OrphansResult(
            location=location,
            listed=len(listed),
            files=len(orphans),
            bytes=sum(stat.bytes for stat in orphans),
            folders=dict(Counter(stat.path.partition("/")[0] for stat in orphans)),
            paths=tuple(stat.path for stat in orphans[:PATHS_SHOWN]),
            too_young=found.too_young,
            at_work=found.at_work,
            hidden=found.hidden,
            other_tables=tuple(sorted(others.values())),
            unfinished=len(begun),
            nothing_to_do=None if orphans or begun else _why_nothing(len(listed), found.shown),
        )
        if not dry_run:
            free, journals = sessions.closed(orphans)
            self._delete(folder, [stat.path for stat in free])
            for journal in journals:
                journal.clear()
            discard(folder, begun.values())
        return result

    def _keep_other_heads(self, heads: Collection[OtherHead], reached: _ReachedFiles) -> None:
        """Keep the files that another pointer of this table may reach: of an older head, by what it still has.

        Raises NotFoundError if a manifest of a newer one is missing.
        """

        def take(files: Mapping[str, File]) -> None:
            reached.all.update({name: file.location for name, file in files.items()})

        for head in heads:
            reached.all[head.identity] = head.location
            reached.all.update(self._named(head.files))
        for is_newer in (True, False):
            snapshots = snapshots_of(head for head in heads if head.is_newer is is_newer)
            lists, manifests = manifests_of(self.store, snapshots, tolerant=not is_newer)
            reached.all.update(self._named([*manifests, *(file.location for file in lists)]))
            each_live_file(self.store, manifests.values(), take, self.say, tolerant=not is_newer)

    def _is_old(self, stat: ObjectStat) -> bool:
        return self.now_ms - stat.modified_s * 1000 > self.options.orphan_age_ms

    def _delete(self, folder: ObjectStore, paths: list[str]) -> None:
        for start in range(0, len(paths), locations.DELETED_AT_ONCE):
            batch = paths[start : start + locations.DELETED_AT_ONCE]
            folder.delete(batch)
            self.say(f"deleted {start + len(batch):,} of {counted(len(paths), 'file')}")

    def _reached(self, before: TableMetadata, now: TableMetadata) -> _ReachedFiles:
        """The files that the current table reaches, and those that it already reached before the listing."""
        old = [snapshot for number, snapshot in now.snapshots.items() if number in before.snapshots]
        new = [snapshot for number, snapshot in now.snapshots.items() if number not in before.snapshots]
        statistics = [file.path for file in now.statistics if file in before.statistics]
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
        reached |= self._named((*before.metadata_log, *(file.path for file in now.statistics)))
        return _ReachedFiles(reached | expected, expected)

    def _named(self, paths: Iterable[str]) -> dict[str, str]:
        return {identity_of(path): path for path in paths}

    def _refuse_holes(
        self, now: TableMetadata, location: str, inside: str, names: Collection[str], reached: _ReachedFiles
    ) -> None:
        missing = [path for name, path in reached.before.items() if name.startswith(inside) and name not in names]
        if missing:
            raise CorruptionError(
                f"{now.table_id}: {counted(len(missing), 'file')} that the metadata names, such as {missing[0]}, "
                f"{'is' if len(missing) == 1 else 'are'} not in the listing of {location}: nothing was deleted"
            )

    def _refuse_other_names(
        self, now: TableMetadata, inside: str, orphans: Iterable[ObjectStat], reached: _ReachedFiles
    ) -> None:
        """Raise CorruptionError if an orphan may be a file that the metadata names with another bucket or folder."""
        elsewhere = {
            posixpath.basename(path): path for name, path in reached.all.items() if not name.startswith(inside)
        }
        for stat in orphans:
            if (other := elsewhere.get(posixpath.basename(stat.path))) is not None:
                raise CorruptionError(
                    f"{now.table_id}: {stat.path} may be {other}, which the metadata names: nothing was deleted"
                )

    def _refuse_signs(
        self, folder: ObjectStore, now: TableMetadata, location: str, unreached: Iterable[ObjectStat]
    ) -> None:
        """Raise InputError for a sign that another table lies in the searched folder."""
        own = now.metadata_folder, f"{now.location.rstrip('/')}/metadata", *map(_folder_of, now.metadata_log)
        among_ours = tuple(set(map(folder_identity, own)))
        paths = list(signs(stat.path for stat in unreached))
        with ThreadPoolExecutor(locations.READS_AT_ONCE) as pool:
            for path, owner in zip(paths, pool.map(lambda path: _owner(folder, path), paths), strict=True):
                if owner == now.uuid or (owner is None and identity(folder, path).startswith(among_ours)):
                    continue
                whose = f"metadata of another table ({owner})" if owner else "a sign of another table"
                raise InputError(
                    f"{now.table_id}: {location.rstrip('/')}/{path} is {whose}, whose files cannot be told from "
                    "orphans: nothing was deleted. Remove that file if the other table is gone, or search a folder "
                    f"without it (--option location={now.data_folder})"
                )


def _refuse_streams(now: TableMetadata, searched: Searched, io_properties: Mapping[str, str]) -> None:
    """Raise InputError if the searched folder has files of a delta table of ours, as the Iceberg table does not know
    all of them. That is the table which this one shows, or one around a folder that was asked for."""
    parts = searched.location.rstrip("/").split("/")
    above = ["/".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)] if searched.is_wide else []
    around = [
        name for name in above if name.count("/") > 2 and is_there(locations.store_of(name, io_properties), DECLARED)
    ]
    if shown := now.properties.get(PUBLICATION):
        stream = folder_identity(shown)
        around += [shown] if stream.startswith(searched.inside) or searched.inside.startswith(stream) else []
    if around:
        raise InputError(
            f"{now.table_id}: {searched.location} has files of the delta table {around[0]}, which look like orphans: "
            "nothing was deleted. Its own files are for deltacompact vacuum"
        )


def _folder_of(location: str) -> str:
    return location.rpartition("/")[0]


def _owner(folder: ObjectStore, path: str) -> str | None:
    """The UUID of the table that a metadata file belongs to; None: the file does not tell, or was never finished."""
    if not is_metadata_file(path):
        return None
    try:
        found = metadata_document(folder.get(path), path).get("table-uuid")
    except (CorruptionError, NotFoundError):
        return None
    return None if found is None else str(found)


def _why_nothing(listed: int, unreached: int) -> str:
    if not unreached:
        return f"none of {counted(listed, 'file')}: each is reached, hidden or another table's"
    return f"none of {counted(listed, 'file')}: {unreached:,} that nothing reaches are too young"


def _hidden_names(metadata: TableMetadata) -> tuple[str, ...]:
    """The beginnings of partition folders that only look hidden ("_day=3")."""
    return tuple(f"{part.name}=" for spec in metadata.specs.values() for part in spec.fields if part.name[:1] in "._")


def _is_hidden(path: str, partitions: tuple[str, ...]) -> bool:
    """Whether the file lies in a hidden folder, or is one, by Spark's rule: other programs keep it for themselves."""
    if posixpath.basename(path) == VERSION_HINT:
        return True
    return any(part[:1] in "._" and not part.startswith(partitions or "/") for part in path.split("/"))

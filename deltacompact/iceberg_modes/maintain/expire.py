"""Expires snapshots, then deletes the files that only they reached.

    1  plan       of the current metadata: snapshots 7 and 8 go                      a pure function
    2  commit     if no branch or tag has changed since; else plan again            the only step that readers see
    3  reach      files of 7 and 8, less the files of every snapshot that is left   read after the commit
    4  delete     data first, manifest lists last

A crash after the commit leaves orphans, which `remove-orphans` finds. Until we know that the commit took effect, we
delete nothing (rule 20). Files outside of the table's own folders may belong to others, as those of add_files do: they
stay, and are counted. So do files in `write.object-storage.path`: tables of many catalogs may share it, and the paths
of two tables may be alike there. So do files in doubt: we cannot tell which object their location names, or a snapshot
that is left has a file of the same name elsewhere. That may be the same object, by another name of its bucket.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from deltacompact.base.wording import counted
from deltacompact.iceberg.commit.expiry import ExpiredSnapshots, Expiry, expire
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.locations import identity_of
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.maintain.options import MaintainOptions
from deltacompact.iceberg_modes.maintain.reach import (
    MANIFESTS,
    PATHS_SHOWN,
    STATISTICS,
    File,
    each_live_file,
    folders_of,
    is_inside,
    manifests_of,
)
from deltacompact.iceberg_modes.maintain.retention import plan_expiry, why_nothing
from deltacompact.storage.identity import file_name
from deltacompact.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class ExpireResult:
    """What expired, and what was deleted for it (in a dry run: what would be)."""

    snapshots: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    files: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Deleted files by kind."""
    bytes: int = 0
    paths: tuple[str, ...] = ()
    """The first of the deleted files."""
    kept_outside: int = 0
    """Unreachable files outside of the table's folders. They are not deleted."""
    in_doubt: tuple[str, ...] = ()
    """Unreachable files in doubt (see above). They are not deleted."""
    nothing_to_do: str | None = None


@dataclass(frozen=True, slots=True)
class _Unreached:
    """What only expired snapshots reach: the files to delete, in order; how many lie outside of the table's folders;
    and the files in doubt."""

    own: tuple[File, ...]
    outside: int
    in_doubt: tuple[str, ...]

    @classmethod
    def of(cls, files: Sequence[tuple[str, File]], folders: Collection[str], elsewhere: Container[str]) -> _Unreached:
        """`files` by identity. `elsewhere`: names of files outside of the folders that the table still has."""
        inside = [(name, file) for name, file in files if is_inside(name, folders)]
        own: list[File] = []
        in_doubt: list[File] = []
        for name, file in inside:
            doubtful = file_name(name) in elsewhere or locations.in_doubt(file.location) is not None
            (in_doubt if doubtful else own).append(file)
        return cls(tuple(own), len(files) - len(inside), tuple(file.location for file in in_doubt))


@dataclass(frozen=True, slots=True)
class ExpireSnapshots:
    """Expires snapshots of one table. `say` is told what happens, `now_ms` is the moment ages are counted from."""

    store: ObjectStore
    options: MaintainOptions
    now_ms: int
    say: Callable[[str], None] = lambda line: None
    before_commit: Callable[[], None] = lambda: None
    """Called before each commit. Tests let other writers commit there."""
    wait: Callable[[float], None] = time.sleep

    def plan(self, metadata: TableMetadata) -> ExpireResult:
        """What a run would do. Writes nothing."""
        expiry = self._planned(metadata)
        if expiry.is_empty:
            return ExpireResult(nothing_to_do=why_nothing(metadata, self.options))
        expired = ExpiredSnapshots()
        expired.add(metadata, expiry)
        left = [snapshot for number, snapshot in metadata.snapshots.items() if number not in expiry.snapshots]
        return self._result(expired, self._unreached(expired, metadata, left))

    def run(self, table: IcebergTable) -> ExpireResult:
        """Expire, then delete. If an error is raised before deleting begins, no file has been deleted.

        Raises as `expire` does, and NotFoundError or CorruptionError if a snapshot that is left cannot be read whole.
        """
        if self._planned(table.metadata).is_empty:
            return ExpireResult(nothing_to_do=why_nothing(table.metadata, self.options))
        after, expired = expire(table, self._planned, self.wait, self.before_commit)
        if expired.is_empty:
            return ExpireResult(nothing_to_do=why_nothing(after.metadata, self.options))
        now = after.reloaded().metadata
        elsewhere = [snapshot for snapshot in expired.elsewhere if snapshot.snapshot_id not in now.snapshots]
        unreached = self._unreached(expired, now, now.snapshots.values(), elsewhere)
        result = self._result(expired, unreached)
        own = unreached.own
        done = Counter[str]()

        def deleted(count: int) -> None:
            done["files"] += count
            self.say(f"deleted {done['files']:,} of {counted(len(own), 'file')}")

        locations.discard_all(self.store, [file.location for file in own], deleted)
        return result

    def _planned(self, metadata: TableMetadata) -> Expiry:
        return plan_expiry(metadata, self.options, self.now_ms)

    def _unreached(
        self,
        expired: ExpiredSnapshots,
        metadata: TableMetadata,
        left: Iterable[Snapshot],
        of_other_heads: Collection[Snapshot] = (),
    ) -> _Unreached:
        """The files that only expired snapshots reach."""
        left, folders = list(left), folders_of(metadata)
        self.say(f"reading {counted(len(expired.snapshots), 'expired snapshot')} and {len(left):,} that are left")
        lists, gone = manifests_of(self.store, list(expired.snapshots.values()), tolerant=True)
        lists_left, kept = manifests_of(self.store, left)
        more_lists, more = manifests_of(self.store, of_other_heads, tolerant=True)
        more = {path: manifest for path, manifest in more.items() if path not in kept}
        only_gone = {path: manifest for path, manifest in gone.items() if path not in kept.keys() | more.keys()}
        content: dict[str, File] = {}
        each_live_file(self.store, only_gone.values(), content.update, self.say, tolerant=True)
        upper = [
            *kept,
            *more,
            *(file.location for file in (*lists_left, *more_lists)),
            metadata.metadata_location,
            *metadata.metadata_log,
        ]
        upper += [file.path for file in metadata.statistics if file.snapshot_id not in expired.snapshots]
        named = set(map(identity_of, upper))
        elsewhere = {file_name(name) for name in named if not is_inside(name, folders)}
        if content:

            def keep(reached: Mapping[str, File]) -> None:
                for name in reached:
                    content.pop(name, None)
                    if not is_inside(name, folders):
                        elsewhere.add(file_name(name))

            each_live_file(self.store, kept.values(), keep, self.say)
            each_live_file(self.store, more.values(), keep, self.say, tolerant=True)
        above = [File(STATISTICS, file.path, file.file_bytes) for file in expired.statistics.values()]
        above += [File(MANIFESTS, manifest.path, manifest.file_bytes) for manifest in only_gone.values()]
        others = {identity_of(file.location): file for file in (*above, *lists)}
        in_order = (*sorted(content.items()), *((name, others[name]) for name in sorted(others)))
        return _Unreached.of([(name, file) for name, file in in_order if name not in named], folders, elsewhere)

    def _result(self, expired: ExpiredSnapshots, unreached: _Unreached) -> ExpireResult:
        own = unreached.own
        return ExpireResult(
            tuple(sorted(expired.snapshots, key=lambda number: expired.snapshots[number].timestamp_ms)),
            tuple(sorted(expired.refs)),
            dict(Counter(file.kind for file in own)),
            sum(file.bytes for file in own),
            tuple(file.location for file in own[:PATHS_SHOWN]),
            unreached.outside,
            unreached.in_doubt,
        )

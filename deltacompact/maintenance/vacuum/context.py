"""What all partitions of a vacuum share: the present time, the files that a publication or bookmark needs, old objects
of bookmarks, and lists of files for other engines.

A vacuum keeps those files, whatever the log says. Partitions are vacuumed side by side and share one answer. The vacuum
asks for the store's time and reads the published table only when something could be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import attrgetter
from threading import Lock

from deltacompact.base.errors import InputError
from deltacompact.base.events import EventSink, fan_out
from deltacompact.base.model import Partition
from deltacompact.change_feed.bookmark import is_name
from deltacompact.change_feed.stream_bookmarks import bookmarks, names_kept
from deltacompact.delta_streams.paths import TablePaths, listed_version
from deltacompact.delta_streams.streams import Streams
from deltacompact.sinks.environment import sinks_asked_for
from deltacompact.storage.numbered import NumberedObject
from deltacompact.storage.objects import ObjectStat
from deltacompact.storage.store_clock import agreed_now_s


class VacuumContext:
    """Asks for the time, the published table and the sinks once, for all partitions of a vacuum.

    `now_s` is the moment from which ages are counted; None: now.
    """

    def __init__(
        self, catalog: Streams, table_id: str, age_min_s: float, dry_run: bool, now_s: float | None = None
    ) -> None:
        self.catalog = catalog
        self.table_id = table_id
        self.age_min_s = age_min_s
        self.dry_run = dry_run
        self._lock = Lock()
        self._now_s = now_s
        self._known: frozenset[str] | None = None
        self._has_given_bookmarks = False
        self._lists: dict[str, list[ObjectStat]] | None = None
        sinks = [] if dry_run else sinks_asked_for(catalog.store.uri)
        self.emit: EventSink | None = fan_out(sinks) if sinks else None
        """Whoever the environment wants to be told of a vacuum, one for all threads; None: nobody."""

    def now_s(self, path: str) -> float:
        """The time from which ages count, the same for all partitions. `path`: a new name for a probe object."""
        with self._lock:
            if self._now_s is None:
                ours_s, store = self.catalog.clock(), self.catalog.store
                self._now_s = ours_s if self.dry_run else agreed_now_s(store, path, ours_s)
            return self._now_s

    def names(self) -> frozenset[str]:
        """The names of the needed files; each name is unique. Raises if the published table cannot be read."""
        with self._lock:
            if self._known is None:
                target = self.catalog.publication(self.table_id)
                now_s = self.catalog.clock() if self._now_s is None else self._now_s
                published = frozenset[str]() if target is None else self._read(target, now_s)
                self._known = published | names_kept(self.catalog, self.table_id, now_s)
            return self._known

    def replaced_bookmarks(self, old_s: float) -> list[ObjectStat]:
        """The table's bookmark objects to delete. The first partition that asks gets them."""
        with self._lock:
            found = [] if self._has_given_bookmarks else replaced_bookmarks(self.catalog, self.table_id, old_s)
            self._has_given_bookmarks = True
            return found

    def version_lists(self, partition: Partition) -> list[ObjectStat]:
        """The lists of files that were published for versions of a partition. Those of all partitions are found at
        once."""
        paths = TablePaths.of(self.table_id)
        with self._lock:
            if self._lists is None:
                self._lists = {}
                for stat in self.catalog.store.list(f"{paths.lists}files/"):
                    if listed_version(stat.path):
                        self._lists.setdefault(stat.path.rpartition("/")[0] + "/", []).append(stat)
            return self._lists.get(paths.version_lists(partition), [])

    def _read(self, target: str, now_s: float) -> frozenset[str]:
        from deltacompact.publication.targets import target_of

        try:
            return target_of(target).held_files(self.catalog.store, now_s - self.age_min_s, self.dry_run)
        except InputError:
            if self._was_compacted():
                raise
            return frozenset()  # the published table is made once rows are compacted

    def _was_compacted(self) -> bool:
        """Whether some partition has ever had compacted rows. A restatement and a rollback make versions without."""
        logs = (self.catalog.log(self.table_id, place) for place in self.catalog.partitions(self.table_id))
        return any(state.compacted for log in logs for state in log.chain())


def replaced_bookmarks(catalog: Streams, table_id: str, old_s: float) -> list[ObjectStat]:
    """The objects whose next one was put at `old_s` (store's clock, s) or before. Objects of other programs stay.

        mirror/…00.json    put in March    replaced by 01 in May            deleted
        mirror/…01.json    put in May      replaced by 02 an hour ago       stays: a consumer that saw it may put 02 now
        mirror/…02.json    the newest                                       stays for ever, even if it says "dropped"

    A consumer puts one at each step, under the number after the newest one that it saw. If that number had been
    deleted, it would be told that it was first. So an object goes once the one after it is old. What a consumer puts
    into a gap counts for nothing, as the greatest number counts: it cannot bring a dropped bookmark back.

    Raises InputError where a newest object is none of ours.
    """
    folder = TablePaths.of(table_id).bookmarks
    listed = sorted(filter(None, map(NumberedObject.of, catalog.store.list(folder))), key=attrgetter("stat.path"))
    ours = [found for found in listed if is_name(found.folder.removeprefix(folder).removesuffix("/"))]
    replaced = [
        stat for _, of_bookmark in groupby(ours, attrgetter("folder")) for stat in _replaced(of_bookmark, old_s)
    ]
    if replaced:
        bookmarks(catalog, table_id)
    return replaced


def _replaced(of_bookmark: Iterator[NumberedObject], old_s: float) -> list[ObjectStat]:
    pairs = pairwise(found.stat for found in of_bookmark)
    return [stat for stat, following in pairs if max(stat.modified_s, following.modified_s) <= old_s]

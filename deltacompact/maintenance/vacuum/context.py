"""What all partitions of a vacuum share: the present time, the files that a publication or bookmark needs, and old
objects of bookmarks.

A vacuum keeps those files, whatever the log says. Partitions are vacuumed side by side and share one answer. The vacuum
asks for the store's time and reads the published table only when something could be deleted.
"""

from __future__ import annotations

from threading import Lock

from deltacompact.base.errors import InputError
from deltacompact.base.events import EventSink, fan_out
from deltacompact.change_feed.stream_bookmarks import names_kept
from deltacompact.delta_streams.streams import Streams
from deltacompact.maintenance.vacuum.bookmarks import replaced_bookmarks
from deltacompact.sinks.environment import sinks_asked_for
from deltacompact.storage.objects import ObjectStat
from deltacompact.storage.store_clock import agreed_now_s


class VacuumContext:
    """Asks for the time, the published table and the sinks once, for all partitions of a vacuum.

    `now_s` is the moment from which ages are counted; None: now.
    """

    def __init__(
        self, catalog: Streams, table_id: str, age_min_s: float, dry_run: bool, now_s: float | None = None
    ) -> None:
        self._catalog = catalog
        self._table_id = table_id
        self._age_min_s = age_min_s
        self._dry_run = dry_run
        self._lock = Lock()
        self._now_s = now_s
        self._known: frozenset[str] | None = None
        self._has_given_bookmarks = False
        sinks = [] if dry_run else sinks_asked_for(catalog.store.uri)
        self.emit: EventSink | None = fan_out(sinks) if sinks else None
        """Whoever the environment wants to be told of a vacuum, one for all threads; None: nobody."""

    def now_s(self, path: str) -> float:
        """The time from which ages count, the same for all partitions. `path`: a new name for a probe object."""
        with self._lock:
            if self._now_s is None:
                ours_s, store = self._catalog.clock(), self._catalog.store
                self._now_s = ours_s if self._dry_run else agreed_now_s(store, path, ours_s)
            return self._now_s

    def names(self) -> frozenset[str]:
        """The names of the needed files; each name is unique. Raises if the published table cannot be read."""
        with self._lock:
            if self._known is None:
                target = self._catalog.publication(self._table_id)
                now_s = self._catalog.clock() if self._now_s is None else self._now_s
                published = frozenset[str]() if target is None else self._read(target, now_s)
                self._known = published | names_kept(self._catalog, self._table_id, now_s)
            return self._known

    def replaced_bookmarks(self, old_s: float) -> list[ObjectStat]:
        """The table's bookmark objects to delete. The first partition that asks gets them."""
        with self._lock:
            found = [] if self._has_given_bookmarks else replaced_bookmarks(self._catalog, self._table_id, old_s)
            self._has_given_bookmarks = True
            return found

    def _read(self, target: str, now_s: float) -> frozenset[str]:
        from deltacompact.publication.targets import target_of

        try:
            return target_of(target).held_files(self._catalog.store, now_s - self._age_min_s, self._dry_run)
        except InputError:
            if self._was_compacted():
                raise
            return frozenset()  # the published table is made once rows are compacted

    def _was_compacted(self) -> bool:
        """Whether some partition has ever had compacted rows. A restatement and a rollback make versions without."""
        logs = (self._catalog.log(self._table_id, place) for place in self._catalog.partitions(self._table_id))
        return any(state.compacted for log in logs for state in log.chain())

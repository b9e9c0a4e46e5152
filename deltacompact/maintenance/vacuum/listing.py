"""The objects of a stream, listed before the vacuum reads the log: later objects are never candidates.

orders/stream/…, orders/data/…, orders/index/…, …      all: every object, in one listing
                                                       beside: all objects except those of the log
                                                       ours: objects of `beside` with names that deltacompact makes
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from operator import attrgetter

from deltacompact.delta_streams.paths import StreamPaths
from deltacompact.maintenance.vacuum.mark import SealedVersion
from deltacompact.storage.objects import ObjectStat, ObjectStore, is_there

_path = attrgetter("path")


@dataclass(frozen=True, slots=True)
class StreamListing:
    """One listing of a stream, sorted by path. `old_s`: what was put at this time (store's clock, s) or before is old.

    Stores date objects by seconds, disks by milliseconds: what was put just before a vacuum may have its very time.
    """

    store: ObjectStore
    paths: StreamPaths
    old_s: float
    all: dict[str, ObjectStat]
    beside: list[ObjectStat]
    ours: list[ObjectStat]

    @classmethod
    def of(cls, store: ObjectStore, paths: StreamPaths, old_s: float) -> StreamListing:
        listed = sorted(store.list(f"{paths.root}/"), key=_path)
        found = [stat for stat in listed if stat.path.startswith(paths.folders)]
        beside = [stat for stat in found if stat.path.startswith(paths.swept)]
        ours = [stat for stat in beside if paths.is_ours(stat.path)]
        return cls(store, paths, old_s, {stat.path: stat for stat in found}, beside, ours)

    def below(self, folder: str) -> Iterator[str]:
        """The paths of our objects in a folder."""
        first = bisect_left(self.ours, folder, key=_path)  # a chain has thousands of sessions, each with a folder
        return takewhile(lambda path: path.startswith(folder), map(_path, islice(self.ours, first, None)))

    def is_old(self, stat: ObjectStat) -> bool:
        return self.is_old_since(stat.modified_s)

    def is_old_since(self, time_s: float) -> bool:
        return time_s <= self.old_s

    def modified_s(self, path: str) -> float:
        """When an object was put, by the store's clock. Raises NotFoundError."""
        return (self.all.get(path) or self.store.stat(path)).modified_s

    def is_there(self, path: str) -> bool:
        """Whether an object was listed, or has been put since."""
        return path in self.all or is_there(self.store, path)

    def have_logs(self, versions: Mapping[str, SealedVersion]) -> bool:
        """Whether each version's log has exactly the entries that it had, none missing and none new."""
        numbered = filter(None, map(self.paths.entry_of, self.all))
        entries = Counter(version for version, _ in numbered)
        lengths = {version: entries[version] for version in versions}
        return lengths == {version: known.tail for version, known in versions.items()} and all(
            self.paths.entry(version, sequence) in self.all
            for version, tail in lengths.items()
            for sequence in range(tail)
        )

"""The objects that the log reaches: readers of a retained version may need them. And signs that it reaches too few.

version 2-77… (sealed an hour ago)    data/5c…, its index and runs, the records of its session     needed
version 3-9c… (active)                data/5c…, data/7a…                                           needed
data/7a…                              is not there                                                 a doubt
data/5c…                              is newer than every log entry                                a doubt
data/9e…                              was appended by reference, by any version in the chain       a user's: not ours

A user's file may lie in our folders under a name that looks like ours. The log says, for ever, which files were
appended by reference. They are recognized by their names, because URIs can be spelled in several ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import ObjectRef
from deltacompact.base.errors import NotFoundError
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.streams import stream_files
from deltacompact.index.primary_key_index import IndexManifest, read_manifest
from deltacompact.maintenance.vacuum.chain import Chain
from deltacompact.maintenance.vacuum.listing import StreamListing
from deltacompact.storage.identity import file_name, identity, is_uri
from deltacompact.storage.objects import ObjectStat, ObjectStore


class Reached:
    """The reached objects. `paths` has their paths, and the URIs of files that were appended by reference."""

    def __init__(self, store: ObjectStore, paths: set[str]) -> None:
        self.paths = paths
        self._store = store
        self._referenced = {identity(store, path) for path in paths if is_uri(path)}

    def __contains__(self, path: str) -> bool:
        return path in self.paths or (bool(self._referenced) and identity(self._store, path) in self._referenced)


class ReachableFiles:
    """Which of the listed objects a chain reaches. Reads each index manifest once."""

    def __init__(self, listing: StreamListing, chain: Chain) -> None:
        self._listing = listing
        self._chain = chain
        self._manifest = lru_cache(maxsize=None)(self._read_manifest)
        users = chain.referenced
        self.ours = [stat for stat in listing.ours if file_name(stat.path) not in users]
        """The listed objects whose names come from the stream, without files that users appended by reference."""

    def reached(self) -> Reached:
        """The objects that retained versions need, and the bodies of log entries of every version in the chain."""
        needed = {path for state in self._chain.retained for path in self._paths_of(state)}
        bodies = {path for known in self._chain.sealed.values() for path in known.manifests}
        return Reached(self._listing.store, needed | bodies | set(self._chain.active.manifests))

    def doubts(self, reached: Reached, newest_s: float) -> Iterator[str]:
        """Needed files that are missing, and files that are newer than the log that names them (`newest_s`)."""
        waiting = {file.path for delta in self._chain.active.deltas for file in delta.files}
        for path in self._needed(self._chain.active):
            if not self._listing.is_there(path):  # it may have been committed after the listing
                or_retract = ", or retract its delta" if path in waiting else ""
                yield f"{path}, which the active version names, is missing: restore it{or_retract}"
        for stat in self.ours:
            is_record = self._listing.paths.is_record(stat.path)
            if stat.modified_s > newest_s and stat.path in reached and not is_record:
                yield (
                    f"{stat.path} is newer than every entry of the log that names it: entries were removed, or files "
                    "were copied or the clock was set back (then commit something, once the file's time has come)"
                )

    def waiting(self, active: list[DataFile], going: set[str]) -> tuple[ObjectStat, ...]:
        """Data files that stay although the active version does not need them. `going`: paths that do not stay.

        Without those of retracted deltas, see `retracted`.
        """
        needed = Reached(self._listing.store, {file.path for file in active})
        is_data, retracted = self._listing.paths.is_data, set(self.retracted())
        data = [stat for stat in self.ours if is_data(stat.path) and stat.path not in going and stat not in retracted]
        return tuple(stat for stat in data if stat.path not in needed)

    def retracted(self) -> tuple[ObjectStat, ...]:
        """Data files of deltas that were retracted in the active version. Its readers as of a moment may need them."""
        active = self._chain.active
        gone = {file.path for delta in active.committed if delta.position in active.retracted for file in delta.files}
        gone -= {file.path for file in stream_files(active)}
        return tuple(stat for stat in self.ours if stat.path in gone)

    def _needed(self, active: StreamState) -> Iterator[str]:
        """The objects that a reader of the active version needs, except files that the table does not own."""
        for file in stream_files(active):
            if file.managed:
                yield file.path
            if file.deletions:
                yield file.deletions.masks_path
        if active.index:
            yield active.index.path
            if self._listing.is_there(active.index.path):
                yield from self._manifest(active.index).paths

    def _paths_of(self, state: StreamState) -> Iterator[str]:
        """Every object that a reader of this version needs."""
        committed = [file for delta in state.committed for file in delta.files]
        for file in [*committed, *stream_files(state)]:  # readers that began before a retraction still read its files
            yield file.path
            if file.deletions:
                yield file.deletions.masks_path
        for ref in state.indices:
            yield ref.path
            try:
                manifest = self._manifest(ref)
            except NotFoundError:
                continue  # a vacuum with a lower minimum age, or another program, deleted it
            yield from manifest.paths
        if state.compacted:
            yield from self._listing.below(self._listing.paths.session(state.compacted.session_id))

    def _read_manifest(self, ref: ObjectRef) -> IndexManifest:
        return read_manifest(self._listing.store, ref)

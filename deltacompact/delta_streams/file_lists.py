"""Publish a compacted version to other engines: write lists of its files.

    <table>/published/symlink/day=2024-01-01/manifest         Hive, Athena, Presto, Redshift Spectrum: a symlink table
    <table>/published/files/day=2024-01-01/2-77b1….txt        DuckDB, Polars: a file a line, once for each version
    <table>/published/files/day=2024-01-01/latest.txt

Hadoop's engines take the URIs of a manifest literally. Some other engines decode a file:// URI and some do not, so
lists of local files have plain paths.

Each list is one object with every live file, so a reader sees one version or the next, never a mix. The lists hold
compacted files only: deltas since the compaction are not in them. A partition that waits for its first compaction, or
whose deltas were all retracted, has empty lists. One that was restated keeps its lists until it is compacted. Vacuum
deletes the lists of versions that it forgets.

There is no folder with just these files. S3 has no links, so the folder would be a second copy of the table. And an
engine that globs the folder while files are exchanged would see files of two versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from deltacompact.base.errors import InputError
from deltacompact.base.model import Partition, PartitionLike, Readers
from deltacompact.base.partitions import all_done
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.delta_streams.streams import Streams
from deltacompact.reading.parts import ahead_of_use


@dataclass(frozen=True, slots=True)
class PublishedLists:
    """The lists of one partition: URIs of the manifest and the list, and the number of deltas that they leave out."""

    partition: Partition
    version: str
    manifest: str
    files: str
    rows: int
    deltas_left_out: int


def live_files(catalog: Streams, table_id: str, partition: PartitionLike = None) -> list[str]:
    """Paths or URIs of the files that a published list would have. Raises what `publish` raises."""

    def listed(chosen: Partition) -> list[str]:
        return _plain(_uris(catalog, table_id, chosen, catalog.state(table_id, chosen)))

    chosen = catalog.chosen(table_id, partition)
    found = [file for files in all_done(chosen, listed, catalog.at_once) for file in files]
    if not found:
        check_compacted(catalog, table_id, chosen)
    return found


def publish(catalog: Streams, table_id: str, partition: PartitionLike = None) -> list[PublishedLists]:
    """Publish the active version of every partition, or of one.

    Raises InputError if a partition has files with dead rows, or was restated and is not compacted yet, after it has
    published the others; before it writes anything, if none of them was compacted yet, and for a table whose readers
    honour deletion vectors, because its next compaction may mark rows.
    """
    partitions = catalog.chosen(table_id, partition)
    check_compacted(catalog, table_id, partitions)
    return all_done(partitions, lambda chosen: publish_stream(catalog, table_id, chosen), catalog.at_once)


def check_compacted(catalog: Streams, table_id: str, partitions: Sequence[Partition]) -> None:
    """Raise InputError if none of these partitions was compacted yet: who asked for their lists expects some rows.

    Opens them until one was. A later version without rows counts: its lists get empty.
    """

    def was_compacted(partition: Partition) -> bool:
        state = catalog.state(table_id, partition)
        return state.compacted is not None or (state.number > 0 and not state.is_restated)

    first, others = partitions[:1], partitions[1:]
    if partitions and not any(chain(map(was_compacted, first), ahead_of_use(others, was_compacted, catalog.at_once))):
        where = f", partition {partitions[0]}" if len(partitions) == 1 else ""
        raise InputError(f"table {table_id!r}{where}: nothing was compacted yet")


def publish_stream(catalog: Streams, table_id: str, partition: Partition) -> PublishedLists:
    """Put the lists of the active version. If another one is active by now, a faster publisher's lists may have been
    replaced, so put them again.

    Raises what `publish` raises, but for partitions that were never compacted.
    """
    if catalog.remembered_table(table_id).readers is Readers.VECTORS:
        raise InputError(
            f"table {table_id!r} is declared for readers of deletion vectors, and readers of a list see dead rows: "
            f"declare it for readers of plain files first (deltacompact create CATALOG {table_id} --readers files)"
        )
    active = catalog.state(table_id, partition)
    while True:
        published = _put_lists(catalog, table_id, partition, active)
        active = catalog.state(table_id, partition)
        if active.version == published.version:
            return published


def _put_lists(catalog: Streams, table_id: str, partition: Partition, state: StreamState) -> PublishedLists:
    uris = _uris(catalog, table_id, partition, state)
    paths = TablePaths.of(table_id)
    files = paths.version_lists(partition)
    names = [f"{files}{state.version}.txt", f"{files}latest.txt", paths.symlinks(partition)]
    for name, listed in zip(names, (_plain(uris), _plain(uris), uris), strict=True):
        catalog.store.put(name, "".join(f"{file}\n" for file in listed).encode())
    _, latest, manifest = (f"{catalog.uri}{name}" for name in names)
    rows = state.compacted.rows if state.compacted else 0
    return PublishedLists(partition, state.version, manifest, latest, rows, len(state.deltas))


def _uris(catalog: Streams, table_id: str, partition: Partition, state: StreamState) -> list[str]:
    """The live files. Raises InputError if they have dead rows, and for restated rows that are not compacted yet."""
    if state.is_restated:
        raise InputError(f"table {table_id!r}, partition {partition}: its restated rows are not compacted yet")
    if state.compacted is None:
        return []
    if any(file.deletions for file in state.compacted.files):
        raise InputError(
            f"table {table_id!r}, partition {partition}: files have dead rows under deletion vectors, which other "
            "engines would see: compact with --purge first"
        )
    return [catalog.location + file.path for file in state.compacted.files]


def _plain(uris: Sequence[str]) -> list[str]:
    """Plain paths instead of file:// URIs."""
    return [uri.removeprefix("file://") for uri in uris]

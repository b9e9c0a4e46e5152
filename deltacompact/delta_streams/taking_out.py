"""Takes one file out of a stream, compacted or not, so that a damaged file does not block its partition for ever.

    version 3-77b1…   compacted files 14 (9,000 rows), 15 (500 rows, damaged); deltas 80, 90; an entry for each row
    version 4-c0de…   compacted file 14; deltas 80, 90; 9,000 entries; "500 rows of file 15 were taken out"

The successor has everything but the file: the other files, all deltas, tokens, tombstones, and the index without the
entries that point into the file. One seal puts it into force, as in a rollback. It has its own lineage, so that
destinations fold it anew. If the process dies before the seal, nothing has changed. Afterwards the stream does not know
the file's keys: a user who has its rows appends them again. The file itself stays until a vacuum. A call that is
repeated before another version comes gives the same answer.
"""

from __future__ import annotations

import functools
import uuid
from dataclasses import replace
from typing import Any

import numpy as np

from deltacompact.base import expect
from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import Commit, Delta, ObjectRef
from deltacompact.base.errors import ConflictError, CorruptionError, InputError, NotFoundError
from deltacompact.base.model import Partition, PartitionLike
from deltacompact.base.numbers import ChainFileNumber
from deltacompact.base.settings import DEFAULTS
from deltacompact.base.user_calls import user_call
from deltacompact.delta_streams.log.entries import Carried, Compacted, Entry, Retracted, TakenOut
from deltacompact.delta_streams.log.log import StreamLog
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.delta_streams.streams import Streams, stream_files
from deltacompact.index.entries import fields
from deltacompact.index.index_files import BucketWriter, IndexFile
from deltacompact.index.primary_key_index import IndexManifest, read_index, read_manifest, write_manifest
from deltacompact.storage.certain_put import telling_interrupts
from deltacompact.storage.objects import ObjectStore


@user_call
def retract_file(catalog: Streams, table_id: str, path: str, partition: PartitionLike = None) -> StreamState:
    """Take out one file, by its path in the log or the name that it was appended under. No other row is lost.

    `catalog` is what open_catalog returned; `table_id`, `partition` and `path` say which file.
    Returns the new version; its `opened.taken_out` says how many live rows went. Raises NotFoundError where no file of
    the active version has the path, ConflictError where a compaction, a restatement or a retraction came first.

    Examples:
        >>> path = catalog.append("orders", pa.table({"id": [5], "status": ["wrong"]})).files[0].path
        >>> deltacompact.retract_file(catalog, "orders", path).opened.taken_out.rows
        1
    """
    expect.text("path", path)
    chosen = catalog.partition(table_id, partition)
    where = f"table {table_id!r}, partition {chosen}"
    log, begun_s = catalog.log(table_id, chosen), catalog.clock()
    base = log.active(strictly=True)
    if base.compacted and base.compacted.source_table_id != table_id:
        raise InputError(f"{where} is a destination of {base.compacted.source_table_id!r}: take the file out there")
    if _is_taken_out(log, base, path):
        return base  # by an earlier call, whose process died or got no answer
    file = _file_named(base, path, where)
    now_ms = int(catalog.clock() * 1000)
    taken_out = TakenOut(file.path, file.live_rows)
    opened = log.opened_after(base, now_ms, base.last_position, taken_out=taken_out)
    successor = log.write_version(opened.number, [opened, *_contents(catalog.store, table_id, chosen, base, file)])

    def check(state: StreamState) -> None:
        if state.sealed:
            raise ConflictError(f"{where}: compacted or restated meanwhile")
        if state.retracted & {delta.position for delta in base.committed} != base.retracted_here:
            raise ConflictError(f"{where}: a delta was retracted meanwhile; start again")
        catalog.check_age(begun_s)

    with telling_interrupts():
        return log.release(base, successor, check, now_ms)


def _is_taken_out(log: StreamLog, state: StreamState, path: str) -> bool:
    """Whether the version was written to take out the file of this path or name, and has no file of it any more."""
    taken = state.opened.taken_out
    if taken is None or state.opened.parent is None:
        return False
    if taken.path == path:
        return all(file.path != path for file in stream_files(state))
    if _files_named(state, path):
        return False
    return taken.path in {file.path for file in _files_named(log.state(state.opened.parent), path)}


def _file_named(state: StreamState, path: str, where: str) -> DataFile:
    found = _files_named(state, path)
    if not found:
        raise NotFoundError(f"{where}: the active version has no file {path!r}")
    if len(found) > 1:
        paths = ", ".join(file.path for file in found[:4])
        raise InputError(f"{where}: {len(found)} files were appended as {path!r}: name one of {paths}")
    return found[0]


def _files_named(state: StreamState, path: str) -> list[DataFile]:
    """The files of a path, or else those that were appended under this name. One that came twice is one."""
    files = stream_files(state)
    found = [file for file in files if file.path == path] or [file for file in files if file.name == path]
    return list({file.path: file for file in found}.values())


def _contents(
    store: ObjectStore, table_id: str, partition: Partition, base: StreamState, file: DataFile
) -> list[Entry]:
    """The entries with the contents of the base, without the file."""
    entries: list[Entry] = []
    if base.compacted is not None and base.index is not None:
        compacted, index = base.compacted, base.index
        if file in compacted.files:
            index = _index_without(store, table_id, partition, index, file)
            compacted = replace(compacted, files=tuple(kept for kept in compacted.files if kept != file))
        entries.append(Compacted(replace(compacted, index=index)))
    if base.commits:
        entries.append(Carried(tuple(_commit_without(commit, file) for commit in base.commits)))
    return [*entries, *(Retracted(position) for position in sorted(base.retracted_here))]


def _commit_without(commit: Commit, file: DataFile) -> Commit:
    """The commit without the file, with its token and positions. A delta without files is legal."""

    def without(delta: Delta) -> Delta:
        return replace(delta, files=tuple(kept for kept in delta.files if kept.path != file.path))

    return replace(commit, deltas=tuple(map(without, commit.deltas)))


def _index_without(
    store: ObjectStore, table_id: str, partition: Partition, ref: ObjectRef, file: DataFile
) -> ObjectRef:
    """Write the index, as one run, without the entries that point into the file. Raises CorruptionError."""
    paths, manifest = TablePaths.of(table_id).stream(partition), read_manifest(store, ref)
    path_of = functools.partial(paths.fresh, "index", ".arrow", f"retract-{uuid.uuid4().hex}")
    buckets, gone = list[tuple[IndexFile, ...]](), 0
    for bucket in range(manifest.hash_bucket_count):
        written, of_bucket = _bucket_without(store, manifest, bucket, ChainFileNumber(file.number), path_of)
        buckets.append(written)
        gone += of_bucket
    if gone != file.live_rows:
        raise CorruptionError(f"{file.path}: the index has {gone} of its rows, the log says {file.live_rows}")
    rest = IndexManifest(manifest.encoding, (tuple(buckets),), manifest.rows - gone, manifest.tombstones)
    return write_manifest(store, paths.fresh("index", ".manifest.json"), rest)


def _bucket_without(
    store: ObjectStore, manifest: IndexManifest, bucket: int, number: ChainFileNumber, path_of: Any
) -> tuple[tuple[IndexFile, ...], int]:
    """The files of a bucket without the entries of a file, and the number of these; a chunk at a time in memory."""
    width, gone = manifest.encoding.entry_bytes, 0
    rows_per_file, chunk_entries = DEFAULTS.rows_per_primary_key_index_file, DEFAULTS.limits.chunk_entries
    with BucketWriter(store, path_of, width, rows_per_file, chunk_entries) as writer:
        for entries in read_index(store, manifest, bucket):
            stays = np.ascontiguousarray(fields(entries)["file"]) != number
            gone += int(np.count_nonzero(~stays))
            writer.write(entries[stays])
        return writer.close(), gone

"""Checks a table, and rehashes its index.

check   the log has no hole and no contradiction, positions ascend · every file has its rows, and every column can be
        decoded · values lie in the ranges of the log · every delta can be folded · every live row has one index entry
        with its digest in the right bucket, and every entry has a row
rehash  the entries of the index move to another number of hash buckets; an `index` log entry puts them into force
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from deltacompact import _kernels
from deltacompact.base import expect
from deltacompact.base.batching import batched
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import ConflictError, CorruptionError, InputError
from deltacompact.base.limits import READ_LIMITS
from deltacompact.base.model import Partition, PartitionLike
from deltacompact.base.partitions import all_done, side_by_side
from deltacompact.base.settings import DEFAULTS, HASH_BUCKETS_MAX, Options, at_least
from deltacompact.base.user_calls import user_call
from deltacompact.base.wording import counted, one_line
from deltacompact.delta_streams.appending.advice import with_advice
from deltacompact.delta_streams.appending.blocking import examined, fold
from deltacompact.delta_streams.log.entries import Entry, IndexReplaced
from deltacompact.delta_streams.log.log import StreamLog
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.delta_streams.snapshots import everything
from deltacompact.delta_streams.streams import Streams, stream_files
from deltacompact.executors.executor import Executor
from deltacompact.iceberg.deletes.ranges import read_batch, write_batches
from deltacompact.index.entries import TOMBSTONE, Entries, digests, fields, none, sorted_by_digest
from deltacompact.index.keys import Encoding
from deltacompact.index.live_bitmaps import LiveBits, live_tables_of_each
from deltacompact.index.primary_key_index import IndexManifest, read_index, read_manifest, write_manifest
from deltacompact.maintenance.stored_ranges import problems_of_file
from deltacompact.maintenance.vacuum.contradictions import Evidence, contradictions
from deltacompact.reading.live_rows import fold_plan
from deltacompact.session.rehash import rehash
from deltacompact.storage.certain_put import telling_interrupts
from deltacompact.storage.local import LocalStore
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import files, inspecting
from deltacompact.tabular.files import Part

_CHECKED_AT_ONCE = 8
"""Most partitions that are checked at a time: a check reads the rows, which takes memory."""
_CHUNK = 1 << 20
"""Entries of 32 bytes that are divided by bucket at a time."""

_Expected = Callable[[int], Entries]
"""The entries that a hash bucket should have."""


@dataclass(frozen=True, slots=True, repr=False)
class CheckResult:
    """The problems of one partition stream. A stream without problems is sound."""

    partition: Partition
    versions: int
    files: int
    rows: int
    index_entries: int
    problems: tuple[str, ...]

    def __repr__(self) -> str:
        if self.problems:
            more = f" (and {counted(len(self.problems) - 1, 'more problem')})" if len(self.problems) > 1 else ""
            return f"{self.partition}: {self.problems[0]}{more}"
        return (
            f"{self.partition}: sound; {counted(self.versions, 'version')}, {counted(self.files, 'file')}, "
            f"{counted(self.rows, 'compacted row')}, {counted(self.index_entries, 'index entry', 'index entries')}"
        )


@user_call
def check(
    catalog: Streams,
    table_id: str,
    partition: PartitionLike = None,
    *,
    quick: bool = False,
) -> list[CheckResult]:
    """Verify log, files and index, and that the deltas can be folded.

    `catalog` is what open_catalog returned, `table_id` and `partition` say what is checked (default: all partitions).
    `quick` reads no rows: it checks neither that all columns can be decoded, nor the digests of the compacted rows, nor
    the values of deltas. Each result has `problems`, a line for each. Raises NotFoundError for an unknown table or
    partition. Nothing is repaired.

    Examples:
        >>> [found.problems for found in deltacompact.check(catalog, "orders", quick=True)]
        [()]
    """
    expect.flag("quick", quick)
    chosen = catalog.chosen(table_id, partition)
    at_once = min(catalog.at_once, _CHECKED_AT_ONCE)
    return side_by_side(chosen, lambda stream: _check_stream(catalog, table_id, stream, quick), at_once)


def _check_stream(catalog: Streams, table_id: str, partition: Partition, quick: bool) -> CheckResult:
    rows, entries = 0, 0
    problems: list[str] = []
    paths = TablePaths.of(table_id).stream(partition)
    log = StreamLog(catalog.store, paths, catalog.log_limits)  # a new log, which reads every entry again
    try:
        evidence = Evidence.of(log, catalog.store.list(f"{paths.root}/"))
        tails, unsound = {}, list[str]()
        for state in log.chain():  # none is kept: a year has thousands of versions
            tails[state.version] = state.tail
            unsound += _log_problems(state)
        problems += [f"log: {contradiction}" for contradiction in contradictions(log, evidence, tails)]
    except Exception as error:
        return CheckResult(partition, 0, 0, 0, 0, (f"log: {one_line(error)}",))
    problems += unsound
    described = stream_files(state)
    at_once = min(catalog.at_once, _CHECKED_AT_ONCE)
    problems += filter(None, side_by_side(described, lambda file: _file_problem(catalog.store, file), at_once))
    if state.compacted and not quick:
        problems += [problem for file in state.compacted.files for problem in problems_of_file(catalog.store, file)]
    if state.compacted and state.index and not problems:
        try:
            manifest = read_manifest(catalog.store, state.index)
            rows, entries = manifest.rows, manifest.entries
            by_rows = contextlib.nullcontext() if quick else _expected_entries(catalog.store, state, manifest)
            with by_rows as expected:
                problems += _index_problems(catalog.store, state, manifest, expected)
        except Exception as error:
            problems.append(f"index: {one_line(error)}")
    try:
        problems += _fold_problems(catalog, table_id, partition, state, quick or bool(problems))
    except Exception as error:
        problems.append(f"deltas: {one_line(error)}")
    advised = [with_advice(problem, catalog, table_id, partition, state) for problem in dict.fromkeys(problems)]
    return CheckResult(partition, len(tails), len(described), rows, entries, tuple(advised))


def _file_problem(store: ObjectStore, file: DataFile) -> str | None:
    """What is wrong with a file as its footer tells, in a line."""
    try:
        if not file.managed:
            with files.opened(store, file):
                pass  # opening it raises if it has changed since the append
        stored = inspecting.inspect(
            store, file.path, file.content_type, inspecting.Asked(file.schema), managed=file.managed, logged=file
        )
    except Exception as error:
        return f"file: {one_line(error)}"
    if (stored.rows, stored.bytes) == (file.rows, file.bytes):
        return None
    found, logged = f"{stored.rows} rows in {stored.bytes} bytes", f"{file.rows} in {file.bytes}"
    return f"file {file.path}: {found}, the log says {logged}"


def _fold_problems(
    catalog: Streams, table_id: str, partition: Partition, state: StreamState, quick: bool
) -> Iterator[str]:
    """One line for every delta file that compactions cannot fold or readers cannot read."""
    if not state.deltas:
        return
    table = catalog.described(table_id)
    found = examined(catalog, table, state)
    for misfit in found.misfits:
        yield f"delta: {misfit.why}"
    for delta, file in () if quick else found.fitting:
        try:
            fold(catalog.store, found.shape, partition, delta.operation, file)
        except Exception as error:
            text = one_line(error)
            yield f"delta: {text}" if file.path in text else f"delta: {file.path}: {text}"
    if table.keys is not None and not found.misfits:
        fold_plan(catalog.store, everything(table_id, partition, state), table)


def _log_problems(state: StreamState) -> Iterator[str]:
    positions = [delta.position for delta in state.deltas]
    if any(later <= earlier for earlier, later in pairwise(positions)):
        yield f"log: stream positions of version {state.version} do not ascend"
    numbers = [file.number for file in state.compacted.files] if state.compacted else []
    if len(set(numbers)) != len(numbers):
        yield f"log: a file number of version {state.version} is used twice"


def _index_problems(
    store: ObjectStore, state: StreamState, manifest: IndexManifest, expected: _Expected | None
) -> Iterator[str]:
    assert state.compacted is not None
    compacted = sorted(state.compacted.files, key=lambda file: file.number)
    if not manifest.publishable:
        yield "index: the manifest of a round was published"
    numbers = np.array([file.number for file in compacted], np.uint32)
    pointed = _kernels.SurvivorRanks(numbers, np.array([file.rows for file in compacted], np.int64))
    tombstones = 0
    for bucket in range(manifest.hash_bucket_count):
        parts = list(read_index(store, manifest, bucket))
        entries = np.concatenate(parts) if parts else none(manifest.encoding.entry_bytes)
        view = fields(entries)
        live = view["file"] != TOMBSTONE
        tombstones += int(np.count_nonzero(~live))
        try:
            pointed.mark(np.ascontiguousarray(view["file"][live]), np.ascontiguousarray(view["row"][live]))
        except ValueError as error:
            yield f"index: bucket {bucket}: {error}"
            return
        if expected is not None and not _same(entries[live], expected(bucket)):
            yield f"index: bucket {bucket}: entries and the digests of the rows they point to differ"
    live_bits = LiveBits(store)
    for file in compacted:
        bits = live_bits.of(file)
        if bits is not None and not np.array_equal(pointed.mask(file.number), bits):
            yield f"index: the rows of {file.path} that have an entry are not those that its deletion vector leaves"
    if pointed.total != state.compacted.rows:
        yield f"index: {pointed.total} rows have an entry, the compacted files hold {state.compacted.rows}"
    if tombstones != manifest.tombstones:
        yield f"index: {tombstones} tombstones, the manifest says {manifest.tombstones}"


@contextlib.contextmanager
def _expected_entries(store: ObjectStore, state: StreamState, manifest: IndexManifest) -> Iterator[_Expected]:
    """The entries of a bucket, computed from the compacted rows: digest and pointer, in digest order.

    Those of all rows need not fit into memory: files of a temporary folder have them by bucket.
    """
    encoding, paths = Encoding(manifest.encoding.key_columns), list[str]()
    with tempfile.TemporaryDirectory(prefix="deltacompact-") as folder:
        divided, width = LocalStore(folder), encoding.entry_bytes
        for parts in batched(_entries_of(store, state, encoding), len, _CHUNK):
            grouped, offsets = _kernels.group_entries(parts, manifest.hash_bucket_count)
            paths.append(f"entries-{len(paths)}.arrow")
            write_batches(divided, paths[-1], grouped, offsets.tolist())
        yield lambda bucket: sorted_by_digest(np.concatenate([none(width), *read_batch(divided, paths, bucket, width)]))


def _entries_of(store: ObjectStore, state: StreamState, encoding: Encoding) -> Iterator[Entries]:
    assert state.compacted is not None
    parts = [Part(file, encoding.columns) for file in state.compacted.files]
    for file, tables in zip(state.compacted.files, live_tables_of_each(store, parts, READ_LIMITS), strict=True):
        for rows, table in tables:
            no_sort_keys = np.empty((table.num_rows, 0), np.uint8)
            yield _kernels.pack_entries(encoding.digests(table, file.path), no_sort_keys, file.number, rows)


def _same(found, expected) -> bool:  # type: ignore[no-untyped-def]
    """Whether digests and pointers are equal; `found` has sort keys, `expected` has none."""
    if len(found) != len(expected):
        return False
    return np.array_equal(digests(found), digests(expected)) and np.array_equal(found[:, -12:], expected[:, -12:])


def index_entries(catalog: Streams, table_id: str, partition: PartitionLike = None) -> int:
    """The number of index entries of a table, or of one partition."""

    def entries(chosen: Partition) -> int:
        ref = catalog.state(table_id, chosen).index
        return read_manifest(catalog.store, ref).entries if ref else 0

    return sum(side_by_side(catalog.chosen(table_id, partition), entries, catalog.at_once))


def rehash_table(
    catalog: Streams,
    table_id: str,
    hash_bucket_count: int,
    executor: Executor,
    partition: PartitionLike = None,
    options: Options = DEFAULTS,
) -> list[tuple[Partition, int, int]]:
    """Rehash the index of every compacted partition: (partition, buckets before, buckets after).

    If the call is interrupted, the old index stays in force. If a compaction of a partition was published meanwhile,
    the call raises ConflictError after it has rehashed the other partitions.
    """
    at_least("hash_bucket_count", hash_bucket_count, 1, HASH_BUCKETS_MAX)
    if not hasattr(executor, "submit"):
        raise InputError(f"executor is {executor!r}, it must be an Executor: see deltacompact.executors.choose")

    def rehashed(chosen: Partition) -> list[tuple[Partition, int, int]]:
        base = catalog.state(table_id, chosen, strictly=True)
        if base.index is None:
            return []
        manifest = read_manifest(catalog.store, base.index)
        if manifest.hash_bucket_count != hash_bucket_count:
            _rehash_stream(catalog, table_id, chosen, base, manifest, hash_bucket_count, executor, options)
        return [(chosen, manifest.hash_bucket_count, hash_bucket_count)]

    with telling_interrupts():
        return [done for of_one in all_done(catalog.chosen(table_id, partition), rehashed) for done in of_one]


def _rehash_stream(
    catalog: Streams,
    table_id: str,
    partition: Partition,
    base: StreamState,
    manifest: IndexManifest,
    hash_bucket_count: int,
    executor: Executor,
    options: Options,
) -> None:
    begun_s = catalog.clock()
    paths = TablePaths.of(table_id).stream(partition)
    path_of = functools.partial(paths.fresh, "index", ".arrow", f"rehash-{uuid.uuid4().hex}")
    rehashed = rehash(executor, catalog.store, manifest, hash_bucket_count, options, path_of)
    if rehashed.entries != manifest.entries or rehashed.run_entries(0) != manifest.entries:
        raise CorruptionError(f"table {table_id!r}, partition {partition}: rehashing lost entries")
    ref = write_manifest(catalog.store, paths.fresh("index", ".manifest.json"), rehashed)

    def decide(state: StreamState) -> Entry:
        if state.version != base.version:
            raise ConflictError(f"table {table_id!r}, partition {partition}: compacted while it was rehashed")
        catalog.check_age(begun_s)
        return IndexReplaced(ref)

    catalog.log(table_id, partition).extend(decide)

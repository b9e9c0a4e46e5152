"""The live rows of a snapshot: compacted files, folded with the deltas that are not compacted yet.

    compacted  k1 k2 k3      delta 90: upsert k1, delete k3      ->  k2 of the compacted file, k1 of the delta

Reading takes the same steps as a compaction, in this process, and publishes nothing. A table without keys returns its
upsert rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base.data_file import DataFile
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.model import OperationType, Partition, Table
from deltacompact.base.settings import DEFAULTS
from deltacompact.index.keys import Encoding
from deltacompact.index.live_bitmaps import LiveBits, live_mask, naming_file
from deltacompact.index.primary_key_index import empty_manifest, read_manifest
from deltacompact.index.remap import Relocator
from deltacompact.index.sort_widths import measured
from deltacompact.planning.plan import Capacity, CompactionPlan, SourceFile
from deltacompact.planning.planner import plan
from deltacompact.planning.terms import SessionTerms
from deltacompact.reading.parts import ReadParts, TablePart
from deltacompact.reading.skipping import NOTHING_SKIPPED, Skipping, known_of, known_of_partition
from deltacompact.steps.dedupe import BaseIndex, Folded
from deltacompact.steps.hash_bucket import SourceSlice, hash_bucket, slices
from deltacompact.steps.shuffle import Groups
from deltacompact.storage.fetched_file import ReadAhead
from deltacompact.storage.objects import ObjectStore
from deltacompact.table.ports import PartitionSnapshot
from deltacompact.tabular import partition_texts, schemas
from deltacompact.tabular.files import FileReader, Part

Bits = npt.NDArray[np.uint8]
"""One bit for each row of a file, the least significant first."""

_HERE = Capacity(1, 1 << 40, 1 << 40)
_ROWS_HASHED = 4_000_000
"""The keys of so many rows are read together."""


def schema_of(snapshot: PartitionSnapshot) -> pa.Schema:
    """The union of the columns of base and upserts. Deletes add no columns."""
    base = snapshot.base
    return schemas.union([*(base.files if base else ()), *_upserts(snapshot)], base.schema if base else None)


def _upserts(snapshot: PartitionSnapshot) -> list[DataFile]:
    return [file for delta in snapshot.deltas if delta.operation is OperationType.UPSERT for file in delta.files]


def live_parts(
    store: ObjectStore,
    snapshot: PartitionSnapshot,
    table: Table,
    schema: pa.Schema,
    limits: ReadLimits = READ_LIMITS,
    skipping: Skipping = NOTHING_SKIPPED,
) -> ReadParts:
    """The files that have live rows, in fold order, not read yet.

    Files without a wanted row are skipped. The keys of deltas are read all the same, because they tell which rows of
    other files live; unless all files are skipped.
    """
    partition, deltas = snapshot.partition, [file for delta in snapshot.deltas for file in delta.files]
    base = snapshot.base.files if snapshot.base else ()
    if skipping.may_match([known_of_partition(partition, skipping.asked)]) == [False]:
        return ReadParts([], skipped=len(base) + len(deltas))
    is_folded = table.keys is not None and bool(snapshot.deltas)
    live = LiveBits(store, limits)
    found: Sequence[tuple[DataFile, Bits | None, bool]]
    if is_folded:
        sources = live_sources(store, snapshot, table, limits)
        found = [(source.file, bits, not source.in_base) for source, bits in sources]
    else:
        found = [(file, None, False) for file in (*base, *_upserts(snapshot))]
    may = skipping.may_match([known_of(file, partition, skipping.asked) for file, _, _ in found])
    parts = [
        TablePart(
            file.likely_decoded_bytes,
            partial(_live_rows, store, live, file, bits, partition, schema, limits, skipping),
            is_open,
        )
        for (file, bits, is_open), wanted in zip(found, may, strict=True)
        if wanted
    ]
    skipped = sum(not wanted and not is_open for (_, _, is_open), wanted in zip(found, may, strict=True))
    return ReadParts(parts, len(deltas) if is_folded else 0, skipped)


def _live_rows(
    store: ObjectStore,
    live: LiveBits,
    file: DataFile,
    bits: Bits | None,
    partition: Partition,
    schema: pa.Schema,
    limits: ReadLimits,
    skipping: Skipping,
) -> Iterator[pa.Table]:
    """The rows of one file whose bits are set (None: those that its deletion vector leaves), without row groups that
    are skipped."""
    bits = live.of(file) if bits is None else bits
    lives = None if bits is None else live_mask(bits, file.rows)
    with FileReader(store, Part(file, schema.names), ReadAhead(limits)) as reader:
        lives = skipping.live(reader, lives)
        for _, rows in reader.slices() if lives is None else reader.wanted(lives):
            partition_texts.check_partition_values(rows, partition, file.path)
            yield schemas.align(rows, schema, partition, file.path)


class KeptEntries:
    """The entries of delta files, kept from one state of a stream to the next: most deltas are in both.

    state of 3 commits     files 0, 1, 2 are read
    state of 4 commits     file 3 is read

    A file that was taken back and came again with another operation, or other types, is another slice.
    """

    def __init__(self) -> None:
        self._terms: tuple[Encoding, int] | None = None
        self._kept: list[tuple[frozenset[SourceSlice], Groups]] = []

    def of(
        self,
        encoding: Encoding,
        hash_bucket_count: int,
        work: Sequence[SourceSlice],
        hashed: Callable[[Sequence[SourceSlice]], Groups],
    ) -> list[Groups]:
        """The entries of the slices. Those that are not kept, or that were made on other terms, are `hashed`."""
        if self._terms != (encoding, hash_bucket_count):
            self._terms, self._kept = (encoding, hash_bucket_count), []
        wanted = frozenset(piece for task in slices(work, _ROWS_HASHED) for piece in task)
        self._kept = [(pieces, entries) for pieces, entries in self._kept if pieces <= wanted]
        missing = wanted.difference(*(pieces for pieces, _ in self._kept))
        new = sorted(missing, key=lambda piece: (piece.ordinal, piece.rows))
        self._kept += [(frozenset(task), hashed(task)) for task in slices(new, _ROWS_HASHED)]
        return [entries for _, entries in self._kept]

    def clear(self) -> None:
        self._kept = []


def live_sources(
    store: ObjectStore,
    snapshot: PartitionSnapshot,
    table: Table,
    limits: ReadLimits = READ_LIMITS,
    kept: KeptEntries | None = None,
) -> list[tuple[SourceFile, Any]]:
    """Every file that has a live row, with one bit for each of its rows. `kept`: entries of an earlier state."""
    decided, partition = fold_plan(store, snapshot, table), snapshot.partition
    manifest = decided.base_manifest or empty_manifest(decided.encoding, decided.hash_bucket_count)
    base, relocator = BaseIndex(manifest, decided.base_ordinals), Relocator(store, manifest.relocations, limits)
    ordinals = np.arange(len(decided.sources), dtype=np.uint32)
    ranks = _kernels.SurvivorRanks(ordinals, np.array([source.file.rows for source in decided.sources], np.int64))
    live = LiveBits(store, limits)
    for source in decided.sources:
        if source.in_base:
            ranks.fill(source.ordinal, live.of(source.file))
    count = decided.hash_bucket_count
    deltas = [
        SourceSlice(source.file, source.ordinal, source.operation, (0, source.file.rows))
        for source in decided.sources
        if not source.in_base
    ]

    def grouped(work: Sequence[SourceSlice]) -> Groups:
        return next(hash_bucket(store, decided.encoding, partition, work, count, (0, count), limits))

    hashed = (kept or KeptEntries()).of(decided.encoding, count, deltas, grouped)
    new_of_bucket = ((bucket, [entries for part in hashed for entries in part.of(bucket)]) for bucket in range(count))
    for _, new, found in base.newest_of_each(store, new_of_bucket, decided.encoding, relocator, limits):
        folded = Folded(new, iter([found]), decided.encoding, decided.positions, decided.tombstone_retention)
        run, dead_ordinals, dead_rows = _kernels.changes(found, np.concatenate(list(folded)))
        split = _kernels.PointerSplit(np.zeros(len(ordinals), np.uint32), 1)
        split.push_entries(run)
        with naming_file(lambda ordinal: decided.sources[ordinal].file.path):
            ranks.unmark(dead_ordinals, dead_rows)
            ranks.mark(*split.finish()[:2])
    lives = [(source, ranks.mask(source.ordinal)) for source in decided.sources]
    return [(source, mask) for source, mask in lives if mask.any()]


def fold_plan(store: ObjectStore, snapshot: PartitionSnapshot, table: Table) -> CompactionPlan:
    """The plan of a compaction of this snapshot. The table has keys."""
    assert table.keys is not None
    snapshot = replace(snapshot, deltas=measured(store, snapshot.deltas, table.keys))
    manifest = read_manifest(store, snapshot.index) if snapshot.index else None
    terms = SessionTerms(table.keys, table.partition_keys, DEFAULTS, table.tombstone_retention)
    return plan(snapshot, terms, manifest, _HERE)

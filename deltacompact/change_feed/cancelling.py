"""Removes rows that are on both sides: they were copied, moved, or written again unchanged.

removed    b.parquet    1 x    2 y    3 z
added      d.parquet    1 x    2 Y    3 z           left: removed 2 y, added 2 Y

Rows become entries of 32 bytes: digest and place. Entries that do not fit into memory are divided by digest, in files
of a temporary folder. If equal rows occur several times, one side keeps as many as it has more than the other.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base import compute as pc
from deltacompact.change_feed.candidates import Candidates, Numbers
from deltacompact.change_feed.row_digests import Digests
from deltacompact.iceberg.deletes.ranges import read_batch, write_by_bucket
from deltacompact.index.entries import Entries, fields, none
from deltacompact.index.keys import DIGEST_BYTES, POINTER_BYTES
from deltacompact.storage.local import LocalStore

ENTRY_BYTES = DIGEST_BYTES + POINTER_BYTES
_SORTING_COPIES = 4
"""Sorting entries takes so many times their own memory."""
_CHUNK = 1 << 20
"""Entries that are divided at a time."""

Identified = Callable[[Candidates], Iterator[tuple[Numbers, Digests]]]
"""The rows of candidates: their numbers in the file, and the digest of what identifies them."""


def uncancelled(candidates: Sequence[Candidates], identified: Identified, held_bytes: int) -> list[Candidates]:
    """The candidates without the rows that the other side has, too."""
    rows = sum(candidate.count for candidate in candidates)
    buckets = max(1, -(-rows * ENTRY_BYTES * _SORTING_COPIES // held_bytes))
    entries = _entries(candidates, identified)
    kept = [_left([*entries], candidates)] if buckets == 1 else _by_bucket(entries, candidates, buckets)
    return list(_shrunk(candidates, list(kept)))


def _entries(candidates: Sequence[Candidates], identified: Identified) -> Iterator[Entries]:
    for ordinal, candidate in enumerate(candidates):
        for numbers, digests in identified(candidate):
            no_sort_keys = np.empty((len(numbers), 0), np.uint8)
            yield _kernels.pack_entries(digests, no_sort_keys, ordinal, numbers.astype(np.uint64))


def _by_bucket(entries: Iterator[Entries], candidates: Sequence[Candidates], buckets: int) -> Iterator[_RowsLeft]:
    with tempfile.TemporaryDirectory(prefix="deltacompact-") as folder:
        store, paths, waiting, count = LocalStore(folder), list[str](), list[Entries](), 0

        def write() -> None:
            paths.append(f"entries-{len(paths)}.arrow")
            write_by_bucket(store, paths[-1], waiting, ENTRY_BYTES, buckets)

        for part in entries:
            waiting.append(part)
            count += len(part)
            if count >= _CHUNK:
                write()
                waiting, count = [], 0
        write()
        for bucket in range(buckets):
            yield _left([*read_batch(store, paths, bucket, ENTRY_BYTES)], candidates)


@dataclass(frozen=True, slots=True)
class _RowsLeft:
    """The rows that are left: the ordinals of their candidates, and their numbers in the files."""

    ordinals: npt.NDArray[np.uint32]
    numbers: npt.NDArray[np.int64]


def _left(parts: Sequence[Entries], candidates: Sequence[Candidates]) -> _RowsLeft:
    joined = np.concatenate([none(ENTRY_BYTES), *parts])
    entries, digests = fields(joined), np.ascontiguousarray(joined[:, :16])
    sides = np.array([candidate.is_added for candidate in candidates], bool)[entries["file"]]
    kept = unmatched(digests.view(">u8").astype(np.uint64), sides)  # row ids as numbers: Arrow hashes these well
    return _RowsLeft(entries["file"][kept], entries["row"][kept].astype(np.int64))


def unmatched(digests: npt.NDArray[np.uint64], sides: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which rows have no partner of the same digest (n, 2) on the other side."""
    removed, added = np.flatnonzero(~sides), np.flatnonzero(sides)
    found = pc.index_in(pa.array(digests[removed, 0]), value_set=pa.array(digests[added, 0]))
    partners_of, partners = removed[np.asarray(found.is_valid())], added[np.asarray(found.drop_null())]
    kept = np.ones(len(sides), bool)
    kept[partners_of] = kept[partners] = False
    are_pairs = np.count_nonzero(~kept) == 2 * len(partners)  # if not, equal rows occur several times
    if are_pairs and (digests[partners_of, 1] == digests[partners, 1]).all():
        return kept
    return _unmatched_of_many(digests, sides)


def _unmatched_of_many(digests: npt.NDArray[np.uint64], sides: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """As `unmatched`, if digests occur several times. Costs four times as much."""
    order, groups, ranks, partners = ranked(digests, sides)
    kept = np.empty(len(sides), bool)
    kept[order] = ranks >= partners[groups]
    return kept


def ranked(
    digests: npt.NDArray[np.uint64], sides: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(rows in the order of digest and side, group of each, rank of each within group and side, pairs of each group).

    A row has a partner if its rank is less than the number of its group's pairs.
    """
    order = np.lexsort((sides, digests[:, 1], digests[:, 0]))
    ordered, of_side = digests[order], sides[order].astype(np.int64)
    begins = np.ones(len(order), bool)
    begins[1:] = (ordered[1:, 0] != ordered[:-1, 0]) | (ordered[1:, 1] != ordered[:-1, 1])
    groups = np.cumsum(begins) - 1
    slots = 2 * groups + of_side
    counts = np.bincount(slots, minlength=2 * (int(groups[-1]) + 1) if len(groups) else 0)
    starts = np.cumsum(counts) - counts
    ranks = np.arange(len(order)) - starts[slots]
    return order, groups, ranks, counts.reshape(-1, 2).min(axis=1)


def _shrunk(candidates: Sequence[Candidates], kept: Sequence[_RowsLeft]) -> Iterator[Candidates]:
    ordinals = np.concatenate([part.ordinals for part in kept])
    numbers = np.concatenate([part.numbers for part in kept])
    order = np.argsort(ordinals, kind="stable")
    bounds = np.searchsorted(ordinals[order], np.arange(len(candidates) + 1))
    for ordinal, candidate in enumerate(candidates):
        own = numbers[order[bounds[ordinal] : bounds[ordinal + 1]]]
        if len(own):
            yield candidate.only(own)


def lineage_digests(candidate: Candidates) -> Iterator[tuple[Numbers, Digests]]:
    """Row id and sequence number of the last change, as digests. If unknown: random ones, which equal no other."""
    tables = candidate.file.lineage(candidate.bits)
    for numbers, table in tables if tables is not None else ():
        digests = _numbers_as_digests(table)
        unknown = ~np.asarray(pc.and_(table.column(0).is_valid(), table.column(1).is_valid()))
        random = secrets.token_bytes(int(np.count_nonzero(unknown)) * DIGEST_BYTES)
        digests[unknown] = np.frombuffer(random, np.uint8).reshape(-1, DIGEST_BYTES)
        yield numbers, digests


def _numbers_as_digests(table: pa.Table) -> Digests:
    digests = np.zeros((table.num_rows, DIGEST_BYTES), np.uint8)
    for place in range(2):
        values = np.asarray(pc.fill_null(table.column(place), 0), np.int64)
        digests[:, 8 * place : 8 * place + 8] = values.astype(">i8").view(np.uint8).reshape(-1, 8)
    return digests

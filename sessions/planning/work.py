"""The work of a session in the terms that rates are learned for: pure arithmetic.

    4,000,000 base rows of 130 MB, 12 deltas of 240,000 rows, on 2 slots
    delta_file 6 · delta_row 240,000 · index_row 2,120,000 · base_row 4,000,000 · base_byte 130,000,000 · object 6 · …
    x rates    core seconds of one file, row, byte, ...      ->  1.9 s

A term is divided by the slots, as far as it can be: one task has at least a million rows to hash, and writes one file.
Every term grows with the data and shrinks with the slots, so more data never takes less and more slots never more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deltacompact.base.limits import LIMITS
from deltacompact.planning import sizing
from sessions.planning.sizes import Resources, SessionSizes
from sessions.planning.statistics import PartitionStatistics
from sessions.planning.throughput import driver_s

ROWS_PER_FILE = 4_000_000
"""The default of rows_per_compacted_file: what one task of materialize writes at most."""

RENEWED_SHARE, RELOCATED_SHARE = 2.0, 0.4
"""What it takes to read, check and renumber an entry of an index that is merged, and to relocate its pointer once, in
units of folding and writing an entry: measured with indexes of 0.4 to 15 M entries."""

TERMS = (
    "session",  # a session at all: its log, its records, the switch
    "delta_file",  # opened, and a task for it
    "delta_row",  # hashed, folded, given a pointer
    "delta_byte",  # decoded, and encoded in a compacted file
    "text_byte",  # of these, what CSV and JSON take besides
    "index_row",  # an entry looked at
    "merged_row",  # an entry merged with others and written
    "base_row",
    "base_byte",
    "object",  # a file of the index: one for each bucket and run
    "rehashed_row",
    "driver",  # a second of the driver of a cluster
)
"""What rates are for, one each."""

BASE_TERMS = ("base_row", "base_byte")
DELTA_TERMS = ("delta_row", "delta_byte")
"""What depends on the table: which files its deltas touch; in a first compaction, how wide and how alike rows are."""

STAGE_OF = {
    "session": "session",
    "delta_file": "hash_bucket",
    "delta_row": "hash_bucket",
    "text_byte": "hash_bucket",
    "index_row": "dedupe",
    "merged_row": "dedupe",
    "object": "write_index",
    "delta_byte": "materialize",
    "base_row": "materialize",
    "base_byte": "materialize",
    "rehashed_row": "rehash",
    "driver": "session",
}
"""Where a term's seconds are spent, about: progress is counted by it."""

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WorkTerms:
    """One session's terms, each divided by the slots that share it."""

    delta_file: float
    delta_row: float
    delta_byte: float
    text_byte: float
    index_row: float
    merged_row: float
    base_row: float
    base_byte: float
    object: float
    rehashed_row: float = 0.0
    driver: float = 0.0
    session: float = 1.0

    @property
    def vector(self) -> Vector:
        return np.array([getattr(self, term) for term in TERMS], np.float64)


def work_of(given: PartitionStatistics, sizes: SessionSizes, on: Resources) -> WorkTerms:
    """Every base file is taken to be written anew; where a table's deltas touch few of them, its rates learn it."""
    deltas, entries = given.delta_rows, given.index.entries if given.index else 0
    runs = len(given.index.runs) if given.index else 0
    # The index is searched where a run is added, else merged: in rounds once more after 1, 3, 7, … of them. Files were
    # rewritten with each run above the first, so pointers are relocated as often.
    renewed = (RENEWED_SHARE + RELOCATED_SHARE * max(0, runs - 1)) * entries
    merged = 0.0 if sizes.adds_run else (1.0 + math.log2(sizes.rounds)) * (entries + deltas) + renewed
    file_rows, file_bytes = ROWS_PER_FILE, sizing.TARGET_FILE_BYTES_MIN
    return WorkTerms(
        delta_file=_shared(given.delta_files, on.slots, 1),
        delta_row=_shared(deltas, on.slots, LIMITS.task_rows_min),
        delta_byte=_shared(given.delta_bytes - given.kept_bytes, on.slots, file_bytes),
        text_byte=_shared(given.text_bytes, on.slots, file_bytes),
        index_row=_shared(entries + deltas, on.slots, LIMITS.small_rows_per_bucket),
        merged_row=_shared(merged, on.slots, LIMITS.small_rows_per_bucket),
        base_row=_shared(given.base_rows, on.slots, file_rows),
        base_byte=_shared(given.base_bytes, on.slots, file_bytes),
        object=float(sizes.hash_buckets * (1 + runs)) / on.slots,
        rehashed_row=_shared(entries, on.slots, LIMITS.small_rows_per_bucket) if sizes.rehash else 0.0,
        driver=_driver_s(deltas + given.base_rows, on),
    )


def _shared(amount: float, slots: int, piece: float) -> float:
    """The share of the busiest slot, if a piece is not divided further."""
    return max(amount / slots, min(amount, piece))


def _driver_s(rows: int, on: Resources) -> float:
    """Seconds of the driver. Handing out a task costs nothing within one process."""
    return 0.0 if on.shared_process else driver_s(rows, on.nodes, on.slots // on.nodes, on.node_memory_bytes)

"""The work of a session as terms, and the seconds that each term takes. All forecasts of seconds come from here. Pure.

    4,000,000 base rows of 130 MB, all touched, 12 deltas of 240,000 rows, on 2 slots
    delta_file 6 · delta_row 240,000 · index_row 2,120,000 · base_row 4,000,000 · base_byte 130,000,000 · object 6 · …
    x rates    CPU seconds of one file, row, byte, ...      ->  1.9 s

`plan` uses FIRST_RATES. The control plane begins with them, and learns the rates of its own machines and tables.

Slots divide a term as far as it can be divided: a task hashes at least a million rows, or writes one file. Every term
grows with the data and shrinks with the slots, so more data never takes less time, and more slots never take more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deltacompact.base.limits import LIMITS
from deltacompact.planning.plan import CompactionPlan
from deltacompact.planning.sizing import file_sizes
from deltacompact.planning.statistics import PartitionStatistics, statistics_of
from deltacompact.planning.touched import UNKNOWN

ROWS_PER_FILE = 4_000_000
"""The default of rows_per_compacted_file: the most that a task of materialize writes."""

_DECODED_FILE_BYTES = 4 * file_sizes.TARGET_FILE_BYTES_MIN
"""The decoded bytes of a file that a task of materialize writes, roughly."""

RENEWED_SHARE, RELOCATED_SHARE = 2.0, 0.4
"""The time to read, check and renumber an entry of an index that is merged, and the time to relocate its pointer once.
The unit is the time to fold and write an entry. Measured with indexes of 0.4 to 33 M entries."""

TERMS = (
    "session",  # constant: the log, the records, the switch
    "delta_file",  # a delta file, opened in a task
    "delta_row",  # a delta row, hashed, folded, given a pointer
    "delta_byte",  # a stored byte of a delta, read, and written into a compacted file
    "text_byte",  # a byte of CSV or JSON, in addition to delta_byte
    "index_row",  # an index entry, looked at
    "merged_row",  # an index entry, merged with others
    "base_row",  # a row of the base, rewritten
    "base_byte",  # a stored byte of the base, rewritten
    "object",  # a file of the index: one for each bucket and run
    "rehashed_row",  # an index entry, moved to another bucket
    "driver",  # a second of the driver of a cluster
    "written_row",  # a delta row, written into a compacted file
    "delta_decoded",  # a byte in memory of a delta that is written
    "base_decoded",  # a byte in memory of the base that is rewritten
    "large_decoded",  # a byte in memory of a delta, in a row group that may be copied
    "copied_byte",  # a stored byte of a row group that no delta touches, in a rewritten file
    "arranged_byte",  # a byte in memory of a row that is laid out: sent to a cell, written, and read again
    "written_text",  # a byte of CSV or JSON, for each time that it is decoded to write rows
    "written_entry",  # an index entry, written into a run or a merged bucket
)
"""Each term has a rate. New terms come last: records of the version before have the first twelve."""

FIRST_RATES: Mapping[str, float] = {
    "session": 0.05,
    "delta_file": 0.004,
    "delta_row": 5e-7,
    "delta_byte": 3e-9,
    "text_byte": 1e-8,
    "index_row": 1e-8,
    "merged_row": 6e-8,
    "base_row": 2e-7,
    "base_byte": 2e-9,
    "object": 0.001,
    "rehashed_row": 2e-7,
    "driver": 1.0,
    "written_row": 1e-7,
    "delta_decoded": 1e-9,
    "base_decoded": 5e-10,
    "large_decoded": 3.7e-9,
    "copied_byte": 5e-10,
    "arranged_byte": 2.3e-8,
    "written_text": 4e-9,
    "written_entry": 2e-8,
}
"""Seconds for `session` and `driver`, CPU seconds for the other terms. Measured on the machine of the README, whose
runs they forecast within a factor of 1.5. They do not include the time to wait for a store."""

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
    "written_row": "materialize",
    "delta_decoded": "materialize",
    "base_decoded": "materialize",
    "large_decoded": "materialize",
    "copied_byte": "materialize",
    "arranged_byte": "lay_out",
    "written_text": "materialize",
    "written_entry": "write_index",
}
"""The stage in which most of a term's seconds are spent: progress is counted by it."""

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
    written_row: float = 0.0
    delta_decoded: float = 0.0
    base_decoded: float = 0.0
    large_decoded: float = 0.0
    copied_byte: float = 0.0
    arranged_byte: float = 0.0
    written_text: float = 0.0
    written_entry: float = 0.0

    @property
    def vector(self) -> Vector:
        return np.array([getattr(self, term) for term in TERMS], np.float64)


@dataclass(frozen=True, slots=True)
class Folding:
    """How a session folds. `adds_run`: the index gets a run instead of being merged."""

    hash_buckets: int
    rounds: int
    adds_run: bool
    rehash: bool


def work_of(given: PartitionStatistics, folding: Folding, slots: int, driver_s: float) -> WorkTerms:
    """The work of the busiest slot. With 1 slot: all work, as CPU seconds count it.

    Of the base, `given.touched` is rewritten: all of it, if nobody has looked.
    """
    deltas, entries = given.delta_rows, given.index.entries if given.index else 0
    runs = len(given.index.runs) if given.index else 0
    # If the session adds a run, it searches the index; otherwise it merges it, with rounds once more after 1, 3, 7, …
    # of them. A pointer is relocated once for each time that its file was rewritten.
    times = 1.0 + math.log2(folding.rounds)
    renewed = RENEWED_SHARE * entries + RELOCATED_SHARE * (given.index.relocated_rows if given.index else 0)
    entered = deltas if folding.adds_run else times * (entries + deltas)
    merged = 0.0 if folding.adds_run else entered + renewed
    file_rows, file_bytes = ROWS_PER_FILE, file_sizes.TARGET_FILE_BYTES_MIN
    touched = given.touched if given.laid_out is None else given.touched.where_rows_move(given.laid_out)
    written = 1.0 - given.kept_bytes / given.delta_bytes if given.delta_bytes else 1.0
    small = written * (1.0 - touched.large)
    arranged = 0.0
    if given.laid_out is not None:  # if nobody has looked, assume that keys touch only what is laid out
        base = given.laid_out if given.touched == UNKNOWN else touched.decoded_bytes
        arranged = small * given.delta_decoded_bytes + base * given.base_decoded_bytes
    largest = max(given.delta_file_rows, default=0)
    text_times = max(1.0, min(slots, largest / file_rows))  # each task that shares a text decodes it
    return WorkTerms(
        delta_file=_shared(given.delta_files, slots, 1),
        delta_row=_shared(deltas, slots, LIMITS.task_rows_min),
        delta_byte=_shared(small * given.delta_bytes, slots, file_bytes),
        text_byte=_shared(given.text_bytes, slots, file_bytes),
        index_row=_shared(entries + deltas, slots, LIMITS.small_rows_per_bucket),
        merged_row=_shared(merged, slots, LIMITS.small_rows_per_bucket),
        base_row=_shared(touched.decoded_rows * given.base_rows, slots, file_rows),
        base_byte=_shared(touched.decoded_bytes * given.base_bytes, slots, file_bytes),
        object=float(folding.hash_buckets * (1 + runs)) / slots,
        rehashed_row=_shared(entries, slots, LIMITS.small_rows_per_bucket) if folding.rehash else 0.0,
        driver=driver_s,
        written_row=_shared(small * deltas, slots, file_rows),
        delta_decoded=_shared(small * given.delta_decoded_bytes, slots, _DECODED_FILE_BYTES),
        large_decoded=_shared(written * touched.large * given.delta_decoded_bytes, slots, _DECODED_FILE_BYTES),
        base_decoded=_shared(touched.decoded_bytes * given.base_decoded_bytes, slots, _DECODED_FILE_BYTES),
        arranged_byte=_shared(arranged, slots, _DECODED_FILE_BYTES),
        copied_byte=_shared(touched.copied_bytes * given.base_bytes, slots, file_bytes),
        written_text=_shared(text_times * given.text_bytes, slots, given.text_file_bytes),
        written_entry=_shared(entered, slots, LIMITS.small_rows_per_bucket),
    )


def _shared(amount: float, slots: int, piece: float) -> float:
    """The amount of the busiest slot, if no piece is divided further."""
    return max(amount / slots, min(amount, piece))


def work_of_plan(
    plan: CompactionPlan, slots: int, driver_s: float, given: PartitionStatistics | None = None
) -> WorkTerms:
    """The most work that a plan may cause. `given`: better statistics than those of the plan."""
    folding = Folding(plan.hash_bucket_count, len(plan.rounds), plan.changes_only, plan.rehash)
    return work_of(given or statistics_of(plan), folding, slots, driver_s)


def expected_s(work: WorkTerms) -> float:
    """The seconds that the work is expected to take, by FIRST_RATES."""
    return math.fsum(getattr(work, term) * FIRST_RATES[term] for term in TERMS)


START_S: Mapping[str, float] = {"process": 0.3, "own_ray": 15.0}
"""Seconds until the first task may run. Measured: a process that imports everything, and reads and writes its records;
and the start of Ray on one machine."""


def together_s(sessions: Sequence[tuple[float, float]], slots: int, one_after_another: bool) -> float:
    """The seconds of several sessions that share slots. Each is given as (its seconds alone, its core-seconds)."""
    if one_after_another:
        return math.fsum(alone_s for alone_s, _ in sessions)
    longest_s = max((alone_s for alone_s, _ in sessions), default=0.0)
    return max(longest_s, math.fsum(core_s for _, core_s in sessions) / slots)

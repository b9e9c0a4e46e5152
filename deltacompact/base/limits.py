"""Thresholds that a small table never meets: when an index is merged, how many rows one task gets, how much is read.

    LIMITS                                   what a release works by
    Limits(chunk_entries=2, groups=3)        ten rows take the ways of ten million: for tests
    Settings(limits=…)                       handed in; the plan carries them, and every task gets its own

A limit decides how the work is divided, or when small things are merged, never which rows live. So attempts with other
limits are attempts at the same session, like those on a machine with other memory: what was decided is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError


def _check(limits: Any) -> None:
    """Counts and bytes are 1 or more; shares and seconds may be 0."""
    for field in fields(limits):
        value = getattr(limits, field.name)
        if field.name not in ("reading", "local_nodes") and not (field.name == "groups" and value is None):
            _check_number(field.name, value, 0 if "share" in field.name or field.name.endswith("_s") else 1)


def _check_number(name: str, value: float, minimum: int) -> None:
    if not expect.number(name, value) >= minimum:
        raise InputError(f"{name} is {value!r}, it must be {minimum} or more")


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """In which sizes Parquet files are read.

    batch_bytes         rows are decoded in batches of about so many bytes: larger buffers are fresh pages each time
    batch_rows_max      most rows of a batch
    run_bytes           row groups are read together up to this size, decoded: of a remote file that spares round trips
    read_ahead_bytes    of a remote file, so many bytes are fetched at a time
    tail_bytes          of a remote file: a footer that is not larger is read with one request
    """

    batch_bytes: int = 32 << 20
    batch_rows_max: int = 128 << 10
    run_bytes: int = 64 << 20
    read_ahead_bytes: int = 8 << 20
    tail_bytes: int = 64 << 10

    def __post_init__(self) -> None:
        _check(self)


READ_LIMITS = ReadLimits()


@dataclass(frozen=True, slots=True)
class Limits:
    """For tests and experts. Shares are fractions.

    runs_max                    an index is merged when it would have more runs than this,
    runs_share_max              or the later ones more than this share of the first one's entries,
    masks_share_of_index        or when readers would apply masks of more than this share of the index's bytes
    small_rows_per_bucket       rows of a hash bucket in a small table, which has
    small_buckets_max           so many buckets at most; and a few output files become a power of two below this number
    task_rows_min               smaller hash bucket tasks would cost more in scheduling than they gain in balance
    groups                      groups of buckets and of source files, a task for each (None: by rows and slots)
    delta_kept_bytes_min        a smaller delta file is written anew, even where it would do as a compacted file
    output_parallel_bytes_min   larger output files are split further, for the sake of parallel writing
    exchange_share              of the object store, what pointers and ranks may take there, else they go through files
    held_share                  and the last round's entries, until their pointers are known
    chunk_entries               index entries of one batch: what a merge holds of an index at a time
    copied_group_share_min      row groups are copied from so many times a full one on; smaller ones are merged
    local_nodes                 slots of the nodes that the local executor plans for (none: one node)
    ray_answer_s                a Ray address that does not answer within so many seconds is refused
    ray_silent_s                connecting is told about after so many seconds
    reading                     see ReadLimits
    """

    runs_max: float = 8
    runs_share_max: float = 0.25
    masks_share_of_index: float = 1 / 8
    small_rows_per_bucket: int = 2_000_000
    small_buckets_max: int = 64
    task_rows_min: int = 1_000_000
    groups: int | None = None
    delta_kept_bytes_min: int = 32 << 20
    output_parallel_bytes_min: int = 32 << 20
    exchange_share: float = 0.6
    held_share: float = 0.6
    chunk_entries: int = 1 << 20
    copied_group_share_min: float = 0.25
    local_nodes: tuple[int, ...] = ()
    ray_answer_s: float = 30.0
    ray_silent_s: float = 2.0
    reading: ReadLimits = READ_LIMITS

    def __post_init__(self) -> None:
        _check(self)
        expect.instance("reading", self.reading, ReadLimits)
        for slots in expect.several("local_nodes", self.local_nodes):
            _check_number("local_nodes", slots, 1)


LIMITS = Limits()

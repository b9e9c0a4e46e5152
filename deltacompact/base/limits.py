"""Thresholds that only large tables reach. Tests lower them, so that ten rows take the path of ten million.

    LIMITS                                   the limits of this release
    Limits(chunk_entries=2, groups=3)        lowered for a test
    Settings(limits=…)                       hands them in: the plan carries them to its tasks

A limit changes how the work is divided, or which small pieces are merged. It never changes which rows live. Attempts
with different limits share a session, because the session records its decisions.
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
    """How much of a Parquet file is read at a time.

    batch_bytes         decode about this many bytes at a time: the kernel must clear new pages for larger buffers
    batch_rows_max      and at most this many rows
    run_bytes           read row groups together up to this decoded size: this saves round trips to a remote file
    read_ahead_bytes    of remote files, let a task fetch this many bytes before it needs them
    request_bytes       fetch at most this many bytes in one request
    gap_bytes           fetch up to this many unwanted bytes rather than send another request
    tail_bytes          open a remote file by fetching this many bytes at its end: most footers then take one request
    whole_bytes         but fetch a file of up to this size whole
    """

    batch_bytes: int = 32 << 20
    batch_rows_max: int = 128 << 10
    run_bytes: int = 64 << 20
    read_ahead_bytes: int = 32 << 20
    request_bytes: int = 8 << 20
    gap_bytes: int = 96 << 10
    tail_bytes: int = 64 << 10
    whole_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        _check(self)


READ_LIMITS = ReadLimits()


@dataclass(frozen=True, slots=True)
class Limits:
    """For tests and experts. Shares are fractions.

    runs_max                    merge an index before it has more runs than this,
    runs_share_max              or its later runs have more than this share of the first run's entries,
    masks_share_of_index        or its relocations have live bitmaps above this share of the index's bytes
    small_rows_per_bucket       give a small table one hash bucket for this many rows,
    small_buckets_max           up to this many buckets; round a smaller number of output files up to a power of two
    task_rows_min               give a hash bucket task at least this many rows: scheduling smaller tasks costs more
    task_rows_max               and at most this many
    groups                      make this many groups of buckets, and of source files (None: by rows and slots)
    delta_kept_bytes_min        rewrite delta files smaller than this, even if they could stay as compacted files
    output_parallel_bytes_min   split larger output files further, so that more tasks write
    results_max                 let tasks add up the results of dedupe tasks, if there are more
    relay_nodes_min             on at least this many nodes, relays pass parcels on, and pointers go through files
    exchange_share              keep pointers and ranks in the object store up to this share of it, else in files
    held_share                  keep the last round's entries there up to this share, until their pointers are known
    chunk_entries               hold this many entries of an index at a time
    copied_group_share_min      copy row groups that have at least this share of a full group; merge smaller ones
    local_nodes                 let the local executor plan for nodes with these numbers of slots (empty: one node)
    ray_answer_s                refuse a Ray address that does not answer within this many seconds
    ray_silent_s                after this many seconds, say that the address is being tried
    slow_task_s                 run a task a second time on Ray only if it runs for this many seconds already
    reading                     see ReadLimits
    """

    runs_max: float = 8
    runs_share_max: float = 0.25
    masks_share_of_index: float = 1 / 8
    small_rows_per_bucket: int = 2_000_000
    small_buckets_max: int = 64
    task_rows_min: int = 1_000_000
    task_rows_max: int = 1 << 40
    groups: int | None = None
    delta_kept_bytes_min: int = 32 << 20
    output_parallel_bytes_min: int = 32 << 20
    results_max: int = 256
    relay_nodes_min: int = 64
    exchange_share: float = 0.6
    held_share: float = 0.6
    chunk_entries: int = 1 << 20
    copied_group_share_min: float = 0.25
    local_nodes: tuple[int, ...] = ()
    ray_answer_s: float = 30.0
    ray_silent_s: float = 2.0
    slow_task_s: float = 5.0
    reading: ReadLimits = READ_LIMITS

    def __post_init__(self) -> None:
        _check(self)
        expect.instance("reading", self.reading, ReadLimits)
        for slots in expect.several("local_nodes", self.local_nodes):
            _check_number("local_nodes", slots, 1)


LIMITS = Limits()

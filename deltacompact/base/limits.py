"""Thresholds that only large tables reach. Tests hand in lower ones, so that ten rows go the way of ten million.

    LIMITS                                   those of this release
    Limits(chunk_entries=2, groups=3)        lowered, for a test
    Settings(limits=…)                       the way in: the plan carries them, and its tasks get them

A limit changes how the work is divided, or which small pieces are merged. It never changes which rows live. Attempts
with other limits meet in the same session, which records what was decided.
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

    batch_bytes         decode about so many bytes at a time: larger buffers are fresh pages, which cost more
    batch_rows_max      and at most so many rows
    run_bytes           read row groups together up to this size, decoded: this spares round trips to a remote file
    read_ahead_bytes    fetch so many bytes of a remote file at a time
    tail_bytes          fetch so many bytes at the end of a remote file: one request for a footer that fits
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

    runs_max                    merge an index before it has more runs than this,
    runs_share_max              or the later runs have more than this share of the first one's entries,
    masks_share_of_index        or readers apply masks of more than this share of the index's bytes
    small_rows_per_bucket       give a small table a hash bucket for so many rows,
    small_buckets_max           up to so many buckets; make fewer output files than this a power of two
    task_rows_min               give a hash bucket task so many rows: fewer cost more in scheduling than balance gains
    groups                      make so many groups of buckets, and of source files (None: by rows and slots)
    delta_kept_bytes_min        write a smaller delta file anew, even where it would do as a compacted file
    output_parallel_bytes_min   split larger output files further, so that more tasks write
    exchange_share              keep pointers and ranks in the object store up to this share of it, else in files
    held_share                  keep the last round's entries there up to this share, until their pointers are known
    chunk_entries               hold so many entries of an index at a time
    copied_group_share_min      copy row groups from this share of a full one on; merge smaller ones
    local_nodes                 let the local executor plan for nodes of so many slots each (none: one node)
    ray_answer_s                refuse a Ray address that does not answer within so many seconds
    ray_silent_s                say after so many seconds that the address is being tried
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

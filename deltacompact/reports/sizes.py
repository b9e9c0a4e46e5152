"""What lies in partitions, as JSON values and in words: of one partition, or added up.

3 files, 9,000 rows, 2.1 MiB, 40 dead rows (0.4 %)
waiting: 2 deltas, 300 rows, 102.0 KiB; 1 for less than an hour, 1 for less than a day, since 2026-11-22 01:10 UTC
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deltacompact.base.wording import counted, size
from deltacompact.delta_streams.sizes import StreamSizes
from deltacompact.reports.words import moment

AGES: Mapping[str, tuple[float, str]] = {
    "hour": (3600, "for less than an hour"),
    "day": (24 * 3600, "for less than a day"),
    "week": (7 * 24 * 3600, "for less than a week"),
    "longer": (float("inf"), "for longer than a week"),
}
"""By name: the age in seconds that a waiting delta has not reached."""
_ADDED = ("files", "rows", "dead_rows", "bytes", "deltas", "delta_files", "delta_rows", "delta_bytes")

Sizes = Mapping[str, Any]
"""The sizes of one partition or of many, as `sizes_document` gives them."""


def sizes_document(sizes: StreamSizes, now_s: float) -> dict[str, Any]:
    """The sizes as JSON values. `waiting_by_age` counts deltas; times are Unix seconds."""
    by_age = dict.fromkeys(AGES, 0)
    for time_s in sizes.delta_times_s:
        by_age[next(name for name, (below_s, _) in AGES.items() if now_s - time_s < below_s)] += 1
    return {
        **{name: getattr(sizes, name) for name in _ADDED},
        "waiting_by_age": by_age,
        "oldest_delta_s": sizes.oldest_delta_s,
        "compacted_s": sizes.compacted_s,
    }


def added(documents: Iterable[Sizes]) -> dict[str, Any]:
    """The sizes of several partitions together: the oldest delta, the last compaction."""
    parts = list(documents)
    oldest = [part["oldest_delta_s"] for part in parts if part["oldest_delta_s"] is not None]
    compacted = [part["compacted_s"] for part in parts if part["compacted_s"] is not None]
    return {
        **{name: sum(part[name] for part in parts) for name in _ADDED},
        "waiting_by_age": {name: sum(part["waiting_by_age"][name] for part in parts) for name in AGES},
        "oldest_delta_s": min(oldest, default=None),
        "compacted_s": max(compacted, default=None),
    }


def compacted_words(sizes: Sizes) -> str:
    """What is compacted."""
    if not sizes["files"]:
        return "nothing"
    what = f"{counted(sizes['files'], 'file')}, {counted(sizes['rows'], 'row')}, {size(sizes['bytes'])}"
    if not sizes["dead_rows"]:
        return what
    return f"{what}, {counted(sizes['dead_rows'], 'dead row')} ({100 * dead_share(sizes):.1f} %)"


def waiting_words(sizes: Sizes) -> str:
    """What waits to be compacted, and for how long."""
    if not sizes["deltas"]:
        return "no delta waits"
    ages = [f"{sizes['waiting_by_age'][name]:,} {words}" for name, (_, words) in AGES.items()]
    known = ", ".join(age for age in ages if not age.startswith("0 "))
    since = "" if sizes["oldest_delta_s"] is None else f"; {known}, since {moment(sizes['oldest_delta_s'])}"
    what = f"{counted(sizes['deltas'], 'delta')}, {counted(sizes['delta_rows'], 'row')}, {size(sizes['delta_bytes'])}"
    return f"waiting: {what}{since}"


def dead_share(sizes: Sizes) -> float:
    """The dead rows among the rows of compacted files."""
    return float(sizes["dead_rows"] / max(1, sizes["rows"] + sizes["dead_rows"]))


def read_through(sizes: Sizes) -> int:
    """How bad a partition is: the rows that every reader goes through in vain, or folds."""
    return int(sizes["delta_rows"] + sizes["dead_rows"])

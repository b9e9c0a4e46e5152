"""The greatest values of a healthy partition, each declared once: `check(health=…)` and `check --health` have them.

Thresholds(overlap=20)                        deltacompact check ./lake orders --health --max-overlap 20
"""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.base.options import documented, option
from deltacompact.base.settings import COUNT_OR_ZERO, Between

_AGE, _SHARE = Between("be at least 0", 0), Between("be from 0 to 1", 0, 1)


@documented
@dataclass(frozen=True, slots=True)
class Thresholds:
    """The greatest values of a healthy partition."""

    small_files: int = option("small_files", COUNT_OR_ZERO, 20, "small data files of a partition")
    small_file_bytes: int = option(
        "small_file_bytes", COUNT_OR_ZERO, 32 << 20, "smaller files are small", unit="bytes", says="32 MiB"
    )
    overlap: int = option(
        "overlap",
        COUNT_OR_ZERO,
        100,
        "delta files over the compacted files; for Iceberg, delete files that may apply to one data file",
    )
    dead_share: float = option("dead_share", _SHARE, 0.3, "share of the rows in data files that readers skip")
    age_s: float = option(
        "age_s", _AGE, 24 * 3600.0, "age of the oldest delta that waits", unit="seconds", says="a day"
    )

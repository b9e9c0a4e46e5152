"""The terms of a table's sessions: what is the same for every partition and every attempt.

keys id, sort by version        partitioned by day        files of 64 MiB        deletes kept for 7 days
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltacompact.base.settings import Options
from deltacompact.base.table_keys import TableKeys


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """The keys and options by which every partition of a table is compacted.

    `micros`: times get microseconds, because readers of the table's publication know no other unit (coarse_times.py).
    """

    keys: TableKeys
    partition_keys: Sequence[str]
    options: Options
    tombstone_retention: int | None = None
    micros: bool = False

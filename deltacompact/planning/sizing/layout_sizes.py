"""How many rows are routed, sorted and moved at once, where a table's rows are laid out.

runs      16 to 256 MiB of decoded rows are sorted at once, four copies of them in memory
loads     smaller, if all rows stay in memory: some 2,000 rows of each cell
moved     24 bytes a row while its destination is computed, 4 for the destination alone
"""

from __future__ import annotations

import math

from deltacompact.base.limits import Limits
from deltacompact.planning.sizing import index_sizes, task_counts

MOVED_BYTES, DESTINATION_BYTES = 24, 4
"""Bytes of a row that is laid out: while its destination is computed, and the destination alone."""

RUN_BYTES_MIN, RUN_BYTES_MAX, RUN_COPIES = 16 << 20, 256 << 20, 4
"""The bytes of laid out rows that are sorted at once, and their copies: as read, as one table, sorted, and decoded
ahead."""

HELD_VALUES_MAX = 10_000
"""The most values that tasks hand over in memory: each routing task hands over one for each leaf."""

HELD_SHARE_OF_MEMORY = 0.25
"""Share of a task's memory that the rows may take that it routes and holds until it hands them over."""

ROUTED_BYTES_MIN = 128 << 20
"""A task that routes wide rows gets at least so many decoded bytes. Bounded by rows alone, a task got 1 GB, and a table
of 2 GB was divided unevenly between two slots."""

CELL_ROWS = 2_000
"""About the rows of each cell among the rows that are sorted at once, if they stay in memory."""


def moving_groups(rows: int, memory_per_task_bytes: int) -> int:
    """The least number of groups of source files, if rows are laid out: a task holds the destinations of its group."""
    return math.ceil(rows * MOVED_BYTES / (memory_per_task_bytes * task_counts.POINTERS_SHARE_OF_MEMORY))


def may_move(rows: int, memory_per_task_bytes: int) -> bool:
    """Whether the destinations of `rows` moved rows, which a task maps from a file, stay in memory beside the index."""
    return rows * DESTINATION_BYTES <= memory_per_task_bytes * index_sizes.MASKS_SHARE_OF_MEMORY


def run_bytes(memory_per_task_bytes: int) -> int:
    """Decoded bytes of the rows that are sorted by cell at once."""
    return max(RUN_BYTES_MIN, min(RUN_BYTES_MAX, memory_per_task_bytes // (2 * RUN_COPIES)))


def load_bytes(cells: int, row_bytes: float, run_bytes: int) -> int:
    """Decoded bytes of the rows that are sorted by cell at once, if they stay in memory: few, but some of each cell."""
    return max(1, min(int(CELL_ROWS * cells * row_bytes), run_bytes))


def routed_rows(rows: int, row_bytes: float, slots: int, limits: Limits) -> int:
    """Most rows that a task sends to their cells: about two tasks for each slot, but no small ones. Rows have
    `row_bytes` decoded."""
    least = min(limits.task_rows_min, int(ROUTED_BYTES_MIN / max(1.0, row_bytes)))
    return max(1, least, math.ceil(rows / max(1, 2 * slots)))


def held_rows(rows: int, row_bytes: float, slots: int, memory_per_task_bytes: int, limits: Limits) -> int:
    """The same, if the task holds them until it hands them over."""
    fitting = int(memory_per_task_bytes * HELD_SHARE_OF_MEMORY / max(1.0, row_bytes))
    return max(1, min(routed_rows(rows, row_bytes, slots, limits), fitting))

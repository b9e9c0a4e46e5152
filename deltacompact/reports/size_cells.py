"""The sizes of a table or a partition as cells of a line, under their heads."""

from __future__ import annotations

from typing import Any

from deltacompact.base.wording import size
from deltacompact.reports.sizes import Sizes, read_through
from deltacompact.reports.words import minute

SIZE_COLUMNS = ("rows", "dead rows", "deltas", "delta rows", "bytes", "oldest (UTC)", "compacted (UTC)")
"""What is compacted; what waits, and in bytes all together; the time of the oldest delta, the last compaction."""


def sizes_or_failed(thing: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a table's or a partition's sizes."""
    return size_cells(thing["sizes"]) if "sizes" in thing else ("failed",) * len(SIZE_COLUMNS)


def size_cells(sizes: Sizes) -> tuple[str, ...]:
    """As `SIZE_COLUMNS` has them."""
    return (
        f"{sizes['rows']:,}",
        *(f"{sizes[name]:,}" if sizes[name] else "-" for name in ("dead_rows", "deltas", "delta_rows")),
        size(sizes["bytes"] + sizes["delta_bytes"]),
        "-" if sizes["oldest_delta_s"] is None else minute(sizes["oldest_delta_s"]),
        "-" if sizes["compacted_s"] is None else minute(sizes["compacted_s"]),
    )


def badness(thing: dict[str, Any]) -> tuple[bool, int]:
    """What is shown first, if not all is: what failed, then that of which readers fold most rows."""
    return "error" in thing, read_through(thing["sizes"]) if "sizes" in thing else 0

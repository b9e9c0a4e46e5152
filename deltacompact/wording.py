"""Numbers in sentences: counted(1, "file") -> "1 file", counted(12_000, "row") -> "12,000 rows"."""

from __future__ import annotations


def counted(count: int, thing: str, things: str | None = None) -> str:
    """The count and its noun, in the plural where it needs one."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"

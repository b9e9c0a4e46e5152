"""What a compaction of an Iceberg table may do: rewrite files, convert deletes, or mark superseded rows as dead."""

from __future__ import annotations

REWRITE = "rewrite"
"""Files are written anew, without the rows that their deletes remove."""
CONVERT = "convert"
"""Equality deletes become deletes by position."""
UPSERT = "upsert"
"""All rows of an append-only table are marked as dead but the newest of each key."""
MODES = (REWRITE, CONVERT, UPSERT)

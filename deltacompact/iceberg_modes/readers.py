"""The option `readable-by` names an engine: a mode writes only what this engine can read.

convert, version 2, databricks     InputError: it reads no position-delete files; use the mode rewrite
rewrite, version 3, athena         InputError: it reads no table of version 3
rewrite, version 2, databricks     if others delete rows meanwhile, groups are written again, because marks are no use
"""

from __future__ import annotations

from typing import Any

from deltacompact.base.engines import AS_OF, engine_named, marks_of, reads_marks
from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg_modes.mode import Mode


def refuse_unreadable(mode: Mode[Any, Any], options: Any, metadata: TableMetadata) -> None:
    """Raise InputError if the engine in the options could not read what the mode writes."""
    if (name := getattr(options, "readable_by", None)) is None:
        return
    engine, version = engine_named(name), metadata.format_version
    if version > engine.format_version:
        raise InputError(f"option readable-by: as of {AS_OF}, {name} reads no table of version {version}")
    if mode.marks and not reads_marks(engine, version):
        raise InputError(
            f"option readable-by: as of {AS_OF}, {name} does not read {marks_of(version)}, which {mode.name} writes: "
            "use the mode rewrite"
        )


def may_mark(options: Any, format_version: int) -> bool:
    """Whether the engine in the options reads marks in a table of this version; True if the options name none."""
    name = getattr(options, "readable_by", None)
    return name is None or reads_marks(engine_named(name), format_version)

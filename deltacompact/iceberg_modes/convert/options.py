"""The options of a conversion. Where `rewrite` has one that means the same, it has the same name.

{"max-files-to-convert": "1000", "partial-progress.enabled": "true"}  ->  ConvertOptions(…)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltacompact.base.options import option
from deltacompact.iceberg_modes.options import ENGINE, FLAG, TEXT, WHOLE, WHOLE_OR_ZERO, chosen_values

NAME = "convert"
MAX_COMMITS = 10


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """What is converted, and how it is committed. None: all, or as the table's property says."""

    max_files: int | None = option(
        "max-files-to-convert", WHOLE, None, "most equality-delete files of a run, the oldest first", says="all"
    )
    partial_progress: bool = option(
        "partial-progress.enabled",
        FLAG,
        False,
        "commit after some data files, not once at the end, past unreadable ones",
    )
    max_commits: int = option("partial-progress.max-commits", WHOLE, MAX_COMMITS, "in about so many commits")
    max_failed_commits: int = option(
        "partial-progress.max-failed-commits",
        WHOLE_OR_ZERO,
        MAX_COMMITS,
        "so many of them may fail; the next run commits their marks",
        says="as many as there may be",
    )
    where: str | None = option(
        "where",
        TEXT,
        None,
        "convert an equality delete only if all data files to which it applies may have rows for which this is true",
        says="all are converted",
    )
    key_index: bool | None = option(
        "key-index", FLAG, None, "keep keys in an index beside the table", says="the table's property"
    )
    readable_by: str | None = option(
        "readable-by", ENGINE, None, "refuse marks that this engine does not read", says="any"
    )


def convert_options(chosen: Mapping[str, Any], properties: Mapping[str, str] | None = None) -> ConvertOptions:
    """The options by their names. Raises InputError naming a bad one."""
    values = chosen_values(ConvertOptions, chosen)
    values.setdefault("max_failed_commits", values.get("max_commits", MAX_COMMITS))
    return ConvertOptions(**values)

"""The options of a conversion. Where `rewrite` has one that means the same, it has the same name.

{"max-files-to-convert": "1000", "partial-progress.enabled": "true"}  ->  ConvertOptions(…)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltacompact.base.options import option
from deltacompact.iceberg_modes.options import (
    MAX_COMMITS,
    TEXT,
    WHOLE,
    chosen_values,
    key_index_option,
    marks_readable_by_option,
    max_commits_option,
    max_failed_commits_option,
    partial_progress_option,
)

NAME = "convert"


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """What is converted, and how it is committed. None: all, or as the table's property says."""

    max_files: int | None = option(
        "max-files-to-convert", WHOLE, None, "most equality-delete files of a run, the oldest first", says="all"
    )
    partial_progress: bool = partial_progress_option()
    max_commits: int = max_commits_option()
    max_failed_commits: int = max_failed_commits_option()
    where: str | None = option(
        "where",
        TEXT,
        None,
        "convert an equality delete only if all data files to which it applies may have rows for which this is true",
        says="all are converted",
    )
    key_index: bool | None = key_index_option()
    readable_by: str | None = marks_readable_by_option()


def convert_options(chosen: Mapping[str, Any], properties: Mapping[str, str] | None = None) -> ConvertOptions:
    """The options by their names. Raises InputError naming a bad one."""
    values = chosen_values(ConvertOptions, chosen)
    values.setdefault("max_failed_commits", values.get("max_commits", MAX_COMMITS))
    return ConvertOptions(**values)

"""The options of a conversion. Where `rewrite` has one that means the same, it has the same name.

{"max-files-to-convert": "1000", "partial-progress.enabled": "true"}  ->  ConvertOptions(…)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.wording import unknown_option

MAX_COMMITS = 10


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """What is converted, and how it is committed.

    max_files             most equality-delete files of a run, the oldest first (None: all)
    partial_progress      commit after some data files, not once
    max_commits           in about so many commits
    max_failed_commits    so many of them may fail (default: max_commits)
    where                 only deletes that apply to no other data files than those that may have such rows
    key_index             whether keys are kept in an index beside the table (None: as the table's property says)
    """

    max_files: int | None = None
    partial_progress: bool = False
    max_commits: int = MAX_COMMITS
    max_failed_commits: int = MAX_COMMITS
    where: str | None = None
    key_index: bool | None = None


_FIELDS = {
    "max-files-to-convert": "max_files",
    "partial-progress.enabled": "partial_progress",
    "partial-progress.max-commits": "max_commits",
    "partial-progress.max-failed-commits": "max_failed_commits",
    "where": "where",
    "key-index": "key_index",
}


def convert_options(chosen: Mapping[str, Any]) -> ConvertOptions:
    """The options by their names. Raises InputError naming a bad one."""
    values: dict[str, Any] = {}
    for name, value in chosen.items():
        if name not in _FIELDS:
            raise InputError(unknown_option(name, _FIELDS))
        values[_FIELDS[name]] = _value(name, value)
    values.setdefault("max_failed_commits", values.get("max_commits", MAX_COMMITS))
    return ConvertOptions(**values)


def _value(name: str, value: Any) -> bool | int | str:
    if name == "where":
        return expect.text("option where", value)
    text = str(value).strip().lower()
    if name in ("partial-progress.enabled", "key-index"):
        if text not in ("true", "false"):
            raise InputError(f"option {name}: {value!r} is neither true nor false")
        return text == "true"
    least = 0 if name == "partial-progress.max-failed-commits" else 1
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise InputError(f"option {name}: {value!r} is not a whole number of at least {least}")
    return int(text)

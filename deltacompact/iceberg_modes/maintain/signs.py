"""Signs of other tables among listed files: pure.

    sub/00003-c9.metadata.json, sub/version-hint.text       an Iceberg table, however its folder is called
    sub/_delta_log/…, sub/.hoodie/…                         Delta Lake, Hudi
    sub/table.json and sub/partitions/…                     a delta table of ours
    sub/snapshot/… and sub/schema/schema-0                  Paimon

Their data files look like orphans of the table around them, and may lie anywhere near.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from deltacompact.iceberg.table.metadata_files import is_metadata_file
from deltacompact.storage.identity import file_name

VERSION_HINT = "version-hint.text"
_LOGS = re.compile(r"(?:.*/|)(_delta_log|\.hoodie)/.+", re.DOTALL)
_PAIRS = (
    (re.compile(r"(.*/|)table\.json", re.DOTALL), "partitions/"),
    (re.compile(r"(.*/|)schema/schema-\d+", re.DOTALL), "snapshot/"),
)
"""A file, and a folder beside it: together they are a sign."""


def signs(paths: Iterable[str]) -> Iterator[str]:
    """Those of the paths that show that a table is there."""
    known = list(paths)
    halves: list[tuple[str, str]] = []
    for path in known:
        if is_metadata_file(path) or file_name(path) == VERSION_HINT or _LOGS.fullmatch(path):
            yield path
        for half, folder in _PAIRS:
            if match := half.fullmatch(path):
                halves.append((path, match[1] + folder))
    for path, folder in halves:
        if any(other.startswith(folder) for other in known):
            yield path

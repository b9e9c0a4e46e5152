"""Finds the files that a commit must remove and add, so that a table shows the versions of its streams. Pure.

    shown now      a, b with vector b1               of stream day=1; c of stream day=2
    version        a with dead rows a1, b with b2    of stream day=1
    difference     removed a, b with b1              added a with a1, b with b2           c stays: not asked for

A digest of the dead rows is a tag of the added file, so the log tells which dead rows are shown. After a crash, the
next run just compares again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from deltacompact.publication.delta.log import Action, Head, location_of
from deltacompact.publication.port import FilesToShow, ShownFile, Source, foreign

DEAD_ROWS = "deltacompact.dead_rows"
"""The tag of a file with a deletion vector of ours."""


@dataclass(frozen=True)
class DeltaDifference:
    """Logical files to remove and to add, by location, and their streams."""

    removed: Mapping[str, Action]
    added: Mapping[str, ShownFile]
    streams: frozenset[str]

    @cached_property
    def gone(self) -> int:
        """The number of data files that are no longer shown."""
        return len(self.removed.keys() - self.added.keys())

    @cached_property
    def new(self) -> int:
        """The number of data files that were not shown before."""
        return len(self.added.keys() - self.removed.keys())

    @property
    def vectors(self) -> int:
        return sum(file.dead_rows is not None for file in self.added.values())


def difference(head: Head, folder: str, name: str, source: Source, now: FilesToShow) -> DeltaDifference:
    """The missing and the superfluous files on the head.

    `folder`: the table's, with a slash at its end. Raises InputError if the head has a file, or a deletion vector, that
    no publication has added.
    """
    removed: dict[str, Action] = {}
    shown: set[str] = set()
    changed: set[str] = set()
    for file in head.added.values():
        location = location_of(file, folder)
        stream, dead_rows = source.stream_of(location), _dead_rows(file)
        if stream is None or (file.get("deletionVector") and dead_rows is None):
            raise foreign(name, location)
        if (wanted := now.of(stream)) is None:
            continue
        if location in wanted and wanted[location].dead_rows == dead_rows:
            shown.add(location)
        else:
            removed[location] = file
            changed |= {stream} & now.streams.keys()
    added: dict[str, ShownFile] = {}
    for stream, files in now.streams.items():
        missing = {location: file for location, file in files.items() if location not in shown}
        added |= missing
        changed |= {stream} if missing else set()
    return DeltaDifference(removed, added, frozenset(changed))


def _dead_rows(file: Action) -> str | None:
    """The digest of the dead rows without which the file is shown. None: all its rows, or the vector is not ours."""
    return (file.get("tags") or {}).get(DEAD_ROWS) if file.get("deletionVector") else None

"""Makes the markers of a session: names of delete files begin with the session's, and the table's version decides the
form of marks.

planned in version 2, upgraded meanwhile    the plan's marker writes position deletes, the head's marker vectors
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from deltacompact.executors.executor import Executor
from deltacompact.iceberg.marks.marking import Marker
from deltacompact.iceberg.marks.reserved import ReservedPaths, new_path
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg_modes.journal.journal import name_of_files
from deltacompact.iceberg_modes.steps import Call

MarkerOf: TypeAlias = Callable[[TableMetadata], Marker]


def marker_of(
    call: Call[Any, Any], session: str, executor: Callable[[], Executor], reserved: ReservedPaths | None = None
) -> MarkerOf:
    """A function that gives the marker for a table. It calls `executor` only if there is something to mark."""
    paths = new_path if reserved is None else reserved.taken

    def marker(metadata: TableMetadata) -> Marker:
        return Marker(Tasks(call.table.store, executor()), metadata, call.settings, name_of_files(session), paths)

    return marker

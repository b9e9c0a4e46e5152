"""Who writes the marks of a session: their names begin with the session's, and the table's present form decides theirs.

planned in version 2, upgraded meanwhile    the marker of the plan writes position deletes, that of the head vectors
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from deltacompact.executors.executor import Executor
from deltacompact.iceberg.marks.marking import Marker
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg_modes.journal.journal import name_of_files
from deltacompact.iceberg_modes.steps import Call

MarkerOf: TypeAlias = Callable[[TableMetadata], Marker]


def marker_of(call: Call[Any, Any], session: str, executor: Callable[[], Executor]) -> MarkerOf:
    """The marker for a table as it is. The executor is only asked for where there is something to mark."""

    def marker(metadata: TableMetadata) -> Marker:
        return Marker(Tasks(call.table.store, executor()), metadata, call.settings, name_of_files(session))

    return marker

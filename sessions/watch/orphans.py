"""Counts orphans, now and then: the bytes that `vacuum`, or `maintain --remove-orphans`, would delete.

    10:00:00  orders, lines are due     orders is counted        a count lists the whole table, so one at a time
    10:20:00  lines is due              lines is counted
    10:20:30                            nothing is due until tomorrow, 10:00:00

The numbers are for Prometheus alone: no policy asks for them. A table that cannot be counted has none, and is tried
again after ten minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from deltacompact import vacuum
from deltacompact.base.wording import one_line
from deltacompact.catalog.opening import is_iceberg_catalog

if TYPE_CHECKING:  # importing PyIceberg takes a second
    from deltacompact.catalog.delta_streams import DeltaStreamCatalog
    from deltacompact.catalog.iceberg import IcebergCatalog

_LOG = logging.getLogger("sessions")
_FAILED_AGAIN_S = 600.0
"""When a count that failed is tried again, unless counts are due sooner."""
TableName = TypeVar("TableName", bound=Hashable)
"""The caller's name of a table."""


class OrphanCounts(Generic[TableName]):
    """The latest count of each table. Counts of one table are `every_s` seconds apart; None: nothing is counted."""

    def __init__(self, counts: Mapping[TableName, Callable[[], int]], every_s: float | None) -> None:
        self._counts = counts
        self._every_s = every_s
        self._counted_s: dict[TableName, float] = {}
        self.bytes: dict[TableName, int] = {}

    @property
    def are_wanted(self) -> bool:
        return self._every_s is not None

    def look(self, now_s: float) -> None:
        """Count the table that has waited longest, if one is due."""
        if self._every_s is None:
            return
        due = [name for name in self._counts if now_s - self._counted_s.get(name, -self._every_s) >= self._every_s]
        if not due:
            return
        name = min(due, key=lambda name: self._counted_s.get(name, 0.0))
        self._counted_s[name] = now_s
        self.bytes.pop(name, None)
        try:
            self.bytes[name] = self._counts[name]()
        except Exception as error:  # its job runs do not suffer from it
            again_s = min(self._every_s, _FAILED_AGAIN_S)
            self._counted_s[name] = now_s - self._every_s + again_s
            _LOG.warning("orphans of %s are not counted, again in %.0f s: %s", name, again_s, one_line(error))


def orphan_bytes(catalog: DeltaStreamCatalog | IcebergCatalog, table_id: str) -> int:
    """What the upkeep of a table would delete now, by its default ages. Lists the table's folder, writes nothing."""
    if is_iceberg_catalog(catalog):
        found = catalog.maintain(table_id, remove_orphans=True, dry_run=True).remove_orphans
        return found.bytes if found else 0
    return sum(partition.bytes for partition in vacuum(catalog, table_id, dry_run=True))

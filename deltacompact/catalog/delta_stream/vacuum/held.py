"""The files that a published table's Iceberg snapshots refer to: a vacuum keeps them, whatever the log says.

Several partitions are vacuumed at a time and share one answer. The Iceberg table is read when something could be
deleted, and only then.
"""

from __future__ import annotations

from threading import Lock

from deltacompact.catalog.delta_stream.catalog import DeltaStreamCatalog


class Held:
    """Reads the Iceberg table once, for all partitions of a vacuum."""

    def __init__(self, catalog: DeltaStreamCatalog, table_id: str, age_min_s: float, dry_run: bool) -> None:
        self._catalog = catalog
        self._table_id = table_id
        self._old_s = catalog.clock() - age_min_s
        self._dry_run = dry_run
        self._lock = Lock()
        self._known: frozenset[str] | None = None

    def names(self) -> frozenset[str]:
        """The names of the files, each of which the stream gave once. Raises where the Iceberg table cannot be read."""
        with self._lock:
            if self._known is None:
                target = self._catalog.publication(self._table_id)
                self._known = frozenset() if target is None else self._read(target)
            return self._known

    def _read(self, target: str) -> frozenset[str]:
        from deltacompact.catalog.publication.held import held_files

        return held_files(target, self._old_s, self._dry_run)

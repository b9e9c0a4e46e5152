"""Keeps the heat of an Iceberg table beside its metadata: see layout/kept_heat.py.

    metadata/_deltacompact-heat/00000000000000000007.json

The folder's name is hidden (it begins with "_"), so no tool that removes orphans touches it.
"""

from __future__ import annotations

from collections.abc import Iterable

from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.layout.heat import Heat, SourcedRead
from deltacompact.layout.kept_heat import KeptHeat
from deltacompact.storage.objects import ObjectStore

FOLDER = "metadata/_deltacompact-heat/"


def heat_of_table(store: ObjectStore, metadata: TableMetadata) -> Heat:
    """The kept heat; empty if no reads were ever told."""
    return _kept(store, metadata).read()


def keep_reads(store: ObjectStore, metadata: TableMetadata, reads: Iterable[SourcedRead], now_s: float) -> Heat:
    """Add these reads to the kept heat, and return it. Raises StoreError if other writers are always faster."""
    return _kept(store, metadata).keep(reads, now_s)


def _kept(store: ObjectStore, metadata: TableMetadata) -> KeptHeat:
    return KeptHeat(store, FOLDER, metadata.table_id, str(metadata.uuid))

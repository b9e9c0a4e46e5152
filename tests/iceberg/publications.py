"""A delta table beside an Iceberg catalog that PyIceberg's configuration names, and readers of both.

published = Publications(lake, folder)       configured as iceberg://<name of the lake>
published.compact()
published.shown() == published.compacted()   rows as PyIceberg reads them, rows as catalog.read has them
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from iceberg_lake import Lake, sorted_rows

import deltacompact
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.iceberg.table.content_files import Content

T = "orders"
LOCAL = deltacompact.Settings(executor="local", local_threads=1, rewrite_dead_fraction=0.7)


def configure(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the lake into PyIceberg's own configuration."""
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    for option, value in {"URI": f"sqlite:///{lake.database}", "WAREHOUSE": lake.warehouse, "TYPE": "sql"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{lake.name.upper()}__{option}", value)
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())  # PyIceberg reads the environment once, at its import


class Publications:
    """The table `orders` of a delta catalog, and the Iceberg table ns.orders of a lake."""

    def __init__(self, lake: Lake, folder: Path, partition_keys: Iterable[str] = ()) -> None:
        self.lake = lake
        self.folder = folder
        self.catalog = self.opened()
        self.catalog.create_table(T, list(partition_keys), ["id"])

    @property
    def uri(self) -> str:
        return f"iceberg://{self.lake.name}/ns.{T}"

    def opened(self) -> DeltaStreamCatalog:
        """The catalog as another process opens it."""
        catalog = deltacompact.open_catalog(self.folder)
        assert isinstance(catalog, DeltaStreamCatalog)
        return catalog

    def append(self, rows: Any, operation: str = "upsert", **partition: Any) -> None:
        import pyarrow as pa

        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
        self.catalog.append(T, table, partition or None, operation)

    def compact(self, **others: Any) -> deltacompact.CompactionResult:
        return deltacompact.compact(T, delta_catalog_client=self.catalog, settings=LOCAL, **others)

    def publish(self) -> Any:
        return self.catalog.publish(T, self.uri)

    def shown(self) -> list[dict[str, Any]]:
        """The rows that PyIceberg reads, without nulls."""
        return plain(self.lake.rows(f"ns.{T}"))

    def compacted(self) -> list[dict[str, Any]]:
        """The rows of the delta table with their partitions' values. All deltas must be compacted."""
        rows = []
        for partition in self.catalog.partitions(T):
            assert not self.catalog.state(T, partition).deltas
            read = self.catalog.read(T, dict(partition.values)).to_pylist()
            rows += [dict(partition.values) | {k: v for k, v in row.items() if v is not None} for row in read]
        return plain(rows)

    def files(self, content: Content = Content.DATA) -> list[str]:
        """The live files of the Iceberg table."""
        state = self.lake.state(f"ns.{T}")
        return sorted(entry.file.path for entry in (*state.data, *state.deletes) if entry.file.content is content)

    def snapshots(self) -> int:
        return len(self.lake.catalog.load_table(f"ns.{T}").metadata.snapshots)


def plain(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted_rows([dict(sorted((k, v) for k, v in row.items() if v is not None)) for row in rows])

"""A delta table, an Iceberg catalog from PyIceberg's configuration that publishes it, and readers of both.

published = Publications(lake, folder)       configured as iceberg://<name of the lake>
published.compact()
published.shown() == published.compacted()   rows as PyIceberg reads them, rows as catalog.read has them
"""

from __future__ import annotations

import datetime
import decimal
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_lake import Lake, sorted_rows

import deltacompact
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.iceberg.table.content_files import Content

T = "orders"
LOCAL = deltacompact.Settings(executor="local", local_threads=1, rewrite_dead_fraction=0.7)

WIDE = {
    "flag": pa.array([True, None]),
    "tiny": pa.array([1, -2], pa.int8()),
    "small": pa.array([300, None], pa.int16()),
    "whole": pa.array([1, 2], pa.int32()),
    "real": pa.array([0.5, None], pa.float32()),
    "double": pa.array([float("inf"), -0.0]),
    "price": pa.array([decimal.Decimal("1.25"), None], pa.decimal128(9, 2)),
    "cheap": pa.array([decimal.Decimal("1.25"), None], pa.decimal32(5, 2)),
    "dear": pa.array([decimal.Decimal("1.25"), None], pa.decimal64(15, 2)),
    "wide": pa.array([decimal.Decimal("1.25"), None], pa.decimal256(30, 2)),
    "huge": pa.array([decimal.Decimal("1" * 30), None], pa.decimal128(38, 0)),
    "day": pa.array([datetime.date(2024, 1, 1), None]),
    "clock": pa.array([datetime.time(1, 2, 3), None], pa.time64("us")),
    "naive": pa.array([datetime.datetime(2024, 1, 1, 5), None], pa.timestamp("us")),
    "seconds": pa.array([datetime.datetime(2024, 1, 1, 5), None], pa.timestamp("s")),
    "millis": pa.array([datetime.datetime(2024, 1, 1, 5), None], pa.timestamp("ms", "UTC")),
    "text": pa.array(["é", None]),
    "large": pa.array(["x", None], pa.large_string()),
    "words": pa.array(["a", "b"]).dictionary_encode(),
    "blob": pa.array([b"\0\xff", None]),
    "fixed": pa.array([b"abcd", None], pa.binary(4)),
    "nested": pa.array([{"a": 1, "b": [{"c": "x"}]}, None]),
    "listed": pa.array([[1, None], []], pa.list_(pa.int64())),
    "pair": pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
    "mapped": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
}


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
        """A new catalog, as another process opens it."""
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

    def publish_days_and_drop_one(self) -> None:
        """Publish days a and b, drop the table, and make one of its name that has day b alone, not compacted."""
        for day in ("a", "b"):
            self.append([{"id": 1}], day=day)
        self.compact()
        self.publish()
        self.catalog.stop_publishing(T)
        self.catalog.drop_table(T)
        self.catalog.create_table(T, ["day"], ["id"])
        self.append([{"id": 2}], day="b")

    def die_once_declared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Publish in a process that ends when the publication is declared, and go on in another."""
        from dying import Crash, Dying  # it counts changes of publications, too

        with monkeypatch.context() as patch, pytest.raises(Crash):
            Dying(patch, [(DeltaStreamCatalog, ["declare_publication"])], at=0, after=True)
            self.publish()
        self.catalog = self.opened()

    def shown(self) -> list[dict[str, Any]]:
        """The rows that PyIceberg reads, without nulls."""
        return plain(self.lake.rows(f"ns.{T}"))

    def compacted(self) -> list[dict[str, Any]]:
        """The rows of the delta table with the values of their partitions. All deltas must be compacted."""
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


def runs_at_the_same_time(published: Publications, numbers: Iterable[int]) -> None:
    """Append and compact in parallel runs. Each run ends well, or in a conflict with another run."""
    errors = []

    def run(number: int) -> None:
        catalog = published.opened()
        try:
            for round_ in range(3):
                catalog.append(T, pa.table({"id": [100 * number + round_]}))
                try:
                    result = deltacompact.compact(T, delta_catalog_client=catalog, settings=LOCAL)
                except deltacompact.ConflictError:
                    continue
                if result.publication.error:
                    raise result.publication.error
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def marked_partitions(published: Any) -> None:
    """Two partitions with a dead row each, whose table is not published yet. `published`: partitioned by day."""
    published.catalog.table(T).declare_readers("vectors")
    for operation, ids in (("upsert", range(100)), ("delete", [7])):
        for day in ("a", "b"):
            published.catalog.append(T, pa.table({"id": pa.array(ids, pa.int64())}), {"day": day}, operation)
        published.catalog.table(T).compact(settings=LOCAL)


def meeting(work: Any) -> Any:
    """The function, of which each call waits until another one is under way."""
    barrier = threading.Barrier(2, timeout=20)

    def met(*given: Any, **named: Any) -> Any:
        barrier.wait()
        return work(*given, **named)

    return met

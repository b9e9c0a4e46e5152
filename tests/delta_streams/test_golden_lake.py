"""Tables that the first release wrote are read, compacted, checked, vacuumed and rolled back by this one.

Commit 174bc77 wrote tests/golden/lake_0_1_0.tar.gz; `expected.json` in it has the live rows by table and
partition. The tables:

    orders        two partitions (one of a null), sort key, runs and relocations, tombstones, deletion vectors,
                  a CSV delta, a retraction, tokens etl:1 … etl:6, nightly, late
    flat          a destination of orders
    events        keys of the first compaction, 100 entries and a checkpoint, lists for other engines
    wide          700 columns: its entry has a body of its own
    interrupted   a session that died after its last round, before it wrote a file
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tables import lake_of_release_0_1, problems

from deltacompact import DeltaStreamCatalog, Settings, compact, open_catalog
from deltacompact.delta_streams.versions import rollback, versions
from deltacompact.maintenance.vacuum.vacuum import vacuum

TABLES = ("orders", "flat", "events", "wide", "interrupted")
LOCAL = Settings(executor="local", local_threads=1)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """The lake as if it had been written just now."""
    root = lake_of_release_0_1(tmp_path)
    for path in sorted(root.rglob("*"), key=lambda path: path.stat().st_mtime_ns):
        os.utime(path, (time.time(), time.time()))
    return root


@pytest.fixture
def catalog(lake: Path) -> DeltaStreamCatalog:
    return open_catalog(lake)


def expected_rows(catalog: DeltaStreamCatalog) -> dict[str, Any]:
    return dict(json.loads(catalog.store.get("expected.json")))


def rows(catalog: DeltaStreamCatalog, table: str) -> dict[str, list[dict[str, Any]]]:
    def key(row: dict[str, Any]) -> Any:
        return row.get("id", row.get("k", row.get("c0")))

    return {
        str(partition): sorted(catalog.read(table, partition).to_pylist(), key=key)
        for partition in catalog.partitions(table)
    }


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.slow
def test_a_table_of_the_first_release_is_read_and_sound(catalog: DeltaStreamCatalog, table: str) -> None:
    assert rows(catalog, table) == expected_rows(catalog)[table]
    assert problems(catalog, table) == []


@pytest.mark.parametrize("table", ["orders", "events", "wide", "interrupted"])
@pytest.mark.slow
def test_it_is_compacted_and_compacted_again(catalog: DeltaStreamCatalog, table: str) -> None:
    wanted = expected_rows(catalog)[table]
    for settings in (LOCAL, Settings(executor="local", local_threads=1, rows_per_round=20)):
        result = compact(table, delta_catalog_client=catalog, settings=settings)
        assert [session.error for session in result.sessions] == [None] * len(wanted)
        assert rows(catalog, table) == wanted
        assert problems(catalog, table) == []
        for partition in catalog.partitions(table):
            schema = catalog.read(table, partition).schema
            key = "id" if table == "orders" else "c0" if table == "wide" else "k"
            nobody = pa.table({key: pa.array([12_345], schema.field(key).type)})
            catalog.append(table, nobody, partition, operation="delete")


def test_a_destination_follows_its_source(catalog: DeltaStreamCatalog) -> None:
    compact("orders", delta_catalog_client=catalog, destination_compacted_table_id="flat", settings=LOCAL)
    assert rows(catalog, "flat") == expected_rows(catalog)["orders"]
    assert problems(catalog, "flat") == []


def test_the_session_that_the_first_release_left_is_not_resumed(catalog: DeltaStreamCatalog) -> None:
    settings = Settings(executor="local", local_threads=1, rows_per_round=40)
    (session,) = compact(
        "interrupted", delta_catalog_client=catalog, rows_per_compacted_file=10, settings=settings
    ).sessions
    assert (session.error, session.rounds, session.rounds_resumed) == (None, 2, 0)
    assert rows(catalog, "interrupted") == expected_rows(catalog)["interrupted"]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.slow
def test_vacuum_takes_nothing_that_is_read(catalog: DeltaStreamCatalog, table: str) -> None:
    vacuum(catalog, table, age_min_s=0, force=True)
    assert rows(catalog, table) == expected_rows(catalog)[table]
    assert problems(catalog, table) == []


def test_it_is_rolled_back(catalog: DeltaStreamCatalog) -> None:
    for partition in catalog.partitions("orders"):
        infos = versions(catalog, "orders", partition)
        assert [(info.state.opened.number, info.retained) for info in infos] == [(n, True) for n in range(4)]
        rollback(catalog, "orders", "1", partition)
        assert catalog.read("orders", partition).num_rows == 60
    assert problems(catalog, "orders") == []


def test_a_batch_that_the_first_release_committed_is_not_committed_again(catalog: DeltaStreamCatalog) -> None:
    """Whether its commit was compacted since or not."""
    rows_before = rows(catalog, "orders")
    batch = pa.table({"id": [1], "updated": pa.array([1000], pa.int32())})
    for partition in catalog.partitions("orders"):
        for token in ("etl:1", "etl:5", "etl:6"):
            catalog.append("orders", batch, partition, token=token)
        for token in ("nightly", "late"):
            catalog.append("orders", batch.select(["id"]), partition, "delete", token=token)
    assert rows(catalog, "orders") == rows_before

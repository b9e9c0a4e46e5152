"""Maintenance on a machine whose clock is days ahead: what came a minute ago stays, whatever its age seems to be."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pyarrow as pa
import pytest
from iceberg_lake import Lake
from live_writers import racing
from table_t import ids

from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.maintain import maintain as maintaining
from deltacompact.iceberg_modes.maintain.maintain import Maintain

T = "ns.t"
DAY_S = 86_400


@pytest.fixture(params=[10, -10, 4000])
def off(request, lake, monkeypatch):
    """Maintains the table by a clock that is so many days off, as everybody's commands do."""
    wrong = SimpleNamespace(time=lambda: time.time() + request.param * DAY_S)
    monkeypatch.setattr(maintaining, "time", wrong)
    return lambda: Maintain(IcebergTable.load(lake.catalog, T)).run(expire_snapshots=True, remove_orphans=True)


@pytest.fixture
def table(lake):
    lake.create(T, pa.schema([("id", pa.int64())]))
    for number in range(3):
        lake.append(T, [{"id": number}])
    return lake


def test_a_rewrite_that_stands_before_its_commit_loses_no_file(table, off):
    own = Lake(table.folder, table.name)
    own.catalog = racing(table, off)  # between our look at the journal and the catalog's answer
    own.rewrite(T, rewrite_all=True)
    assert ids(table) == [0, 1, 2]
    assert len(table.state(T).data) == 1


def test_another_writers_file_stays_until_it_commits_it(table, off):
    own = Lake(table.folder, table.name)
    own.catalog = racing(table, off)
    own.append(T, [{"id": 3}])
    assert ids(table) == [0, 1, 2, 3]


def test_snapshots_of_a_minute_ago_do_not_expire(table, off):
    result = off()
    assert result.expire_snapshots.snapshots == ()
    assert len(table.catalog.load_table(T).metadata.snapshots) == 3


@pytest.mark.parametrize("asked", ["expire_snapshots", "remove_orphans"])
def test_a_dry_run_says_that_it_goes_by_the_clock_of_this_machine(table, asked):
    """It asks no store, because that would write: what it shows may stay in the real run."""
    said = []
    Maintain(IcebergTable.load(table.catalog, T), dry_run=True, say=said.append).run(**{asked: True})
    assert said[0] == "a dry run counts ages by the clock of this machine, a real run by the store's where they differ"
    said.clear()
    Maintain(IcebergTable.load(table.catalog, T), say=said.append).run(**{asked: True})
    Maintain(IcebergTable.load(table.catalog, T), dry_run=True, say=said.append).run(rewrite_manifests=True)
    assert not any("clock" in line for line in said)

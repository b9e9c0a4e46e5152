"""A file that is listed twice: its rows are there twice, and no mode may make them once, or bring deleted ones back."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest
from every_mode import NAMES, chosen
from iceberg_lake import Lake
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from upsert_oracle import TINY

import deltacompact
from deltacompact.base.errors import InputError
from deltacompact.iceberg.table.content_files import Content, ContentFile, Status
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader
from deltacompact.iceberg_modes.maintain.maintain import Maintain

T = "ns.t"


@pytest.fixture
def lake(tmp_path):
    lake = Lake(tmp_path / "lake")
    lake.create(T, Schema(NestedField(1, "id", LongType())))
    lake.append(T, [{"id": 1}, {"id": 2}])
    lake.delete_by_key(T, {"id": [2]})
    return lake


def list_again(lake, file: ContentFile, operation: str):
    lake.commit(IcebergTable.load(lake.catalog, T), [replace(file)], operation=operation)


def listed(lake):
    """The data files of the head, as its manifests list them."""
    metadata = IcebergTable.load(lake.catalog, T).metadata
    reader = StateReader(lake.store(T))
    entries = chain.from_iterable(reader.entries_of(reader.listed(metadata.branch("main"))))
    live = [entry.file for entry in entries if entry.status is not Status.DELETED]
    return [file.path for file in live if file.content is Content.DATA]


@pytest.mark.parametrize("mode", NAMES)
@pytest.mark.parametrize("kind", ["data", "deletes"])
def test_a_branch_that_lists_a_file_twice_is_refused_by_name_in_every_mode(lake, mode, kind):
    (entry,) = getattr(lake.state(T), kind)
    list_again(lake, entry.file, "append" if kind == "data" else "delete")
    metadata = IcebergTable.load(lake.catalog, T).metadata
    head = metadata.branch("main")
    catalog = deltacompact.open_catalog(lake.catalog)
    with pytest.raises(InputError) as error:
        deltacompact.compact(T, delta_catalog_client=catalog, mode=mode, options=chosen(mode), settings=TINY)
    assert str(error.value) == (
        f"branch 'main' of 'ns.t' lists {entry.file.path} twice, added by snapshots {entry.snapshot_id} and "
        f"{head.snapshot_id}: remove it with the writer that added it, and add it once"
    )
    assert IcebergTable.load(lake.catalog, T).metadata == metadata


def test_it_is_refused_where_the_second_listing_lands_while_we_work(lake):
    (entry,) = lake.state(T).data
    with pytest.raises(InputError, match=f"lists {entry.file.path} twice"):
        lake.rewrite(T, rewrite_all=True, before_commit=lambda: list_again(lake, entry.file, "append"))
    assert listed(lake) == [entry.file.path] * 2


def test_maintenance_keeps_both_listings(lake):
    (entry,) = lake.state(T).data
    list_again(lake, entry.file, "append")
    Maintain(IcebergTable.load(lake.catalog, T)).run(rewrite_manifests=True)
    assert listed(lake) == [entry.file.path] * 2

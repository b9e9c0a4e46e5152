"""Files in S3's classes for infrequent access and archives: layouts leave them, and who must read them says which."""

from __future__ import annotations

import boto3
import pyarrow as pa
import pytest

import deltacompact
from deltacompact.base.errors import InputError
from deltacompact.base.settings import Settings
from deltacompact.iceberg_modes.rewrite.choosing import RewriteReason
from deltacompact.storage.s3 import S3Store

SETTINGS = Settings(executor="local", local_threads=1)
BY_ID = {"cluster-by": "id", "min-file-size-bytes": 1, "target-file-size-bytes": 1 << 20, "min-input-files": 99}
COLD = [(RewriteReason.INFREQUENT_STORAGE, 2)]


@pytest.fixture
def table(glue_lake):
    """Six files that overlap, and how to move some of them to another class."""
    lake, table_id = glue_lake
    lake.create(table_id, pa.schema([("id", pa.int64()), ("at", pa.int64())]))
    lake.append_files(table_id, *([{"id": number * 6 + part, "at": part} for number in range(10)] for part in range(6)))
    return lake, table_id


def moved(lake, table_id, **classes):
    """`first="GLACIER"`: the first data file goes there."""
    data = sorted(lake.state(table_id).data, key=lambda entry: entry.sequence)
    places = {"first": 0, "second": 1}
    for name, storage_class in classes.items():
        bucket, _, key = data[places[name]].file.path.removeprefix("s3://").partition("/")
        source = {"Bucket": bucket, "Key": key}
        boto3.client("s3").copy_object(Bucket=bucket, Key=key, CopySource=source, StorageClass=storage_class)
    return [data[places[name]].file.path for name in classes]


@pytest.fixture
def listings(monkeypatch):
    """The prefixes that are listed, and the paths that are asked for one by one."""
    asked = []
    for name in ("list", "stat"):
        monkeypatch.setattr(S3Store, name, _counting(asked, name, getattr(S3Store, name)))
    return asked


def _counting(asked, name, act):
    def counted(self, path, *others):
        if "/data" in path:
            asked.append((name, path))
        return act(self, path, *others)

    return counted


def test_a_layout_leaves_cold_files_where_they_are(table, listings):
    lake, table_id = table
    cold = moved(lake, table_id, first="STANDARD_IA", second="DEEP_ARCHIVE")
    catalog = deltacompact.open_catalog(lake.catalog).table(table_id)
    plan = catalog.plan(options=BY_ID)
    assert ([*plan.stays], len(plan.inputs)) == (COLD, 4)
    assert [name for name, _ in listings] == ["list"]  # one folder, in one request; no file by itself
    assert "in a storage class for infrequent access, or archived: left alone" in str(plan.of(()).nothing_to_do)
    advice = catalog.advise("id")
    assert (advice.rewrite_files, advice.notes) == (
        4,
        ("2 files in S3's classes for infrequent access or archives: left alone",),
    )
    done = catalog.compact(options=BY_ID, settings=SETTINGS)
    assert (done.files_in, done.rows_out) == (4, 40)
    assert {entry.file.path for entry in lake.state(table_id).data} >= set(cold)
    listings.clear()
    assert not catalog.plan(options=BY_ID).groups  # what overlaps cold files alone is not written again and again
    assert len(listings) <= 1


def test_who_may_not_list_files_lays_out_all(table, monkeypatch, caplog):
    def refused(self, prefix, start_after=""):
        if "/data" in prefix:
            raise InputError("S3 refused access (AccessDenied)")
        return listed(self, prefix, start_after)

    lake, table_id = table
    moved(lake, table_id, first="STANDARD_IA")
    listed = S3Store.list
    monkeypatch.setattr(S3Store, "list", refused)
    assert len(deltacompact.open_catalog(lake.catalog).table(table_id).plan(options=BY_ID).inputs) == 6
    assert "storage classes cannot be listed" in caplog.text


def test_without_a_layout_nothing_is_listed_and_all_is_read(table, listings):
    lake, table_id = table
    moved(lake, table_id, first="STANDARD_IA")
    plan = deltacompact.open_catalog(lake.catalog).table(table_id).plan(options={"min-input-files": 2})
    assert (len(plan.inputs), listings) == (6, [])


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("rewrite", {"rewrite-all": True}),
        ("rewrite", {"rewrite-all": True, **BY_ID}),
        ("convert", {}),
        ("upsert", {"key-columns": "id", "sort-columns": "at"}),
    ],
)
def test_each_mode_names_an_archived_file_that_it_must_read(table, mode, options):
    lake, table_id = table
    lake.delete_by_key(table_id, {"id": [6, 12]})
    (path,) = moved(lake, table_id, first="GLACIER")
    before = lake.state(table_id).snapshot_id
    said = f"{path} is archived by S3 and cannot be read: restore it first"
    table = deltacompact.open_catalog(lake.catalog).table(table_id)
    with pytest.raises(InputError, match=said):
        table.compact(mode, options, settings=SETTINGS)
    with pytest.raises(InputError, match=said):
        table.read()
    assert lake.state(table_id).snapshot_id == before

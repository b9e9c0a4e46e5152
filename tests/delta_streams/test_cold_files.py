"""Compacted files in S3's classes for infrequent access and archives: layouts of streams leave them where they are."""

from __future__ import annotations

import boto3
import numpy as np
import pyarrow as pa
import pytest

import deltacompact
from deltacompact import Settings
from deltacompact.base.errors import InputError
from deltacompact.base.model import Partition
from deltacompact.storage.s3 import S3Store

LOCAL = Settings(executor="local", local_threads=1)


def rows(step: int) -> pa.Table:
    return pa.table({"id": range(100 * step, 100 * step + 100), "x": np.random.default_rng(step).random(100)})


@pytest.fixture
def table(s3_catalog_uri):
    """Four compacted files that each may have any `x`."""
    table = deltacompact.open_catalog(s3_catalog_uri).create_table("t", primary_keys=["id"])
    for step in range(4):
        table.append(rows(step))
        compacted(table, cluster_by="")
    return table


def compacted(table, cluster_by="x"):
    (session,) = table.compact(settings=LOCAL, rows_per_compacted_file=125, cluster_by=cluster_by).sessions
    return session


def paths(table) -> list[str]:
    return [file.path for file in table._catalog.state("t", Partition()).compacted.files]


def moved(uri: str, path: str, storage_class: str) -> None:
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    key = f"{prefix}/{path}".lstrip("/")
    boto3.client("s3").copy_object(
        Bucket=bucket, Key=key, CopySource={"Bucket": bucket, "Key": key}, StorageClass=storage_class
    )


@pytest.fixture
def listed(monkeypatch):
    """The folders of data that are listed."""
    folders, act = [], S3Store.list

    def counted(self, prefix, start_after=""):
        folders.extend([prefix] if "/data/" in prefix else [])
        return act(self, prefix, start_after)

    monkeypatch.setattr(S3Store, "list", counted)
    return folders


def test_a_layout_leaves_cold_files_where_they_are(table, s3_catalog_uri, listed):
    before = paths(table)
    for path, storage_class in zip(before[:2], ("STANDARD_IA", "DEEP_ARCHIVE"), strict=True):
        moved(s3_catalog_uri, path, storage_class)
    advice = table.advise("x")
    left = "2 files in S3's classes for infrequent access or archives: left alone"
    assert (advice.rewrite_files, advice.notes[-1]) == (2, left)  # the footer of the archived one cannot be read
    table.append(rows(4))
    listed.clear()
    session = compacted(table)
    assert set(paths(table)) & set(before) == set(before[:2])
    assert (session.live, len(listed)) == (500, 4)  # a folder for each session that wrote some of the files
    assert compacted(table).nothing_to_do  # what overlaps cold files alone is not written again and again


def test_a_small_cold_file_that_overlaps_nothing_is_not_merged_either(s3_catalog_uri):
    """Files in order of x, and each is small; the first is larger than what is newer."""
    table = deltacompact.open_catalog(s3_catalog_uri).create_table("t", primary_keys=["id"], cluster_by="x")
    before = set[str]()
    for x in [*range(50)], [*range(50, 60)]:
        table.append(pa.table({"id": x, "x": x}))
        table.compact(settings=LOCAL, rows_per_compacted_file=125)
        before = before or set(paths(table))
        moved(s3_catalog_uri, *before, "STANDARD_IA")
    assert len(paths(table)) == 2 and before < set(paths(table))


def test_where_nothing_is_laid_out_nothing_is_listed(table, listed):
    table.append(rows(4))
    compacted(table, cluster_by="")
    assert listed == []


def test_who_may_not_list_files_lays_out_all(table, s3_catalog_uri, monkeypatch, caplog):
    before, act = paths(table), S3Store.list
    moved(s3_catalog_uri, before[0], "STANDARD_IA")

    def refused(self, prefix, start_after=""):
        if "/data/" in prefix:
            raise InputError("S3 refused access (AccessDenied)")
        return act(self, prefix, start_after)

    monkeypatch.setattr(S3Store, "list", refused)
    compacted(table)
    assert not set(paths(table)) & set(before)
    assert "storage classes cannot be listed" in caplog.text

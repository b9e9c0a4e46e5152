"""Readers decide whether a few dead rows are marked: those of plain files never see one.

nobody has said           1 of 40 rows deleted   its file is rewritten
readers=vectors           the same               it stays, with a deletion vector
published to an engine    the same               the same, until the publication stops
lists of files written    then published         rewritten: somebody reads the lists
"""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from iceberg_lake import Lake
from publications import Publications, configure

import deltacompact
from deltacompact.base.errors import ConflictError, InputError
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.delta_streams.file_lists import publish as write_lists

T = "orders"
SETTINGS = deltacompact.Settings(executor="local", local_threads=1)


@pytest.fixture
def published(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publications:
    configure(lake, monkeypatch)
    return Publications(lake, tmp_path / "lake")


@pytest.fixture
def catalog(tmp_path: Path) -> DeltaStreamCatalog:
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    assert isinstance(catalog, DeltaStreamCatalog)
    catalog.create_table(T, primary_keys=["id"])
    return fill(catalog)


def fill(catalog: DeltaStreamCatalog) -> DeltaStreamCatalog:
    catalog.append(T, pa.table({"id": list(range(40))}))
    compact(catalog)
    return catalog


def compact(catalog: DeltaStreamCatalog) -> None:
    deltacompact.compact(T, delta_catalog_client=catalog, settings=SETTINGS)


def marked(catalog: DeltaStreamCatalog, key: int) -> bool:
    """Whether the file of a key is marked where the key is deleted; no reader of ours sees the row again."""
    catalog.append(T, pa.table({"id": [key]}), operation="delete")
    compact(catalog)
    assert key not in catalog.read(T)["id"].to_pylist()
    compacted = catalog.state(T, catalog.partition(T, None)).compacted
    assert compacted is not None
    return any(file.deletions for file in compacted.files)


def plain_rows(catalog: DeltaStreamCatalog) -> int:
    return len(duckdb.read_parquet(catalog.compacted_files(T)).fetchall())


def test_plain_files_have_no_dead_rows_unless_somebody_says_so(catalog: DeltaStreamCatalog) -> None:
    assert not marked(catalog, 1) and plain_rows(catalog) == 39
    catalog.declare_readers(T, "vectors")
    assert catalog.table(T).readers == "vectors"
    assert marked(catalog, 2)
    with pytest.raises(InputError, match="compact with --purge first"):
        catalog.compacted_files(T)


def test_a_file_with_more_dead_rows_is_rewritten(catalog: DeltaStreamCatalog) -> None:
    catalog.declare_readers(T, "vectors")
    assert [marked(catalog, key) for key in range(5)] == [True, True, True, False, True]


def test_plain_files_come_back_with_a_purge(catalog: DeltaStreamCatalog) -> None:
    catalog.declare_readers(T, "vectors")
    assert marked(catalog, 1)
    with pytest.raises(InputError, match=r"--readers files"):
        write_lists(catalog, T)
    catalog.declare_readers(T, "files")
    deltacompact.compact(T, delta_catalog_client=catalog, settings=SETTINGS, purge=True)
    assert [lists.rows for lists in write_lists(catalog, T)] == [39] and plain_rows(catalog) == 39
    assert not marked(catalog, 2)


def test_another_process_sees_the_declaration(catalog: DeltaStreamCatalog) -> None:
    other = deltacompact.open_catalog(catalog.uri)
    assert isinstance(other, DeltaStreamCatalog)
    assert not marked(other, 1)
    catalog.declare_readers(T, "vectors")
    assert marked(other, 2)


def test_a_table_is_created_for_its_readers(tmp_path: Path) -> None:
    catalog = deltacompact.open_catalog(tmp_path)
    assert catalog.create_table(T, primary_keys=["id"], readers="vectors").readers == "vectors"
    catalog.create_table(T, primary_keys=["id"])
    with pytest.raises(ConflictError, match="declared otherwise"):
        catalog.create_table(T, primary_keys=["id"], readers="files")
    with pytest.raises(InputError, match="readers is 'iceberg', it must be 'files' or 'vectors'"):
        catalog.create_table("other", readers="iceberg")
    document = json.loads((tmp_path / T / "table.json").read_text())
    assert document["readers"] == "vectors"


@pytest.mark.parametrize("to", ["iceberg", "delta"])
def test_a_publication_has_readers_that_leave_out_dead_rows(published: Publications, tmp_path: Path, to: str) -> None:
    catalog = fill(published.catalog)
    catalog.publish(T, published.uri if to == "iceberg" else f"delta://{tmp_path}/shown")
    assert marked(catalog, 1)
    if to == "iceberg":
        assert published.shown() == published.compacted()
    catalog.stop_publishing(T)
    assert catalog.table(T).readers is None
    assert not marked(catalog, 2)


def test_a_publication_of_an_earlier_version_goes_on_as_it_was(published: Publications, tmp_path: Path) -> None:
    catalog = fill(published.catalog)
    catalog.publish(T, published.uri)
    path = tmp_path / "lake" / T / "table.json"
    document = json.loads(path.read_text())
    del document["readers"]
    path.write_text(json.dumps(document))
    assert not marked(catalog, 1)


def test_whoever_reads_lists_or_said_files_sees_no_dead_row(published: Publications, tmp_path: Path) -> None:
    catalog = fill(published.catalog)
    write_lists(catalog, T)
    catalog.publish(T, published.uri)
    assert not marked(catalog, 1)
    catalog.stop_publishing(T)
    catalog.declare_readers(T, "files")
    catalog.publish(T, f"delta://{tmp_path}/shown")
    assert not marked(catalog, 2)
    catalog.stop_publishing(T)
    assert catalog.table(T).readers == "files"

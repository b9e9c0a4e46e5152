"""Tables that others left in a bad way: each is refused in one clear line, before any work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from every_mode import NAMES, chosen
from iceberg_lake import SETTINGS
from pyiceberg.exceptions import NoSuchPropertyException, RESTError
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField
from requests import HTTPError

import deltacompact
from deltacompact.base.errors import InputError, NotFoundError

T = "ns.t"
ZORDER = [{"spec-id": 0, "fields": [{"name": "z", "transform": "zorder[3]", "source-id": 1, "field-id": 1000}]}]

PRESTO = {
    "snapshot-id": 1,
    "statistics-path": "p.stats",
    "file-size-in-bytes": 9,
    "file-footer-size-in-bytes": 4,
    "blob-metadata": [
        {
            "type": "presto-sum-data-size-bytes-v1",
            "snapshot-id": 1,
            "sequence-number": 1,
            "fields": [1],
            "properties": {},
        }
    ],
}
NANOSECONDS = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "required": False, "type": "timestamp_ns", "initial-default": 5}],
}


@pytest.fixture
def filled(lake):
    lake.create(T, Schema(NestedField(1, "id", IntegerType())))
    lake.append(T, [{"id": 1}])
    lake.delete_by_key(T, {"id": [1]})
    return lake


def compacted(lake, mode: str) -> None:
    catalog = deltacompact.open_catalog(lake.catalog)
    deltacompact.compact(T, delta_catalog_client=catalog, mode=mode, options=chosen(mode), settings=SETTINGS)


def files(lake) -> set[Path]:
    return {path for path in lake.folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("mode", NAMES)
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"partition-specs": ZORDER}, "partition field 'z' of Iceberg table 'ns.t' has an unknown transform"),
        ({"properties": {"commit.retry.num-retries": "many"}}, "commit.retry.num-retries 'many', which is not a whole"),
        (
            {"properties": {"write.metadata.previous-versions-max": "1.5"}},
            "Iceberg table 'ns.t': Could not parse table property write.metadata.previous-versions-max to an integer",
        ),
        ({"properties": {"encryption.key-id": "k"}}, "Iceberg table 'ns.t' is encrypted (encryption.key-id)"),
        ({"format-version": 4}, ".metadata.json cannot be read: Input tag '4'"),
        (
            {"statistics": [PRESTO]},
            "metadata.json cannot be read: 2.statistics.0.blob-metadata.0.type: Input should be",
        ),
        ({"statistics": [PRESTO]}, ", not 'presto-sum-data-size-bytes-v1'"),
        ({"schemas": [NANOSECONDS]}, ".metadata.json cannot be read: "),
        ({"default-spec-id": 7}, ".metadata.json cannot be read: default-spec-id 7 can't be found"),
    ],
)
@pytest.mark.slow
def test_metadata_that_cannot_be_worked_with_is_told(filled, mode, changes, why):
    filled.edit_metadata(T, changes)
    before = files(filled)
    with pytest.raises(InputError) as told:
        compacted(filled, mode)
    assert why in str(told.value)
    assert "pydantic" not in str(told.value)
    assert files(filled) == before


def test_a_document_that_was_cut_is_told_without_its_text(filled):
    """It was printed whole: megabytes, and the credentials that a catalog may put into it."""
    location = Path(filled.catalog.load_table(T).metadata_location.removeprefix("file://"))
    location.write_text('{"format-version": 2, "properties": {"s3.secret-access-key": "hidden" ' + " " * 10_000)
    with pytest.raises(InputError, match=r"metadata\.json cannot be read: Invalid JSON") as told:
        compacted(filled, "rewrite")
    assert "hidden" not in str(told.value) and len(str(told.value)) < 1_000


def test_an_entry_of_the_catalog_that_is_no_iceberg_table_is_told(filled, monkeypatch):
    """Glue and Hive have views and plain Parquet tables, too. The catalog "did not answer", and was asked again."""

    def no_table(self, identifier):
        raise NoSuchPropertyException("Property table_type missing, could not determine type: ns.t")

    monkeypatch.setattr(type(filled.catalog), "load_table", no_table)
    with pytest.raises(InputError, match=r"^'ns\.t' of Iceberg catalog .* is no Iceberg table: Property table_type"):
        compacted(filled, "rewrite")


@pytest.mark.parametrize("status", [400, 405, 406, 413, 422])
def test_a_request_that_the_catalog_finds_invalid_is_no_silence(filled, monkeypatch, status):
    def refuses(self, identifier):
        raise RESTError("ValidationException: no") from HTTPError(response=SimpleNamespace(status_code=status))

    monkeypatch.setattr(type(filled.catalog), "load_table", refuses)
    with pytest.raises(InputError, match=r"refuses the request for 'ns\.t': ValidationException: no$"):
        compacted(filled, "rewrite")


def test_a_metadata_file_that_is_gone_is_not_a_catalog_that_is_silent(filled):
    path = Path(filled.catalog.load_table(T).metadata_location.removeprefix("file://"))
    path.unlink()
    with pytest.raises(NotFoundError, match=f"its metadata is missing: .*{path.name}"):
        compacted(filled, "rewrite")


@pytest.mark.parametrize(
    ("mode", "name"),
    [("rewrite", "write.parquet.compression-codec"), ("convert", "write.delete.parquet.compression-codec")],
)
def test_a_codec_of_the_table_that_cannot_be_written_is_refused(filled, mode, name):
    filled.edit_metadata(T, {"properties": {name: "lzo"}})
    before = files(filled)
    with pytest.raises(InputError, match=rf"^{name} 'lzo' is not a codec of pyarrow"):
        compacted(filled, mode)
    assert files(filled) == before

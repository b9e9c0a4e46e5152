"""A Glue catalog with tables on S3, both moto's: the store, the locations and the commit are other ones."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from iceberg_fixtures import glue_lake  # noqa: F401
from iceberg_lake import SETTINGS

import deltacompact
from deltacompact.base.errors import CredentialsError, InputError, OutcomeUnknownError
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.locations import store_of
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.maintain.maintain import Maintain
from deltacompact.iceberg_modes.maintain.options import DAY_MS

QUICK = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "2"}


def test_credentials_that_the_catalog_vends_reach_the_store(glue_lake, monkeypatch):
    lake, table_id = glue_lake
    lake.create(table_id, pa.schema([("id", pa.int64())]))
    for number in range(3):
        lake.append(table_id, [{"id": number}])
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    catalog = deltacompact.open_catalog(lake.catalog)
    options = {"rewrite-all": "true"}
    result = deltacompact.compact(table_id, delta_catalog_client=catalog, options=options, settings=SETTINGS)
    assert (result.files_in, result.files_out) == (3, 1)
    assert sorted(row["id"] for row in lake.rows(table_id)) == [0, 1, 2]


def test_our_own_settings_come_before_those_of_the_catalog(monkeypatch):
    vended = {
        "client.access-key-id": "c",
        "client.secret-access-key": "c",
        "s3.access-key-id": "v",
        "s3.secret-access-key": "w",
        "s3.session-token": "t",
        "s3.region": "eu-west-1",
    }
    settings = store_of("s3a://lake/t", vended).settings
    assert (settings.access_key, settings.secret_key, settings.session_token) == ("v", "w", "t")
    assert settings.region == "eu-west-1"
    assert "'v'" not in repr(settings) and "'w'" not in repr(settings) and "'t'" not in repr(settings)
    monkeypatch.setenv("DELTACOMPACT_S3_ACCESS_KEY", "own")
    monkeypatch.setenv("DELTACOMPACT_S3_SECRET_KEY", "own")
    settings = store_of("s3://lake/t", vended).settings
    assert (settings.access_key, settings.session_token) == ("own", None)
    monkeypatch.delenv("DELTACOMPACT_S3_ACCESS_KEY")
    monkeypatch.setenv("DELTACOMPACT_S3_ROLE_ARN", "arn:aws:iam::1:role/r")
    assert store_of("s3://lake/t", vended).settings.access_key is None


@pytest.mark.parametrize(
    ("code", "sent_before", "told"),
    [
        ("ExpiredTokenException", 0, CredentialsError),
        ("AccessDeniedException", 0, InputError),
        ("ResourceNumberLimitExceededException", 0, InputError),
        ("ExpiredTokenException", 1, OutcomeUnknownError),
    ],
)
def test_glue_refuses_a_commit_or_only_its_second_sending(glue_lake, monkeypatch, code, sent_before, told):
    """boto3 sends a request again when its answer is lost. Then the first sending may have been carried out."""
    lake, table_id = glue_lake
    lake.create(table_id, pa.schema([("id", pa.int64())]), properties=QUICK)
    for number in range(2):
        lake.append(table_id, [{"id": number}])
    table = IcebergTable.load(lake.catalog, table_id)
    before = {stat.path for stat in table.store.list("")}
    asked = []

    def refuses(**request):
        asked.append(request)
        raise aws_error(code, "UpdateTable", sent_before)

    monkeypatch.setattr(lake.catalog.glue, "update_table", refuses)
    catalog = deltacompact.open_catalog(lake.catalog)
    options = {"rewrite-all": "true"}
    with pytest.raises(told, match=code):
        deltacompact.compact(table_id, delta_catalog_client=catalog, options=options, settings=SETTINGS)
    assert len(asked) == (8 if told is OutcomeUnknownError else 1)
    left = [stat.path for stat in table.store.list("") if stat.path not in before]
    assert any(path.startswith("data/") for path in left) is (told is not InputError)  # what passes leaves all work


@pytest.mark.parametrize(
    ("code", "told"), [("ExpiredTokenException", CredentialsError), ("AccessDeniedException", InputError)]
)
def test_glue_refuses_to_show_a_table(glue_lake, monkeypatch, code, told):
    lake, table_id = glue_lake

    def refuses(**request):
        raise aws_error(code, "GetTable", 0)

    monkeypatch.setattr(lake.catalog.glue, "get_table", refuses)
    with pytest.raises(told, match=rf"^Iceberg catalog 'glue' refuses us: .*{code}"):
        IcebergTable.load(lake.catalog, table_id)


def test_credentials_of_the_store_expire_before_the_swap(glue_lake, monkeypatch):
    """The metadata file cannot be written, so nothing was asked of the catalog."""
    lake, table_id = glue_lake
    lake.create(table_id, pa.schema([("id", pa.int64())]), properties=QUICK)
    lake.append(table_id, [{"id": 1}])
    lake.append(table_id, [{"id": 2}])

    def expired(store, location, data, put=locations.put):
        if location.endswith(".metadata.json"):
            raise CredentialsError("the credentials have expired")
        put(store, location, data)

    monkeypatch.setattr(locations, "put", expired)
    catalog = deltacompact.open_catalog(lake.catalog)
    options = {"rewrite-all": "true"}
    with pytest.raises(CredentialsError, match=r"^the credentials have expired$"):
        deltacompact.compact(table_id, delta_catalog_client=catalog, options=options, settings=SETTINGS)


def aws_error(code, operation, sent_before):
    answer = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"RetryAttempts": sent_before}}
    return ClientError(answer, operation)


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_on_s3_in_glue_is_rewritten(glue_lake, version):
    lake, table_id = glue_lake
    lake.create(table_id, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    for part in range(3):
        lake.append(table_id, [{"id": part * 10 + number, "name": "x"} for number in range(10)])
    lake.delete_by_key(table_id, {"id": [3, 13]})
    path = lake.state(table_id).data[0].file.path
    assert path.startswith("s3://")
    lake.delete_by_position(table_id, {path: [0]})
    if version == 3:
        lake.upgrade(table_id)
    catalog = deltacompact.open_catalog(lake.catalog)
    options = {"rewrite-all": "true"}
    result = deltacompact.compact(table_id, delta_catalog_client=catalog, options=options, settings=SETTINGS)
    assert (result.rows_in, result.rows_out, result.dead_by_key, result.dead_by_position) == (30, 27, 2, 1)
    assert len({row["id"] for row in lake.rows(table_id)} & {3, 13, 20}) == 0
    assert len(lake.rows(table_id)) == 27


def test_a_table_on_s3_in_glue_is_maintained(glue_lake):
    """Files are named s3a:// by one writer and s3:// by another. Deletions go in batches."""
    lake, table_id = glue_lake
    lake.create(table_id, pa.schema([("id", pa.int64())]))
    for number in range(3):
        lake.append(table_id, [{"id": number}])
    lake.catalog.load_table(table_id).delete("id == 1")
    (first, *_) = lake.state(table_id).data
    renamed = replace(first.file, path=first.file.path.replace("s3://", "s3a://"))
    table = IcebergTable.load(lake.catalog, table_id)
    lake.commit(table, [renamed], operation="replace", gone={first.file.path})
    store = locations.store_of(table.metadata.location, table.io_properties)
    locations.put(store, f"{table.metadata.location}/data/a b%20c.parquet", b"lost")
    later = int(time.time() * 1000) + 10 * DAY_MS
    options = {"commit.manifest.target-size-bytes": 8 << 20}
    work = Maintain(IcebergTable.load(lake.catalog, table_id), chosen=options, now_ms=later)
    result = work.run(expire_snapshots=True, rewrite_manifests=True, remove_orphans=True)
    assert len(result.expire_snapshots.snapshots) == 4
    assert result.rewrite_manifests.created == 1
    assert "data/a b%20c.parquet" in result.remove_orphans.paths
    assert len(lake.state(table_id).data) == 2
    for entry in lake.state(table_id).data:
        assert locations.fetched(store, entry.file.path)
    assert {stat.path for stat in store.list("data/")} == {
        entry.file.path.partition("/data/")[2].join(("data/", "")) for entry in lake.state(table_id).data
    }

"""A Glue catalog with tables on S3, both moto's: the store, the locations and the commit are other ones."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from iceberg_lake import SETTINGS, Lake
from pyiceberg.catalog.glue import GlueCatalog

import deltacompact


@pytest.fixture
def glue_lake(tmp_path, moto_endpoint):
    """A Lake whose catalog is Glue's and whose warehouse is a bucket."""
    import boto3

    bucket = f"iceberg-{uuid.uuid4().hex[:8]}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    lake = Lake(tmp_path, "unused")
    name = f"ns{uuid.uuid4().hex[:8]}"
    lake.catalog = GlueCatalog(
        "glue",
        **{
            "glue.endpoint": moto_endpoint,
            "s3.endpoint": moto_endpoint,
            "client.access-key-id": "testing",
            "client.secret-access-key": "testing",
            "client.region": "us-east-1",
            "warehouse": f"s3://{bucket}/warehouse",
        },
    )
    lake.catalog.create_namespace(name)
    return lake, f"{name}.t"


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

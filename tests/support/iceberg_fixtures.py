"""Lakes for tests. Each lake has its own catalog name, because Spark keeps catalogs by name."""

from __future__ import annotations

import uuid

import pytest
from iceberg_lake import Lake


@pytest.fixture(autouse=True)
def silence_is_short(monkeypatch):
    """Retry a catalog that does not answer for a moment, not for half a minute."""
    from deltacompact.iceberg.table.pyiceberg_door import table

    monkeypatch.setattr(table, "SILENT_S", 0.2)


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path, f"lake{uuid.uuid4().hex[:8]}")


@pytest.fixture
def spark_lake(interpreted_spark, lake):
    """The same lake in Spark. Skips the test where Spark could not load Iceberg's runtime."""
    from java_writers import SparkLake

    spark = interpreted_spark
    if "iceberg-spark-runtime" not in spark.sparkContext._jsc.sc().listJars().mkString(" "):
        pytest.skip("Spark started without the Iceberg runtime: no Maven repository was reachable")
    return SparkLake(spark, lake)


@pytest.fixture
def glue_lake(tmp_path, moto_endpoint):
    """A Lake whose catalog is Glue's and whose warehouse is a bucket."""
    import boto3
    from pyiceberg.catalog.glue import GlueCatalog

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

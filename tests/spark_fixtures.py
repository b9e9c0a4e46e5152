"""One Spark session for all tests (some fifteen seconds to start), and a moto server for those that need S3.

The session has Iceberg's runtime and sqlite's JDBC driver from Maven, or it has not, where Maven cannot be reached.
"""

from __future__ import annotations

import uuid

import pytest

import deltacompact

ICEBERG = {
    "spark__jars__packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.50.3.0",
    "spark__sql__extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


@pytest.fixture(scope="session")
def spark(moto_endpoint):
    """Its Python workers inherit the environment of now, by which they find the S3 of our own."""
    from pyspark.errors import PySparkRuntimeError

    from deltacompact.spark.session import spark_session

    try:
        session = spark_session("tests", **ICEBERG)
    except PySparkRuntimeError:  # the JVM ended, because a package could not be resolved
        session = spark_session("tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def moto_endpoint():
    """The URL of an S3 of our own; for the rest of the session the environment leads to it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_catalog_uri(moto_endpoint):
    """A catalog in a fresh bucket."""
    import boto3

    bucket = f"lake-{uuid.uuid4().hex[:8]}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/tables"


@pytest.fixture
def catalog(tmp_path):
    return deltacompact.open_catalog(tmp_path / "lake")


LOCAL = deltacompact.Settings(executor="local")
"""Compactions of these tests run in this process."""


def compact(catalog, table_id, **arguments):
    return deltacompact.compact(table_id, delta_catalog_client=catalog, settings=LOCAL, **arguments)


def sorted_rows(table, *by):
    """The rows of an Arrow table as dicts, in the order of some columns."""
    return table.sort_by([(name, "ascending") for name in by]).to_pylist()

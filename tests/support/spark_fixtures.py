"""One Spark session for all tests (some fifteen seconds to start), and an S3 server for those that need one.

nothing set                                    moto's server, in this process
DELTACOMPACT_TEST_S3=http://127.0.0.1:9000     that server, with the credentials of the environment; queues, topics and
                                               all else of AWS stay with moto

The session has Iceberg's runtime and sqlite's JDBC driver from Maven, or it has not, where Maven cannot be reached.
"""

from __future__ import annotations

import logging
import os
import time
import uuid

import pytest

import deltacompact
from deltacompact.spark.jars import ICEBERG_EXTENSIONS, ICEBERG_RUNTIME, SQLITE_JDBC

SHORT_LIVED_JVM = {"spark__driver__defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Code that runs for a moment is not worth C2's time: a quarter of the CPU of all of Spark's tests."""
ICEBERG = {
    "spark__jars__packages": f"{ICEBERG_RUNTIME},{SQLITE_JDBC}",
    "spark__sql__extensions": ICEBERG_EXTENSIONS,
}


@pytest.fixture(scope="session")
def spark(moto_endpoint):
    """Its Python workers inherit the environment of now, by which they find the S3 of our own."""
    from pyspark.errors import PySparkRuntimeError

    from deltacompact.spark.session import spark_session

    try:
        session = spark_session("tests", **SHORT_LIVED_JVM, **ICEBERG)
    except PySparkRuntimeError:  # the JVM ended, because a package could not be resolved
        session = spark_session("tests", **SHORT_LIVED_JVM)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def moto_endpoint():
    """The URL of an AWS of our own; for the rest of the session the environment leads to it, or to the given S3."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # or each request is a line of a failed test
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
    if given := os.environ.get("DELTACOMPACT_TEST_S3"):
        environment["AWS_ENDPOINT_URL_S3"] = given
    else:
        environment |= {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def s3_endpoint(moto_endpoint):
    """The URL of the S3 server: moto's, or the one given."""
    return os.environ.get("AWS_ENDPOINT_URL_S3", moto_endpoint)


@pytest.fixture
def s3_bucket(s3_endpoint):
    """The name of a fresh bucket, which is removed afterwards with all that is in it."""
    import boto3

    bucket = boto3.resource("s3", endpoint_url=s3_endpoint).create_bucket(Bucket=f"lake-{uuid.uuid4().hex[:8]}")
    yield bucket.name
    for attempt in range(20):
        for upload in bucket.multipart_uploads.all():
            upload.abort()
        bucket.objects.all().delete()
        try:
            bucket.delete()
        except bucket.meta.client.exceptions.ClientError as error:
            # Threads of work that failed or was killed may still write.
            if attempt == 19 or error.response["Error"]["Code"] != "BucketNotEmpty":
                raise
            time.sleep(0.5)
        else:
            break


@pytest.fixture
def s3_catalog_uri(s3_bucket):
    """A catalog in a fresh bucket."""
    return f"s3://{s3_bucket}/tables"


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

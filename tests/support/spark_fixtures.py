"""One Spark session for all tests (some fifteen seconds to start), and an S3 server for those that need one.

nothing set                                    moto's server, in this process
DELTACOMPACT_TEST_S3=http://127.0.0.1:9000     that server, with the credentials of the environment; queues, topics and
                                               all else of AWS stay with moto

The session has Iceberg's and Delta Lake's runtimes and sqlite's JDBC driver from Maven. Without Maven it has none of
the three.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
import uuid
from pathlib import Path

import pytest

import deltacompact
from deltacompact.spark.jars import ICEBERG_EXTENSIONS, ICEBERG_RUNTIME, SQLITE_JDBC

SMALL = {
    "spark__driver__defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark__sql__adaptive__enabled": "false",
    "spark__sql__shuffle__partitions": "1",
    "spark__databricks__delta__snapshotPartitions": "1",
}
"""Tests' jobs are so short that the C2 compiler and adaptive plans cost more than they save."""
DELTA_SPARK = "io.delta:delta-spark_4.1_2.13:4.4.0"
"""The newest Delta Lake for the PySpark that we pin."""
LAKES = {
    "spark__jars__packages": f"{ICEBERG_RUNTIME},{SQLITE_JDBC},{DELTA_SPARK}",
    "spark__sql__extensions": f"{ICEBERG_EXTENSIONS},io.delta.sql.DeltaSparkSessionExtension",
    "spark__sql__catalog__spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(scope="session")
def spark(moto_endpoint):
    """The session of all tests. Its Python workers inherit the environment, which points to the S3 of the tests."""
    from pyspark.errors import PySparkRuntimeError

    from deltacompact.spark.session import spark_session

    with pytest.MonkeyPatch.context() as patch:  # the JVM inherits it, and passes it to its Python workers
        patch.setenv("PYTHONPATH", str(Path(__file__).parent / "spark_workers"), prepend=os.pathsep)
        try:
            session = spark_session("tests", **SMALL, **LAKES)
        except PySparkRuntimeError:  # the JVM ended, because a package could not be resolved
            session = spark_session("tests", **SMALL)
    yield session
    session.stop()


@pytest.fixture
def interpreted_spark(spark):
    """The session without code generation, which takes a third of a query's CPU.

    Spark then reads Parquet with another reader, row by row: use it where Spark's reader is not under test.
    """
    before = {name: spark.conf.get(name) for name in INTERPRETED}
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="session")
def moto_endpoint():
    """The URL of moto's AWS. For the rest of the session the environment points to it, or to the given S3.

    botocore reads its service descriptions once: else each test's client would read megabytes of JSON again.
    """
    import botocore.session
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # else a failed test prints a line for each request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    with_certain_conditions()
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
        patch.setattr(botocore.session, "create_loader", functools.cache(botocore.session.create_loader))
        yield f"http://{host}:{port}"
    server.stop()


def with_certain_conditions():
    """One put at a time: moto first looks at If-Match and If-None-Match and puts later, so two threads may both win."""
    from moto.s3.responses import S3Response

    lock = threading.RLock()

    def locked(handle):
        def handle_alone(*arguments):
            with lock:
                return handle(*arguments)

        return handle_alone

    for name in ("put_object", "_key_response_post"):
        setattr(S3Response, name, locked(getattr(S3Response, name)))


@pytest.fixture(scope="session")
def s3_endpoint(moto_endpoint):
    """The URL of the S3 server: moto's, or the one given."""
    return os.environ.get("AWS_ENDPOINT_URL_S3", moto_endpoint)


@contextlib.contextmanager
def fresh_bucket(s3_endpoint):
    """The name of a fresh bucket. The fixture removes the bucket and its objects afterwards."""
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
            # Threads of failed or killed work may still write objects.
            if attempt == 19 or error.response["Error"]["Code"] != "BucketNotEmpty":
                raise
            time.sleep(0.5)
        else:
            break


@pytest.fixture
def s3_bucket(s3_endpoint):
    with fresh_bucket(s3_endpoint) as name:
        yield name


@pytest.fixture
def s3_catalog_uri(s3_bucket):
    """A catalog in a fresh bucket."""
    return f"s3://{s3_bucket}/tables"


@pytest.fixture
def catalog(tmp_path):
    return deltacompact.open_catalog(tmp_path / "lake")


LOCAL = deltacompact.Settings(executor="local")
"""Compact in the process of the test."""


def compact(catalog, table_id, **arguments):
    return deltacompact.compact(table_id, delta_catalog_client=catalog, settings=LOCAL, **arguments)


def sorted_rows(table, *by):
    """The rows of an Arrow table as dicts, sorted by some columns."""
    return table.sort_by([(name, "ascending") for name in by]).to_pylist()

"""Iceberg has a Spark runtime for the PySpark that we pin, and it works: resolved from Maven, in its own process."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pyspark
import pytest

from deltacompact.spark.jars import ICEBERG_RUNTIME

pytestmark = pytest.mark.processes

_LINE = ".".join(pyspark.__version__.split(".")[:2])
_ARTIFACT = ICEBERG_RUNTIME.rpartition(":")[0]

_USES_IT = """
    import sys
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.defaultJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.jars.ivy", sys.argv[1] + "/ivy")
        .config("spark.jars.packages", sys.argv[2])
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", sys.argv[1] + "/lake")
        .getOrCreate()
    )
    spark.sql("create table lake.db.t (id bigint) using iceberg")
    tables = [row.tableName for row in spark.sql("show tables in lake.db").collect()]
    print("TABLES", tables, spark.sparkContext._jsc.sc().listJars().mkString(" "))
"""


_ANY = "org.slf4j:slf4j-api:2.0.17"
"""A small artifact that every Maven repository has."""


def run(folder, *packages):
    program = folder / "uses_iceberg.py"
    program.write_text(textwrap.dedent(_USES_IT))
    command = [sys.executable, program, folder, *packages]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=folder)


def test_the_iceberg_runtime_of_our_spark_line_resolves_from_maven(tmp_path):
    assert _ARTIFACT.endswith(f":iceberg-spark-runtime-{_LINE}_2.13")
    done = run(tmp_path, f"{_ARTIFACT}:latest.release")
    said = done.stdout + done.stderr
    if "unresolved dependency" in said and "unresolved dependency" in run(tmp_path, _ANY).stderr:
        pytest.skip("no Maven repository is reachable: not even slf4j resolves")
    assert "TABLES ['t'] " in done.stdout, said[-2000:]
    assert f"iceberg-spark-runtime-{_LINE}_2.13-" in done.stdout

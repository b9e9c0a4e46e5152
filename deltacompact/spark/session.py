"""The one place where a Spark session is made.

    spark = spark_session()                          a local session on two cores, on any machine with Java 17
    spark = spark_session(master=None)               whatever spark-submit or the environment says
    spark.read.format("deltacompact")                is registered

The workers run this Python, whatever `python3` is on the path, and reach S3 as this process does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deltacompact.base.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
_INSTALL = f"install Java {JAVA_VERSION_MIN} or newer (a JRE is enough), or point JAVA_HOME to one"
_FORWARDED = ("AWS_", "DELTACOMPACT_", "PYICEBERG_")
_QUIET = Path(__file__).with_name("log4j2.properties")
_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_DEFAULTS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_QUIET.as_uri()}",
}


def spark_session(app_name: str = "deltacompact", master: str | None = "local[2]", **conf: object) -> SparkSession:
    """The running session, or a new one, with the data source registered.

    `conf` are Spark settings, whose dots may be written as two underscores: spark__driver__memory="4g". Raises
    InputError where Java is missing or too old.
    """
    check_java()
    from pyspark.sql import SparkSession

    from deltacompact.spark.data_source import DeltaCompactSource

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(app_name)
    settings: dict[str, object] = dict(_DEFAULTS)
    if master is not None:
        builder = builder.master(master)
        settings |= _LOCAL_DEFAULTS if master.startswith("local") else {}
    settings |= {name.replace("__", "."): value for name, value in conf.items()}
    running = SparkSession.getActiveSession()
    if running is None:
        for name, value in settings.items():
            builder = builder.config(name, str(value))
    spark = running or builder.getOrCreate()
    _forward_environment(spark)
    spark.dataSource.register(DeltaCompactSource)
    return spark


def check_java() -> None:
    """Raises InputError where Spark could not start: pyspark's own error does not say what is missing."""
    version = java_version()
    if version is None:
        raise InputError(f"Spark needs Java, which was not found: {_INSTALL}")
    if version < JAVA_VERSION_MIN:
        raise InputError(f"Spark needs Java {JAVA_VERSION_MIN}, found is Java {version}: {_INSTALL}")


def java_version() -> int | None:
    """The feature release of the Java that Spark would start, None where there is none."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if program is None:
        return None
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60).stderr
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer)  # 1.8.0_402 is Java 8
    return int(found[1]) if found else None


def _forward_environment(spark: SparkSession) -> None:
    """Python workers inherit the environment of the JVM, which is as old as the session: tell them what changed."""
    environment = spark.sparkContext.environment
    for name in [name for name in environment if name.startswith(_FORWARDED)]:
        del environment[name]
    environment |= {name: value for name, value in os.environ.items() if name.startswith(_FORWARDED)}

"""One JVM with all cores, otherwise Spark's own settings: what every contender on Spark runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.competitors import CORES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DRIVER_MEMORY = "8g"


def spark_on_all_cores(settings: dict[str, str]) -> SparkSession:
    """A new session. `settings` are Spark's, by their full names."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{CORES}]").appName("benchmarks")
    for name, value in {
        "spark.driver.memory": _DRIVER_MEMORY,
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **settings,
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()

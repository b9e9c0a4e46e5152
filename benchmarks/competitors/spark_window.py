"""Spark in the way of the compactor before Ray: row_number over each key, newest position first, the first is kept.

Positions are even for upserts and odd for deletes: what has an odd one last is gone.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.competitors import CORES, Run
from benchmarks.configurations import COMPRESSION
from benchmarks.data import Inputs

DRIVER_MEMORY = "8g"


class SparkWindow:
    """One JVM with all cores, otherwise Spark's own settings."""

    def start(self) -> None:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(f"local[{CORES}]").appName("benchmarks")
        for name, value in {
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.parquet.compression.codec": COMPRESSION,
        }.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()

    def build_base(self, inputs: Inputs, folder: Path) -> None:
        """Nothing: it rewrites everything anyway."""

    def stop(self) -> None:
        self._spark.stop()

    def prepare(self, inputs: Inputs, folder: Path, base: Path) -> Run:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        def rows(files: tuple[Path, ...], position: int):  # type: ignore[no-untyped-def]
            return self._spark.read.parquet(*map(str, files)).withColumn("position", f.lit(position))

        def work() -> None:
            newest_first = Window.partitionBy(*inputs.keys).orderBy(f.desc("position"))
            every = rows(inputs.prior, 0)
            for place, delta in enumerate(inputs.deltas, 1):
                every = every.unionByName(rows(delta.files, 2 * place + delta.deletes), allowMissingColumns=True)
            latest = every.withColumn("rank", f.row_number().over(newest_first)).where("rank = 1")
            if inputs.deletes:
                latest = latest.where("position % 2 = 0")
            latest.drop("rank", "position").write.parquet(str(folder))

        return Run(work, lambda: sorted(folder.glob("part-*.parquet")))

"""Spark in the way of the compactor before Ray: row_number over each key, newest position first, the first is kept.

Positions are even for upserts and odd for deletes: what has an odd one last is gone.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.competitors import Run
from benchmarks.configurations import COMPRESSION
from benchmarks.data import Inputs
from benchmarks.spark import spark_on_all_cores


class SparkWindow:
    """The newest row of each key, by a window function."""

    def start(self) -> None:
        self._spark = spark_on_all_cores(
            {"spark.sql.session.timeZone": "UTC", "spark.sql.parquet.compression.codec": COMPRESSION}
        )

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
            for number, delta in enumerate(inputs.deltas, 1):
                every = every.unionByName(rows(delta.files, 2 * number + delta.deletes), allowMissingColumns=True)
            latest = every.withColumn("rank", f.row_number().over(newest_first)).where("rank = 1")
            if inputs.deletes:
                latest = latest.where("position % 2 = 0")
            latest.drop("rank", "position").write.parquet(str(folder))

        return Run(work, lambda: sorted(folder.glob("part-*.parquet")))

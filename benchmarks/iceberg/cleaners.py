"""Who applies the deletes: deltacompact's convert and rewrite, and Spark's rewrite_data_files.

Each counts the rows of its result with a reader: PyIceberg's for ours, Spark's own for Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

import pyarrow.compute as pc

from benchmarks.competitors import CORES
from benchmarks.iceberg.tables import TABLE, MadeTable

REWRITE_OPTIONS = {"delete-file-threshold": "1"}
_PACKAGES = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.50.3.0"
_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


class Cleaner(Protocol):
    """Applies the deletes of tables. `clean` is what is measured."""

    def clean(self, made: MadeTable) -> dict[str, Any]:
        """Apply all equality deletes. Returns what it says of it."""

    def found(self, made: MadeTable) -> tuple[int, int]:
        """How many rows a reader finds now, and the sum of their ids."""

    def stop(self) -> None: ...


class DeltaCompact:
    """compact() in a mode."""

    def __init__(self, mode: str, executor: str) -> None:
        self._mode, self._executor = mode, executor

    def clean(self, made: MadeTable) -> dict[str, Any]:
        from deltacompact import Settings, compact, open_catalog

        options = REWRITE_OPTIONS if self._mode == "rewrite" else {}
        result: Any = compact(
            TABLE,
            delta_catalog_client=open_catalog(made.catalog()),
            mode=self._mode,  # type: ignore[call-overload]
            options=options,
            settings=Settings(executor=self._executor),
        )
        return asdict(result)

    def found(self, made: MadeTable) -> tuple[int, int]:
        rows = total = 0
        for batch in made.catalog().load_table(TABLE).scan(selected_fields=("id",)).to_arrow_batch_reader():
            rows += batch.num_rows
            total += pc.sum(batch["id"]).as_py() or 0
        return rows, total

    def stop(self) -> None:
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()


class Spark:
    """rewrite_data_files in a session of its own, with Iceberg's runtime from Maven."""

    def __init__(self) -> None:
        from deltacompact.spark.session import spark_session

        packages = {"spark__jars__packages": _PACKAGES, "spark__sql__extensions": _EXTENSIONS}
        self._spark = spark_session("benchmark", f"local[{CORES}]", spark__driver__memory="8g", **packages)

    def clean(self, made: MadeTable) -> dict[str, Any]:
        name = self._catalog(made)
        options = ", ".join(f"'{key}', '{value}'" for key, value in REWRITE_OPTIONS.items())
        call = f"call {name}.system.rewrite_data_files(table => '{TABLE}', options => map({options}))"
        return dict(self._spark.sql(call).collect()[0].asDict())

    def found(self, made: MadeTable) -> tuple[int, int]:
        counted = self._spark.sql(f"select count(*), sum(id) from {self._catalog(made)}.{TABLE}").collect()[0]
        return int(counted[0]), int(counted[1])

    def stop(self) -> None:
        self._spark.stop()

    def _catalog(self, made: MadeTable) -> str:
        """The table's catalog, made known to the session."""
        options = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{made.database}",
            "warehouse": made.warehouse,
            "jdbc.schema-version": "V1",
            "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
            "cache-enabled": "false",
        }
        self._spark.conf.set(f"spark.sql.catalog.{made.name}", "org.apache.iceberg.spark.SparkCatalog")
        for option, value in options.items():
            self._spark.conf.set(f"spark.sql.catalog.{made.name}.{option}", value)
        return made.name


CLEANERS: dict[str, Callable[[], Cleaner]] = {
    "convert local": lambda: DeltaCompact("convert", "local"),
    "convert ray": lambda: DeltaCompact("convert", "ray"),
    "rewrite local": lambda: DeltaCompact("rewrite", "local"),
    "rewrite ray": lambda: DeltaCompact("rewrite", "ray"),
    "spark": Spark,
}

"""The independent judge of Iceberg tables: Spark reads two snapshots of a table with its own reader, and compares rows.

    snapshot 7    rows of every kind, deletes applied by Spark    -> a digest each, counted
    snapshot 9    the same                                        -> the same digests, as often?

Equal rows may be there several times, so digests are counted. PyIceberg counts the rows, too, where it can read them.
Reports name digests, never row values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField

from deltacompact.base.errors import InputError
from deltacompact.base.wording import text_of
from deltacompact.spark.comparable import comparison_of
from deltacompact.spark.jars import ICEBERG_RUNTIME, SQLITE_JDBC
from deltacompact.spark.quiet_start import quiet_session
from deltacompact.tabular.fingerprint_sql import fingerprint_statement, spark_name

if TYPE_CHECKING:
    from deltacompact.catalog.iceberg import IcebergCatalog

_DIGESTS_SHOWN = 5
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's own formats stop at milliseconds."""
_JAVA_NAMES = {
    "rest": ("uri", "credential", "token", "warehouse", "scope", "oauth2-server-uri"),
    "hive": ("uri", "warehouse"),
}
"""Properties that PyIceberg and Java call by the same name, by kind of catalog."""


@dataclass(frozen=True, slots=True)
class SnapshotsReport:
    """What was found of two snapshots. `missing` and `extra` count rows of `before` and of `after` alone."""

    table_id: str
    branch: str
    before: int | None
    after: int | None
    rows_before: int = 0
    rows_after: int = 0
    missing: int = 0
    extra: int = 0
    digests: tuple[str, ...] = ()
    counted_by_pyiceberg: int | None = None
    fingerprint: str | None = None
    recorded: str | None = None
    nothing_to_do: str | None = None

    @property
    def ok(self) -> bool:
        counted = self.counted_by_pyiceberg in (None, self.rows_after)
        return not (self.missing or self.extra) and counted and self.recorded in (None, self.fingerprint)

    def __str__(self) -> str:
        if self.nothing_to_do:
            return f"{self.table_id}, branch {self.branch}: {self.nothing_to_do}"
        where = f"{self.table_id}, branch {self.branch}, snapshots {self.before} and {self.after}"
        if self.ok:
            also = "" if self.counted_by_pyiceberg is None else ", and PyIceberg counts as many"
            also += "" if self.recorded is None else f"; their fingerprint is {self.recorded}, as recorded"
            return f"{where}: validated: Spark reads {self.rows_after} identical rows{also}"
        problems = [
            f"{self.missing} rows of {self.rows_before} are missing" if self.missing else "",
            f"{self.extra} rows of {self.rows_after} were not there before" if self.extra else "",
            f"digests {', '.join(self.digests)}" if self.digests else "",
        ]
        if self.counted_by_pyiceberg not in (None, self.rows_after):
            problems.append(f"Spark reads {self.rows_after} rows, PyIceberg {self.counted_by_pyiceberg}")
        if self.recorded not in (None, self.fingerprint):
            problems.append(f"their fingerprint is {self.fingerprint}, but {self.recorded} is recorded")
        return f"{where}: NOT VALID: " + "; ".join(filter(None, problems))


def validate_snapshots(
    catalog: IcebergCatalog,
    table_id: str,
    branch: str = "main",
    before: int | None = None,
    after: int | None = None,
    spark: SparkSession | None = None,
) -> SnapshotsReport:
    """Compare two snapshots; by default the newest compaction of the branch with what it found.

    Without a session, one is started, with Iceberg's runtime from Maven. Raises InputError where Spark cannot have the
    catalog, and NotFoundError for a snapshot that is not there.
    """
    chosen = catalog.comparison(table_id, branch, before, after)
    report = SnapshotsReport(table_id, branch, chosen.before, chosen.after, nothing_to_do=chosen.nothing_to_do)
    if chosen.before is None or chosen.after is None:
        return report
    settings = spark_settings(catalog.name, catalog.properties)
    packages = ",".join([ICEBERG_RUNTIME, *([SQLITE_JDBC] if "sqlite" in str(settings.get("uri")) else [])])
    spark = spark or SparkSession.getActiveSession() or quiet_session("validate", spark__jars__packages=packages)
    prefix = f"spark.sql.catalog.{catalog.name}"
    if spark.conf.get(prefix, "") == "":
        spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
        for name, value in settings.items():
            spark.conf.set(f"{prefix}.{name}", value)
    spark.conf.set("spark.sql.iceberg.executor-cache.enabled", "false")  # it resurrected rows after a widened key
    try:
        name = spark_name(catalog.name, *table_id.split("."))
        then, now = (_digests(spark, name, number) for number in (chosen.before, chosen.after))
        compared = then.join(now, "digest", "full_outer").select(
            "digest",
            F.coalesce(then["times"], F.lit(0)).alias("then"),
            F.coalesce(now["times"], F.lit(0)).alias("now"),
        )
        fewer = F.greatest(F.col("then") - F.col("now"), F.lit(0))
        more = F.greatest(F.col("now") - F.col("then"), F.lit(0))
        sums = compared.select(F.sum("then"), F.sum("now"), F.sum(fewer), F.sum(more)).first()
        differing = compared.where("then <> now").select("digest").limit(_DIGESTS_SHOWN).collect()
        metadata = catalog.metadata(table_id)
        recorded = metadata.recorded_fingerprint(metadata.snapshots[chosen.after])
        relation = f"{name} VERSION AS OF {chosen.after}"
        found = added_up(spark, metadata.schema, relation) if recorded else None
    except (PySparkException, Py4JError) as error:
        raise InputError(f"Spark cannot read {catalog.name}.{table_id}: {text_of(error)[:300]}") from error
    rows_before, rows_after, missing, extra = (int(count or 0) for count in sums or (0, 0, 0, 0))
    return replace(
        report,
        rows_before=rows_before,
        rows_after=rows_after,
        missing=missing,
        extra=extra,
        digests=tuple(row["digest"][:12] for row in differing),
        counted_by_pyiceberg=catalog.loaded(table_id).counted(chosen.after),
        fingerprint=found,
        recorded=recorded,
    )


def spark_settings(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings of a catalog that PyIceberg has. Raises InputError for a kind that we cannot translate."""
    kind, uri = properties.get("type", ""), properties.get("uri", "")
    warehouse = {"warehouse": properties["warehouse"]} if "warehouse" in properties else {}
    if kind in _JAVA_NAMES:
        return {"type": kind} | {key: properties[key] for key in _JAVA_NAMES[kind] if key in properties}
    if kind == "glue":
        return {"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog"} | warehouse
    if uri.startswith("sqlite:///"):
        jdbc = {"type": "jdbc", "uri": f"jdbc:sqlite:{uri.removeprefix('sqlite:///')}", "jdbc.schema-version": "V1"}
        return jdbc | warehouse | {"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO", "cache-enabled": "false"}
    raise InputError(
        f"Iceberg catalog {name!r} ({kind or uri.partition(':')[0]}): we know no settings of Spark for this kind. "
        f"Hand a session with spark.sql.catalog.{name} to deltacompact.spark.iceberg.validate_snapshots"
    )


def added_up(spark: SparkSession, schema: pa.Schema, relation: str) -> str:
    """The fingerprint of a relation of Spark's, as text. The session's time zone must be UTC."""
    (text,) = spark.sql(fingerprint_statement(schema, relation, "spark", uuids=True)).collect()[0]
    return str(text)


def _digests(spark: SparkSession, table: str, snapshot_id: int) -> DataFrame:
    """The digests of all rows of a snapshot, and how often each is there. Columns count by name."""
    rows = spark.read.option("versionAsOf", snapshot_id).table(table)
    columns = [_column(field) for field in sorted(rows.schema, key=lambda field: field.name)]
    row = F.to_json(F.struct(*columns), _JSON)
    return rows.select(F.sha2(row, 256).alias("digest")).groupBy("digest").agg(F.count("*").alias("times"))


def _column(field: StructField) -> Column:
    """The column, with the entries of maps: Spark writes binary keys to JSON as the address of an object."""
    column = F.col(spark_name(field.name))
    has_map = "map<" in field.dataType.simpleString()
    return comparison_of(column, to_arrow_type(field.dataType)).alias(field.name) if has_map else column

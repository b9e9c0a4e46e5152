"""Spark on the catalog of a Lake, and Iceberg's own Java writers of equality deletes and deletion vectors over py4j.

    spark_lake = SparkLake(spark, lake)
    spark_lake.sql("delete from {ns.t} where id = 3")             Spark's position deletes
    spark_lake.delete_by_key("ns.t", {"id": [1, 2]})              Java's equality deletes
    spark_lake.delete_by_vector("ns.t", {path: [0, 4]})           Java's deletion vectors
    spark_lake.rows("ns.t")                                       Spark reads, with all deletes applied

Both sides share one sqlite file: the JDBC catalog has the same name and schema version V1.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from iceberg_lake import Lake, sorted_rows

T = "ns.t"
MERGE_ON_READ = "'format-version'='2', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read'"

_OPTIONS = {
    "type": "jdbc",
    "jdbc.schema-version": "V1",
    "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
    "cache-enabled": "false",
}


class SparkLake:
    """Spark's view of a lake."""

    def __init__(self, spark: Any, lake: Lake) -> None:
        self.spark = spark
        self.lake = lake
        # Spark keeps a catalog for the life of the session, so every lake needs a name of its own.
        self.name = lake.name
        spark.conf.set(f"spark.sql.catalog.{self.name}", "org.apache.iceberg.spark.SparkCatalog")
        options = _OPTIONS | {"uri": f"jdbc:sqlite:{lake.database}", "warehouse": lake.warehouse}
        for option, value in options.items():
            spark.conf.set(f"spark.sql.catalog.{self.name}.{option}", value)
        spark.conf.set("spark.sql.iceberg.executor-cache.enabled", "false")  # it resurrects rows: see iceberg.md

    def sql(self, text: str) -> Any:
        """Run a statement, in which {ns.t} is a table of the lake."""
        return self.spark.sql(re.sub(r"\{([\w.]+)\}", rf"{self.name}.\1", text))

    def rows(self, table_id: str, branch: str = "main") -> list[dict[str, Any]]:
        table = f"{self.name}.{table_id}" + ("" if branch == "main" else f".branch_{branch}")
        return sorted_rows([row.asDict(recursive=True) for row in self.spark.table(table).collect()])

    def table(self, table_id: str) -> Any:
        """The Java table in its newest state."""
        util = self.spark._jvm.org.apache.iceberg.spark.Spark3Util
        return util.loadIcebergTable(self.spark._jsparkSession, f"{self.name}.{table_id}")

    def delete_by_key(
        self,
        table_id: str,
        keys: Mapping[str, Sequence[Any]],
        partition: str = "",
        spec_id: int | None = None,
        branch: str = "main",
    ) -> None:
        """Commit one equality-delete file as Flink does. `partition` is a path such as "day=3"."""
        jvm, table = self.spark._jvm, self.table(table_id)
        schema = table.schema().select(list(keys))  # in the table's order, whatever the order of `keys`
        keys = {column.name(): keys[column.name()] for column in schema.columns()}
        ids = [schema.findField(name).fieldId() for name in keys]
        spec = table.spec() if spec_id is None else table.specs().get(spec_id)
        record_class = jvm.org.apache.iceberg.data.GenericRecord.create(schema).getClass().getInterfaces()[0]
        output = jvm.org.apache.iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(self._output(table))
        builder = jvm.org.apache.iceberg.formats.FormatModelRegistry.equalityDeleteWriteBuilder(
            jvm.org.apache.iceberg.FileFormat.PARQUET, record_class, output
        )
        builder = builder.schema(schema).spec(spec).equalityFieldIds(ids)
        if partition:
            builder = builder.partition(self.partition(spec, partition))
        writer = builder.build()
        # py4j would turn a small long into an Integer, so Spark makes the rows
        types = self.spark.table(f"{self.name}.{table_id}").select(*keys).schema
        rows = self.spark.createDataFrame(list(zip(*keys.values(), strict=True)), types)._jdf.collectAsList()
        for number in range(rows.size()):
            writer.write(jvm.org.apache.iceberg.spark.SparkValueConverter.convert(schema, rows.get(number)))
        writer.close()
        table.newRowDelta().addDeletes(writer.toDeleteFile()).toBranch(branch).commit()

    def delete_by_vector(self, table_id: str, positions: Mapping[str, Sequence[int]]) -> None:
        """Commit one Puffin file with a new deletion vector for each data file. The table has format version 3."""
        jvm, table = self.spark._jvm, self.table(table_id)
        partitions = {}
        tasks = table.newScan().planFiles().iterator()
        while tasks.hasNext():
            file = tasks.next().file()
            partitions[file.location()] = (table.specs().get(file.specId()), file.partition())
        formats = jvm.org.apache.iceberg.FileFormat
        factory = jvm.org.apache.iceberg.io.OutputFileFactory.builderFor(table, 1, 1).format(formats.PUFFIN).build()
        no_former = jvm.com.google.common.base.Functions.constant(None)
        writer = jvm.org.apache.iceberg.deletes.BaseDVFileWriter(factory, no_former)
        for path, places in positions.items():
            for place in places:
                writer.delete(path, place, *partitions[path])
        writer.close()
        delta = table.newRowDelta()
        for file in writer.result().deleteFiles():
            delta = delta.addDeletes(file)
        delta.commit()

    def partition(self, spec: Any, path: str) -> Any:
        """The partition that a path like "day=3/kind=a" names."""
        builder = self.spark._jvm.org.apache.iceberg.DataFiles.builder(spec).withPartitionPath(path)
        return builder.withPath("none.parquet").withFileSizeInBytes(1).withRecordCount(1).build().partition()

    def _output(self, table: Any) -> Any:
        location = f"{table.location()}/data/{uuid.uuid4()}-eq.parquet"
        return table.io().newOutputFile(location)


def create(spark_lake, columns="id bigint, name string", partition="", properties=MERGE_ON_READ):
    by = f"partitioned by ({partition})" if partition else ""
    spark_lake.sql(f"create table {{{T}}} ({columns}) using iceberg {by} tblproperties ({properties})")


def append(spark_lake, *numbers, name="x", branch=""):
    values = ", ".join(f"({number}, '{name}{number % 3}')" for number in numbers)
    spark_lake.sql(f"insert into {{{T}{branch}}} values {values}")

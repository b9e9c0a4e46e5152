"""Spark judges files of other writers (`add_files` of a Hive layout) and rows that were divided by another spec."""

from __future__ import annotations

import datetime
import decimal

from iceberg_lake import SETTINGS

from deltacompact.catalog.iceberg.convert.convert import Convert
from deltacompact.catalog.iceberg.convert.options import convert_options
from deltacompact.catalog.iceberg.table.metadata import MAIN
from deltacompact.catalog.iceberg.table.pyiceberg_door import IcebergTable

T = "ns.t"


def add_files(spark_lake, path):
    spark_lake.sql(f"call {spark_lake.name}.system.add_files(table => '{T}', source_table => '`parquet`.`{path}`')")


def test_a_hive_layout_that_spark_added_reads_the_same_after_each_mode(spark_lake, lake):
    spark = spark_lake.spark
    spark_lake.sql(
        "create table {ns.t} (id int, place struct<town: string, zip: int>, tags array<struct<k: string>>, "
        "price decimal(9, 2), day date, kind string) using iceberg partitioned by (day, kind) "
        "tblproperties ('format-version'='2', 'write.delete.mode'='merge-on-read')"
    )
    rows = [
        (number, (f"t{number}", 7), [("a",)], decimal.Decimal(number), datetime.date(2026, 1, 1 + number % 2), kind)
        for number, kind in enumerate(["a b", "c%d", None, "a b", "a b", "ü"])
    ]
    frame = spark.createDataFrame(rows, spark.table(f"{lake.name}.{T}").schema)
    old = (lake.folder / "hive").as_posix()
    frame.coalesce(1).write.option("parquet.block.size", 1).partitionBy("day", "kind").parquet(old)
    add_files(spark_lake, old)
    spark_lake.sql("alter table {ns.t} rename column place.town to city")
    spark_lake.sql("alter table {ns.t} alter column id type bigint")
    spark_lake.sql("insert into {ns.t} values (9, struct('x', 1), array(), 1.5, date'2026-01-01', 'a b')")
    spark_lake.sql("delete from {ns.t} where id = 3")
    spark_lake.delete_by_key(T, {"id": [4], "kind": ["a b"]}, partition="day=2026-01-01/kind=a b")
    before = spark_lake.rows(T)
    assert sorted(row["id"] for row in before) == [0, 1, 2, 5, 9]
    table = IcebergTable.load(lake.catalog, T)
    Convert(table, MAIN, convert_options({}), SETTINGS).run()
    result = lake.rewrite(T, rewrite_all=True)
    assert (result.files_in, result.dead_by_position) == (6, 2)
    spark_lake.sql("alter table {ns.t} unset tblproperties ('schema.name-mapping.default')")  # outputs have ids
    assert spark_lake.rows(T) == before


SPEC = [("bucket", "id", 4), ("day", "at"), ("hour", "atz"), ("truncate", "name", 2), ("ref", "price")]
SPEC += [("bucket", "name", 3), ("truncate", "price", 3)]


def test_rows_that_are_divided_by_a_spec_lie_where_spark_puts_them_and_keep_their_lineage(spark_lake, lake):
    columns = "(id bigint, at timestamp_ntz, atz timestamp, name string, price decimal(9, 2))"
    spark_lake.sql(f"create table {{ns.t}} {columns} using iceberg tblproperties ('format-version'='3')")
    for first in (0, 4):
        values = [
            f"({number - 3}, timestamp_ntz'1969-12-31 23:59:59.{number}', timestamp'2026-01-0{number + 1} 10:00:00', "
            f"'ü{number % 3}x', {number - 3}.25), ({number}, null, null, null, null)"
            for number in range(first, first + 4)
        ]
        spark_lake.sql("insert into {ns.t} values " + ", ".join(values))
    spark_lake.sql(f"create table {{ns.twin}} {columns} using iceberg")
    for table in (T, "ns.twin"):
        change = spark_lake.table(table).updateSpec()
        terms = spark_lake.spark._jvm.org.apache.iceberg.expressions.Expressions
        for transform, *arguments in SPEC:
            change.addField(getattr(terms, transform)(*arguments))
        change.commit()
    spark_lake.sql("delete from {ns.t} where id = 2")
    lineage = "select *, _row_id, _last_updated_sequence_number from {ns.t} order by _row_id"
    before = spark_lake.sql(lineage).collect()
    spark_lake.sql("insert into {ns.twin} select * from {ns.t}")
    spec_id = lake.catalog.load_table(T).spec().spec_id
    result = lake.rewrite(T, rewrite_all=True, output_spec_id=spec_id)
    assert (result.rows_out, result.files_out > result.groups) == (len(before), True)
    assert spark_lake.sql(lineage).collect() == before
    ours, theirs = (
        spark_lake.sql(f"select distinct partition.* from {{{table}.files}}").collect() for table in (T, "ns.twin")
    )
    assert sorted(ours, key=repr) == sorted(theirs, key=repr)

"""Spark and Iceberg's Java writers beside a conversion: Spark reads the same rows before and after it."""

from __future__ import annotations

from conversions import T, convert, kinds, once
from java_writers import MERGE_ON_READ, append, create


def check(lake, spark_lake, **others):
    """Convert all equality deletes. Spark reads the same rows, and counts no equality delete."""
    before = spark_lake.rows(T)
    data = [entry.file for entry in lake.state(T).data]
    result = convert(lake, **others)
    assert spark_lake.rows(T) == before
    assert [entry.file for entry in lake.state(T).data] == data
    contents = {row.content for row in spark_lake.sql(f"select content from {{{T}.all_delete_files}}").collect()}
    assert contents <= {1, 2}
    live = {row.content for row in spark_lake.sql(f"select content from {{{T}.delete_files}}").collect()}
    assert live == {1}
    return result


def test_version_2_beside_spark(lake, spark_lake):
    """Partitions, a global delete, position deletes of Spark, nulls, rules 1, 2, 13, 16, 21 and 23 as Java has them."""
    create(spark_lake)
    append(spark_lake, *range(10))
    spark_lake.sql(f"alter table {{{T}}} add partition field name")
    append(spark_lake, *range(10, 22))
    spark_lake.sql(f"insert into {{{T}}} values (null, 'x0'), (5, null)")
    spark_lake.sql(f"delete from {{{T}}} where id in (3, 13)")
    spark_lake.delete_by_key(T, {"id": [0, 12, 13, None]}, "name=x0")
    spark_lake.delete_by_key(T, {"id": [1, 2, 3, 14]}, spec_id=0)
    append(spark_lake, 1, 12)
    result = check(lake, spark_lake)
    assert (result.equality_deletes_removed, result.rows_marked) == (2, 5)
    assert lake.rows(T) == spark_lake.rows(T)
    # Java's own compaction takes our position deletes as its own
    spark_lake.delete_by_key(T, {"id": [4]}, spec_id=0)
    before = spark_lake.rows(T)
    check(lake, spark_lake)
    arguments = f"table => '{T}', options => map('rewrite-all', 'true')"
    spark_lake.sql(f"call {spark_lake.name}.system.rewrite_position_delete_files({arguments})")
    assert spark_lake.rows(T) == before
    spark_lake.sql(f"call {spark_lake.name}.system.rewrite_data_files({arguments})")
    assert spark_lake.rows(T) == before
    assert lake.rows(T) == before
    # Spark deletes and appends while we convert
    spark_lake.delete_by_key(T, {"id": [5, 6]}, spec_id=0)

    def others():
        spark_lake.sql(f"delete from {{{T}}} where id = 7")
        append(spark_lake, 5, 40)

    convert(lake, before_commit=once(others))
    expected = sorted([*(row["id"] for row in before if row["id"] not in (5, 6, 7)), 5, 40], key=str)
    assert sorted((row["id"] for row in spark_lake.rows(T)), key=str) == expected


def test_version_3_beside_spark(lake, spark_lake):
    """Rule 18: Java reads our vectors, replaces them, and we replace Java's. An upgraded table, too."""
    create(spark_lake, properties=MERGE_ON_READ)
    append(spark_lake, *range(6))
    spark_lake.sql(f"delete from {{{T}}} where id = 0")
    spark_lake.sql(f"alter table {{{T}}} set tblproperties ('format-version'='3')")
    append(spark_lake, *range(6, 12))
    append(spark_lake, *range(12, 15))
    spark_lake.delete_by_key(T, {"id": [1, 7, 100]})
    result = check(lake, spark_lake)
    assert result.rows_marked == 2
    spark_lake.sql(f"delete from {{{T}}} where id in (2, 8, 13)")
    spark_lake.delete_by_key(T, {"id": [3, 9, 12]})
    result = check(lake, spark_lake)
    assert result.rows_marked == 3
    vectors = [entry.file for entry in lake.state(T).deletes if entry.file.is_deletion_vector]
    assert len({file.referenced_data_file for file in vectors}) == len(vectors) == sum(kinds(lake).values())
    assert sum(file.rows for file in vectors) == 9
    assert [row["id"] for row in sorted(spark_lake.rows(T), key=lambda row: row["id"])] == [4, 5, 6, 10, 11, 14]
    spark_lake.delete_by_key(T, {"id": [4]})
    convert(lake, before_commit=once(lambda: spark_lake.sql(f"delete from {{{T}}} where id = 5")))
    assert sorted(row["id"] for row in spark_lake.rows(T)) == [6, 10, 11, 14]
    footers = spark_lake.sql(f"select distinct file_path from {{{T}.delete_files}} where file_format = 'PUFFIN'")
    for row in footers.collect():
        check_puffin(spark_lake, row.file_path)


def check_puffin(spark_lake, path):
    """Java's Puffin reader finds the blobs by the footer."""
    jvm = spark_lake.spark._jvm
    file = spark_lake.table(T).io().newInputFile(path)
    reader = jvm.org.apache.iceberg.puffin.Puffin.read(file).build()
    blobs = reader.fileMetadata().blobs()
    assert {blobs.get(number).type() for number in range(blobs.size())} == {"deletion-vector-v1"}
    reader.close()

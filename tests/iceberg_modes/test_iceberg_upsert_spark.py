"""Spark beside upserts: it writes the events, and reads of each key the newest one, as the oracle does."""

from __future__ import annotations

import pytest
from iceberg_lake import sorted_rows
from upsert_oracle import newest, upsert, visible

T = "ns.t"
COLUMNS = "id bigint not null, name string, day int, updated timestamp, op string"


def write(spark_lake, *events):
    """Append events (id, name, day, op) in one commit. Their time is their place."""
    values = [
        f"({number}, '{name}', {day}, timestamp '2026-11-22 10:00:{second:02d}', {repr(op) if op else 'null'})"
        for second, (number, name, day, op) in enumerate(events)
    ]
    spark_lake.sql(f"insert into {{{T}}} values {', '.join(values)}")


def rows_of_spark(spark_lake):
    return sorted_rows([{**row, "updated": row["updated"].isoformat()} for row in spark_lake.rows(T)])


def check(lake, spark_lake, **options):
    """Upsert, and compare what Spark reads with the oracle."""
    view = newest(visible(lake), ["id"], lambda values: values["updated"], lambda values: values["op"] == "D")
    expected = sorted_rows([{**row, "updated": row["updated"].replace(tzinfo=None).isoformat()} for row in view])
    result = upsert(lake, sort_columns="updated", operation_column="op", **options)
    found = rows_of_spark(spark_lake)
    assert [(row["id"], row["name"]) for row in found] == [(row["id"], row["name"]) for row in expected]
    return result


@pytest.mark.parametrize("version", [2, 3])
def test_spark_reads_the_newest_row_of_each_key(lake, spark_lake, version):
    spark_lake.sql(
        f"create table {{{T}}} ({COLUMNS}) using iceberg partitioned by (day) tblproperties "
        f"('format-version'='{version}', 'write.delete.mode'='merge-on-read')"
    )
    spark_lake.sql(f"alter table {{{T}}} set identifier fields id")
    write(spark_lake, *((number, "a", number % 3, None) for number in range(12)))
    write(spark_lake, (1, "b", 1, None), (1, "c", 1, None), (2, "b", 0, None), (3, "b", 0, "D"), (4, "b", 1, None))
    spark_lake.sql(f"delete from {{{T}}} where id = 5")
    spark_lake.delete_by_key(T, {"id": [6]}, "day=0")
    spark_lake.sql(f"alter table {{{T}}} drop partition field day")
    write(spark_lake, (7, "d", 9, None), (6, "d", 9, None), (8, "d", 9, "D"), (12, "d", 9, "D"))
    result = check(lake, spark_lake)
    assert (result.rows_superseded, result.rows_deleting, result.redone) == (7, 3, 0)
    contents = {row.content for row in spark_lake.sql(f"select content from {{{T}.delete_files}}").collect()}
    assert contents == {1, 2}
    before = rows_of_spark(spark_lake)
    spark_lake.sql(f"delete from {{{T}}} where id = 0")  # Java merges our marks with its own
    expected = [row for row in before if row["id"] != 0]
    assert rows_of_spark(spark_lake) == expected
    spark_lake.sql(
        f"call {spark_lake.name}.system.rewrite_data_files(table => '{T}', options => map('rewrite-all', 'true'))"
    )
    assert rows_of_spark(spark_lake) == expected
    assert "no rows came since" in upsert(lake, sort_columns="updated", operation_column="op").nothing_to_do
    write(spark_lake, (9, "e", 9, None), (0, "e", 9, None))
    assert check(lake, spark_lake).rows_superseded == 1


def test_rule_22_rows_that_spark_merged_before_the_upsert_keep_their_order(lake, spark_lake):
    """Version 3: a compaction merges both rows of each key into one file, and lineage tells which is newer."""
    spark_lake.sql(f"create table {{{T}}} (id bigint, name string) using iceberg tblproperties ('format-version'='3')")
    for name in ("new", "old", "newer"):  # a compaction by name puts the newest row first
        spark_lake.sql(f"insert into {{{T}}} values " + ", ".join(f"({number}, '{name}')" for number in range(50)))
    spark_lake.sql(
        f"call {spark_lake.name}.system.rewrite_data_files(table => '{T}', strategy => 'sort', "
        "sort_order => 'name desc', options => map('rewrite-all', 'true'))"
    )
    assert len(lake.state(T).data) == 1
    assert upsert(lake, key_columns="id").rows_superseded == 100
    assert spark_lake.rows(T) == sorted_rows([{"id": number, "name": "newer"} for number in range(50)])

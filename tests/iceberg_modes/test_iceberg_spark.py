"""Spark and Iceberg's Java writers beside us, on one catalog: they write what we read, and read what we wrote.

Each test takes Spark's rows before and after a rewrite. They are the same, Spark's DELETE files are gone, and PyIceberg
reads the same rows.
"""

from __future__ import annotations

import pytest
from iceberg_lake import sorted_rows
from java_writers import T, append, create

from deltacompact.base.errors import Interrupted
from deltacompact.catalog.iceberg import IcebergCatalog


def check(lake, spark_lake, pyiceberg_reads=True, **options):
    """Rewrite all files. The rows are as before, for Spark and for PyIceberg, and no delete is left."""
    before = spark_lake.rows(T)
    result = lake.rewrite(T, **{"rewrite_all": True} | options)
    assert spark_lake.rows(T) == before
    if pyiceberg_reads:
        assert lake.rows(T) == before
    assert result.rows_out == len(before)
    assert lake.state(T).deletes == ()
    files = spark_lake.sql(f"select content, record_count from {{{T}.files}}").collect()
    assert {row.content for row in files} == {0}
    assert sum(row.record_count for row in files) == len(before)
    return result


def test_sparks_data_updates_and_position_deletes(lake, spark_lake):
    create(spark_lake)
    append(spark_lake, *range(20))
    append(spark_lake, *range(20, 30))
    spark_lake.sql(f"delete from {{{T}}} where id in (3, 25)")
    spark_lake.sql(f"update {{{T}}} set name = 'new' where id < 3")
    assert {entry.file.content.name for entry in lake.state(T).deletes} == {"POSITION_DELETES"}
    result = check(lake, spark_lake)
    assert result.dead_by_position == 5
    summary = spark_lake.sql(f"select operation, summary from {{{T}.snapshots}} order by committed_at").tail(1)[0]
    assert summary.operation == "replace"
    assert summary.summary["total-records"] == "28"


def test_rules_01_and_16_javas_equality_deletes_hit_older_rows_only(lake, spark_lake):
    create(spark_lake)
    append(spark_lake, *range(10))
    spark_lake.delete_by_key(T, {"id": [1, 2, None]})
    append(spark_lake, 1, 50, name="again")
    spark_lake.delete_by_key(T, {"name": ["x0"], "id": [3]})
    append(spark_lake, 3)
    result = check(lake, spark_lake)
    assert (result.dead_by_key, result.delete_files_removed) == (3, 2)


def test_rules_02_and_08_partitions_and_their_deletes(lake, spark_lake):
    create(spark_lake, partition="name, bucket(2, id)")
    append(spark_lake, *range(12))
    append(spark_lake, *range(12))
    spark_lake.delete_by_key(T, {"id": [0, 1, 2, 3, 4, 5]}, "name=x0/id_bucket=0")
    spark_lake.sql(f"delete from {{{T}}} where id = 7")
    result = check(lake, spark_lake)
    assert result.groups > 3
    assert result.dead_by_key > 0


def test_rules_14_and_17_schema_and_partition_evolution(lake, spark_lake):
    create(spark_lake, "id int, name string, day date")
    spark_lake.sql(f"insert into {{{T}}} values (1, 'a', date '2024-01-01'), (2, 'b', date '2024-01-02')")
    spark_lake.delete_by_key(T, {"id": [2]})
    spark_lake.sql(f"alter table {{{T}}} add partition field days(day)")
    spark_lake.sql(f"alter table {{{T}}} alter column id type bigint")
    spark_lake.sql(f"alter table {{{T}}} rename column name to label")
    spark_lake.sql(f"alter table {{{T}}} add column more struct<a: int, b: array<string>>")
    spark_lake.sql(
        f"insert into {{{T}}} values (2, 'c', date '2024-01-01', named_struct('a', 1, 'b', array('z'))), "
        f"(3, 'd', null, null), ({1 << 40}, 'e', date '2024-01-02', null)"
    )
    spark_lake.delete_by_key(T, {"id": [1 << 40]}, spec_id=0)
    spark_lake.sql(f"alter table {{{T}}} drop column label")
    result = check(lake, spark_lake)
    assert result.groups == 4
    assert sorted(entry.file.spec_id for entry in lake.state(T).data) == [0, 1, 1]


def test_rule_06_spark_deletes_while_we_work(lake, spark_lake):
    create(spark_lake)
    append(spark_lake, *range(10))
    append(spark_lake, *range(10, 20))
    done = []

    def others():
        if not done:
            done.append(True)
            spark_lake.delete_by_key(T, {"id": [4, 14]})
            append(spark_lake, 4)
            spark_lake.sql(f"delete from {{{T}}} where id = 5")

    result = lake.rewrite(T, rewrite_all=True, before_commit=others)
    assert (result.redone, result.dead_meanwhile) == (0, 1)
    expected = sorted([*(set(range(20)) - {4, 5, 14}), 4])
    assert sorted(row["id"] for row in spark_lake.rows(T)) == expected
    lake.rewrite(T, rewrite_all=True)  # PyIceberg does not read the equality delete that follows our output
    assert sorted(row["id"] for row in lake.rows(T)) == expected


def test_rule_06_an_equality_delete_of_java_follows_our_output(lake, spark_lake):
    create(spark_lake)
    append(spark_lake, *range(10))
    lake.rewrite(T, rewrite_all=True, before_commit=lambda: spark_lake.delete_by_key(T, {"id": [4]}))
    assert sorted(row["id"] for row in spark_lake.rows(T)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    check(lake, spark_lake)


def test_sparks_own_rewrite_and_ours_in_turn(lake, spark_lake):
    """Spark compacts what we wrote, and what it sees of sequence numbers and counts lets it."""
    create(spark_lake)
    for number in range(3):
        append(spark_lake, *range(number * 5, number * 5 + 5))
    spark_lake.delete_by_key(T, {"id": [1]})
    check(lake, spark_lake)
    append(spark_lake, 90)
    spark_lake.delete_by_key(T, {"id": [2]})
    before = spark_lake.rows(T)
    spark_lake.sql(
        f"call {spark_lake.name}.system.rewrite_data_files(table => '{T}', options => map('rewrite-all', 'true'))"
    )
    assert spark_lake.rows(T) == before
    check(lake, spark_lake)


def test_sparks_files_that_overlap_are_parted_once(lake, spark_lake):
    """Their sizes are healthy, and Java has cut their bounds of texts to 16 characters, which are all alike."""
    create(spark_lake)
    for number in range(4):
        append(spark_lake, *range(number, 800, 4), name="https://www.example.com/")
    before, table = spark_lake.rows(T), IcebergCatalog(lake.catalog).table(T)
    target = max(entry.file.file_bytes for entry in lake.state(T).data)
    files = len(lake.state(T).data)
    assert table.advise("id,name").outlooks[1].now.most == files
    result = lake.rewrite(T, cluster_by="name,id", target_file_size_bytes=target)
    assert result.reasons == {"overlaps": files}
    assert spark_lake.rows(T) == before
    bounds = f"readable_metrics.name.lower_bound as low, readable_metrics.name.upper_bound as high from {{{T}.files}}"
    found = sorted(tuple(row) for row in spark_lake.sql(f"select {bounds}").collect())
    assert len(found) > 1
    assert all(len(low) > 16 for low, _ in found)
    assert lake.rewrite(T, cluster_by="name,id", target_file_size_bytes=target).nothing_to_do
    assert table.advise("name,id").outlooks[-1].now.mean < 1.5


def test_while_spark_rewrites_we_are_refused_and_begin_again(lake, spark_lake):
    create(spark_lake)
    append(spark_lake, *range(5))
    append(spark_lake, *range(5, 10))
    done = []

    def sparks():
        if not done:
            options = "map('rewrite-all', 'true', 'min-input-files', '1')"
            done.append(
                spark_lake.sql(
                    f"call {spark_lake.name}.system.rewrite_data_files(table => '{T}', options => {options})"
                ).collect()
            )

    result = lake.rewrite(T, rewrite_all=True, before_commit=sparks)
    assert (result.groups, result.refused) == (0, [])
    assert [row["id"] for row in spark_lake.rows(T)] == list(range(10))


def test_a_branch_with_deletes_of_its_own(lake, spark_lake):
    create(spark_lake)
    append(spark_lake, *range(6))
    spark_lake.sql(f"alter table {{{T}}} create branch audit")
    append(spark_lake, 9, branch=".branch_audit")
    spark_lake.delete_by_key(T, {"id": [2]}, branch="audit")
    before, main = spark_lake.rows(T, "audit"), spark_lake.rows(T)
    result = lake.rewrite(T, branch="audit", rewrite_all=True)
    assert (result.rows_in, result.rows_out) == (7, 6)
    assert spark_lake.rows(T, "audit") == before
    assert spark_lake.rows(T) == main


def test_rows_of_every_type(lake, spark_lake):
    create(
        spark_lake,
        "id bigint, a int, b float, c double, d decimal(20, 5), e date, f timestamp, g timestamp_ntz, h string, "
        "i binary, j boolean, k array<int>, l map<string, decimal(5, 1)>, m struct<x: int, y: struct<z: string>>",
    )
    spark_lake.sql(
        f"insert into {{{T}}} select id, 1, 1.5f, -0.0d, 12.34500, date '1969-12-31', timestamp '2024-01-01 10:00:00', "
        "timestamp_ntz '1900-01-01 00:00:00', 'ä', x'00ff', true, array(1, null), map('k', 1.5), "
        "named_struct('x', 1, 'y', named_struct('z', 'w')) from range(5)"
    )
    spark_lake.sql(f"insert into {{{T}}} (id) values (7), (8)")
    table = IcebergCatalog(lake.catalog).table(T)
    assert table.advise().columns == ("id", *"abcdefghij")
    assert all(outlook.now.most >= 1 for outlook in table.advise("d,f,h,j").outlooks)
    keys = {"id": [1], "d": [None], "e": [None], "g": [None], "h": [None], "i": [None], "j": [None]}
    spark_lake.delete_by_key(T, keys | {"id": [7]})
    result = check(lake, spark_lake, pyiceberg_reads=False)  # it has other Python values for maps and instants
    assert result.dead_by_key == 1
    assert len(lake.rows(T)) == 6
    before, sort = spark_lake.rows(T), {"strategy": "sort"}
    spark_lake.sql(f"alter table {{{T}}} write ordered by bucket(4, id), truncate(2, h) desc nulls last, id desc")
    orders = {"cluster_by": "d,f,i,j*2"}, {**sort, "sort_order": "b DESC, c NULLS LAST, hilbert(d, f, i)"}, sort
    for order in orders:
        lake.rewrite(T, rewrite_all=True, **order)
        assert spark_lake.rows(T) == before
    assert {entry.file.sort_order_id for entry in lake.state(T).data} == {1}
    by_bucket = f"select {spark_lake.name}.system.bucket(4, id) as bucket, id from {{{T}}} where h is not null"
    found = [tuple(row) for row in spark_lake.sql(by_bucket).collect()]  # of one file, in its order
    assert found == sorted(found, key=lambda row: (row[0], -row[1])) and len(found) > 1


def test_rule_18_javas_deletion_vectors_are_read(lake, spark_lake):
    """What we find of a table of version 3: one vector for each file, and the positions in it."""
    create(spark_lake, properties="'format-version'='3'")
    append(spark_lake, *range(10))
    spark_lake.sql(f"insert into {{{T}}} select /*+ coalesce(1) */ id, null from range(100, 110)")
    paths = {entry.file.path: entry.file.rows for entry in lake.state(T).data}
    spark_lake.delete_by_vector(T, {path: [0, rows - 1] for path, rows in paths.items()})
    vectors = [entry.file for entry in lake.state(T).deletes]
    assert {vector.referenced_data_file for vector in vectors} == set(paths)
    assert len({vector.path for vector in vectors}) == 1  # they share a Puffin file
    assert lake.live_ids(T) == [row["id"] for row in sorted(spark_lake.rows(T), key=lambda row: row["id"])]
    assert len(lake.live_ids(T)) == sum(rows - len({0, rows - 1}) for rows in paths.values())


def test_partition_paths_with_odd_characters(lake, spark_lake):
    create(spark_lake, partition="name")
    spark_lake.sql(f"insert into {{{T}}} values (1, 'a/b c%d=e'), (2, 'a/b c%d=e'), (3, ''), (4, null), (5, 'ä?#')")
    spark_lake.sql(f"delete from {{{T}}} where id = 2")
    check(lake, spark_lake, pyiceberg_reads=False)
    assert len(sorted_rows(spark_lake.rows(T))) == 4


def test_rule_17_files_that_move_to_another_spec_after_an_interruption(lake, spark_lake):
    """Spark prunes by the partition values that we wrote, also in files of a session that was interrupted."""
    create(spark_lake, "id bigint, at timestamp, name string")
    for day in (1, 2, 3):
        values = ", ".join(f"({day * 10 + n}, timestamp '2026-01-0{day} 0{n}:30:00', 'name {day}')" for n in range(5))
        spark_lake.sql(f"insert into {{{T}}} values {values}")
    spark_lake.sql(f"delete from {{{T}}} where id = 12")
    for field in ("days(at)", "bucket(8, name)", "truncate(4, name)"):
        spark_lake.sql(f"alter table {{{T}}} add partition field {field}")
    before = spark_lake.rows(T)
    options = {"output_spec_id": lake.state(T).metadata.default_spec_id, "partial_progress_enabled": True}
    stops = iter([False, True])

    def stop():
        if next(stops):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="1 of 3 groups written and not committed"):
        lake.rewrite(T, rewrite_all=True, before_commit=stop, **options)
    assert spark_lake.rows(T) == before
    result = lake.rewrite(T, rewrite_all=True, **options)
    assert (result.resumed, len(lake.state(T).data)) == (1, 3)
    assert {entry.file.spec_id for entry in lake.state(T).data} == {options["output_spec_id"]}
    assert spark_lake.rows(T) == before
    assert len(lake.rows(T)) == len(before)
    for day, rows in ((1, 4), (2, 5), (3, 5)):
        found = spark_lake.sql(
            f"select count(*) from {{{T}}} where at between timestamp '2026-01-0{day} 00:00:00' "
            f"and timestamp '2026-01-0{day} 23:00:00' and name = 'name {day}'"
        )
        assert found.collect()[0][0] == rows

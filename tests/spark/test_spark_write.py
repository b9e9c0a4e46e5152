"""Writing DataFrames and streams through the data source."""

from __future__ import annotations

import datetime
import json
import pickle
import shutil

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from spark_fixtures import sorted_rows

import deltacompact
from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.base.model import OperationType, Partition
from deltacompact.base.tokens import Token
from deltacompact.spark import writing
from deltacompact.spark.data_source import MicroBatchWriter
from deltacompact.spark.options import parse_partition, write_target
from deltacompact.spark.session import check_java, spark_session


def write(frame, catalog, table, **options):
    (frame.write.format("deltacompact").mode("append").options(catalog=catalog.uri, table=table, **options).save())


def deltas(catalog, table, **partition):
    """(operation, rows) of each delta of a partition."""
    state = catalog.state(table, catalog.partition(table, partition))
    return [(delta.operation.value, delta.rows) for delta in state.deltas]


def test_rows_go_where_their_partition_columns_say(spark, catalog):
    catalog.create_table("t", partition_keys=["day", "n"], primary_keys=["id"])
    days = ["2024-01-01", None, "2024-01-02", "2024-01-01"]
    rows = [(i, days[i % 4], i % 3, [{"x": i}], {"k": i / 2}) for i in range(40)]
    frame = spark.createDataFrame(rows, "id long, day string, n int, items array<struct<x:int>>, m map<string,double>")
    write(frame.withColumn("day", frame.day.cast("date")).repartition(3), catalog, "t")
    assert len(catalog.partitions("t")) == 9
    read = catalog.read("t", {"day": None, "n": 1})
    assert {row["day"] for row in read.to_pylist()} == {None}
    assert read.schema.field("day").type == pa.date32()
    everything = sorted_rows(catalog.read("t"), "id")
    assert [row["id"] for row in everything] == list(range(40))
    day = datetime.date(2024, 1, 1)
    assert everything[7] == {"id": 7, "day": day, "n": 1, "items": [{"x": 7}], "m": [("k", 3.5)]}
    for partition in catalog.partitions("t"):
        state = catalog.state("t", partition)
        assert len(state.commits) == 1, "one atomic commit for each partition"
        fields = [f for file in state.deltas[0].files for f in file.schema]
        assert all(field.nullable for field in fields), "Spark's nullability is no part of the schema"


def test_tasks_measure_string_sort_keys_and_refuse_longer_ones(spark, catalog):
    catalog.create_table("t", primary_keys=["id"], sort_keys=["version"])
    frame = spark.createDataFrame([(1, "1.9"), (2, "1.10.2"), (3, None)], "id int, version string").coalesce(1)
    write(frame, catalog, "t")
    (delta,) = catalog.state("t", Partition()).deltas
    assert [file.longest for file in delta.files] == [(("version", 6),)]
    with pytest.raises(PySparkException, match="sort key 'version' has a value of 33 bytes, 32 at most"):
        write(spark.createDataFrame([(1, "v" * 33)], "id int, version string"), catalog, "t")


def test_partition_token_position_and_deletes_by_option(spark, catalog):
    catalog.create_table("t", partition_keys=["day", "region"], primary_keys=["id"])
    frame = spark.createDataFrame([(1, "a", "eu"), (2, "b", "eu")], "id int, v string, region string").coalesce(1)
    write(frame, catalog, "t", partition="day=2024-01-01,region=eu", position="1000", token="nightly")
    write(frame, catalog, "t", partition="day=2024-01-01,region=eu", token="nightly")
    assert deltas(catalog, "t", day="2024-01-01", region="eu") == [("upsert", 2)]
    # A part may be fixed, the rest is the rows'.
    write(frame.where("id = 2"), catalog, "t", partition=json.dumps({"day": "2024-01-01"}), operation="delete")
    state = catalog.state("t", Partition((("day", "2024-01-01"), ("region", "eu"))))
    assert state.deltas[0].position == 1000
    assert state.deltas[1].files[0].schema.names == ["id"], "a delete needs its key alone"
    assert catalog.read("t").to_pylist() == [{"id": 1, "v": "a", "region": "eu"}]


def test_cdc_batch_keeps_the_last_operation_of_each_key(spark, catalog):
    catalog.create_table("t", primary_keys=["id"], sort_keys=["at"])
    catalog.append("t", pa.table({"id": [1, 2, 3, 8], "at": [5, 5, 5, 5], "v": ["old"] * 4}))
    rows = [
        (1, 6, "u", "a"), (1, 7, "D", None),  # updated, then deleted
        (2, 7, "delete", None), (2, 8, " Insert", "b"),  # deleted, then back
        (3, 4, "d", None),  # too late
        (4, 9, "r", "c"), (4, 9, "d", None),  # a tie: the upsert wins
        (5, 2, "UPDATE", "x"), (5, 1, "c", "y"), (6, 3, "d", None),
        (8, None, "d", None),  # without a sort key: clears what was there before
    ]  # fmt: skip
    write(
        spark.createDataFrame(rows, "id int, at int, op string, v string").repartition(2),
        catalog,
        "t",
        operation_column="op",
    )
    expected = [
        {"id": 2, "at": 8, "v": "b"},
        {"id": 3, "at": 5, "v": "old"},
        {"id": 4, "at": 9, "v": "c"},
        {"id": 5, "at": 2, "v": "x"},
    ]
    assert sorted_rows(catalog.read("t"), "id") == expected
    commit = catalog.state("t", Partition()).commits[-1]
    assert [(delta.operation, delta.rows) for delta in commit.deltas] == [
        (OperationType.DELETE, 6),
        (OperationType.UPSERT, 5),
    ]
    assert set(commit.deltas[0].files[0].schema.names) == {"id", "at"}
    # The tombstone of key 6 stands in the way of what comes too late.
    write(
        spark.createDataFrame([(6, 2, "c", "z")], "id int, at int, op string, v string"),
        catalog,
        "t",
        operation_column="op",
    )
    deltacompact.compact("t", delta_catalog_client=catalog, settings=deltacompact.Settings(executor="local"))
    assert sorted_rows(catalog.read("t"), "id") == expected


def test_a_failed_job_leaves_nothing_visible(spark, catalog):
    catalog.create_table("t", primary_keys=["id"], sort_keys=["at"])
    frame = spark.createDataFrame([(1, 1, "u"), (2, 1, "truncate")], "id int, at int, op string").repartition(2, "id")
    with pytest.raises(PySparkException, match="operation 'truncate' is neither an upsert"):
        write(frame, catalog, "t", operation_column="op")
    assert catalog.partitions("t") == []
    catalog.create_table("p", partition_keys=["day"])
    with pytest.raises(PySparkException, match="disagrees with the partition's value 'tuesday'"):
        write(spark.createDataFrame([("monday",)], "day string"), catalog, "p", partition="day=tuesday")


def test_an_error_of_the_options_comes_before_any_work(spark, catalog):
    with pytest.raises(PySparkException, match=r"InputError: option 'table' is missing"):
        spark.range(1).write.format("deltacompact").mode("append").option("catalog", catalog.uri).save()


@pytest.mark.parametrize(
    ("options", "columns", "error"),
    [
        ({}, ["id", "day"], None),
        ({"operation": "DELETE"}, ["id", "day", "at"], None),
        ({"table": "nope"}, [], "table 'nope' does not exist"),
        ({"operation": "merge"}, ["id"], "operation is 'merge', it must be"),
        ({"partition": "week=1"}, ["id"], "unknown partition key 'week'"),
        ({"partition": "monday"}, ["id"], "neither NAME=VALUE"),
        ({"partition": "{day"}, ["id"], "not a JSON object"),
        ({"position": "soon"}, ["id"], "'soon' is not a whole number"),
        ({}, ["id"], "partition key 'day' is neither a column"),
        ({}, ["day"], "key column 'id' is not a column"),
        ({"operation_column": "op"}, ["id", "day", "at"], "operation column 'op' is not a column"),
        ({"operation_column": "op"}, ["id", "day", "op"], "sort key 'at' is not a column"),
        ({"operation_column": "op", "operation": "delete"}, ["op"], "exclude each other"),
        ({"operation": "delete", "table": "two"}, ["id", "a"], "has all sort columns or none, 'b' is missing"),
        ({"operation_column": "op", "table": "plain"}, ["id", "op"], "table 'plain' has no sort keys"),
    ],
)
def test_options(catalog, options, columns, error):
    catalog.create_table("t", partition_keys=["day"], primary_keys=["id"], sort_keys=["at"])
    catalog.create_table("two", primary_keys=["id"], sort_keys=["a", "b"])
    catalog.create_table("plain", primary_keys=["id"])
    given = {"catalog": catalog.uri, "table": "t", **options}
    if error is None:
        assert pickle.loads(pickle.dumps(write_target(given, columns, False))).table.table_id == "t"
        with pytest.raises(InputError, match=r"use mode\('append'\)"):
            write_target(given, columns, overwrite=True)
    else:
        with pytest.raises((InputError, NotFoundError), match=error) as raised:
            write_target(given, columns, False)
        assert "\n" not in str(raised.value)


def test_a_task_writes_one_file_for_each_partition_in_any_order_of_its_rows(catalog):
    """Beyond 64 partitions, each batch of Spark brought a file for each of its partitions."""
    catalog.create_table("t", partition_keys=["p"], primary_keys=["id"])
    target = write_target({"catalog": catalog.uri, "table": "t"}, ["id", "p"], False)
    batches = [pa.record_batch({"id": range(n, n + 70), "p": range(70)}) for n in (0, 70, 140)]
    written = writing.write_rows(target, batches)
    assert [file.rows for _, _, file in written.files] == [3] * 70
    writing.commit_written(target, [written, None], None)
    assert [row["id"] for row in sorted_rows(catalog.read("t"), "id")] == list(range(210))


def test_a_task_holds_few_rows_and_writes_those_of_its_largest_partition(catalog, monkeypatch):
    catalog.create_table("t", partition_keys=["p"], primary_keys=["id"], sort_keys=["at"])
    columns = ["id", "p", "at", "op"]
    target = write_target({"catalog": catalog.uri, "table": "t", "operation_column": "op"}, columns, False)
    batches = [
        pa.record_batch(
            {
                "id": range(first, first + 1_000),
                "p": [0 if row % 10 else row // 10 % 5 for row in range(1_000)],
                "at": range(1_000),
                "op": ["d" if row % 50 == 0 else "u" for row in range(1_000)],
            }
        )
        for first in range(0, 20_000, 1_000)
    ]
    held = []
    largest = writing._WaitingRows.largest
    monkeypatch.setattr(writing._WaitingRows, "largest", lambda rows: (largest(rows), held.append(rows.bytes))[0])
    written = writing.write_rows(target, batches, waiting_bytes_max=150_000)
    assert 150_000 < max(held) < 200_000, "what waits is written before it is much more"
    rows_of = {}
    for partition, operation, file in written.files:
        rows_of.setdefault((str(partition), operation), []).append(file.rows)
    assert set(map(len, rows_of.values())) == {1}, "the largest goes on in its file, and the others fit in memory"
    writing.commit_written(target, [written], None)
    assert catalog.read("t").num_rows == 20_000 * 49 // 50


def test_the_file_of_the_largest_partition_is_open_until_another_one_is_larger(catalog):
    """An unpartitioned table got a file for each 128 MiB of Arrow, of 4 MB."""
    catalog.create_table("t", partition_keys=["p"])
    target = write_target({"catalog": catalog.uri, "table": "t"}, ["id", "p"], False)
    firsts = range(0, 30_000, 1_000)
    batches = [pa.record_batch({"id": range(n, n + 1_000), "p": [n // 10_000 % 2] * 1_000}) for n in firsts]
    written = writing.write_rows(target, batches, waiting_bytes_max=50_000)
    rows = [(str(partition), file.rows) for partition, _, file in written.files]
    assert rows == [("p=0", 10_000), ("p=1", 10_000), ("p=0", 10_000)]
    writing.commit_written(target, [written], None)
    assert catalog.read("t", partition={"p": 0})["id"].to_pylist() == [*range(10_000), *range(20_000, 30_000)]


def test_rows_of_a_wide_table_wait_in_few_arrays(catalog, monkeypatch):
    """A few rows of each portion were arrays of their own, which took 20 times the memory of their values."""
    catalog.create_table("t", partition_keys=["p"])
    names = [f"c{number}" for number in range(50)]
    target = write_target({"catalog": catalog.uri, "table": "t"}, ["p", *names], False)
    batches = [pa.record_batch({"p": range(20), **dict.fromkeys(names, range(n, n + 20))}) for n in range(40)]
    held = []
    largest = writing._WaitingRows.largest

    def looked_at(waiting):
        kind = largest(waiting)
        tables = [table for rows in waiting._rows.values() for table in rows.tables]
        held.append(sum(table.nbytes for table in tables) + 600 * sum(c.num_chunks for t in tables for c in t.columns))
        return kind

    monkeypatch.setattr(writing._WaitingRows, "largest", looked_at)
    written = writing.write_rows(target, batches, waiting_bytes_max=1_000_000)
    assert 500_000 < max(held) < 1_200_000
    assert sum(file.rows for _, _, file in written.files) == 800
    assert len({partition for partition, _, _ in written.files}) == 20


@pytest.mark.parametrize("waiting_bytes_max", [1, writing.WAITING_BYTES_MAX])
def test_a_value_without_meaning_ends_a_task(catalog, waiting_bytes_max):
    catalog.create_table("t", partition_keys=["p"], primary_keys=["id"])
    target = write_target({"catalog": catalog.uri, "table": "t"}, ["id", "p"], False)
    batches = [pa.record_batch({"id": [1, 2], "p": [1, 2]})]
    writing.commit_written(target, [writing.write_rows(target, batches)], None)
    target = write_target({"catalog": catalog.uri, "table": "t"}, ["id", "p"], False)
    before = sorted(stat.path for stat in catalog.store.list("t/"))
    whole, none = (pa.record_batch({"id": [1], "p": [value]}) for value in (1.0, float("nan")))
    with pytest.raises(
        InputError, match="partition column 'p' is double, but in the table it is int64, and values do not fit"
    ):
        writing.write_rows(target, [whole, whole, none], waiting_bytes_max)
    assert sorted(stat.path for stat in catalog.store.list("t/")) == before, "the rows of the task have gone"


def test_rows_go_to_the_partition_that_says_their_value(catalog):
    """Of month=01 and the number 1 there were two partitions, and a key lived in both."""
    catalog.create_table("t", partition_keys=["month"], primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1], "v": ["old"]}), {"month": "01"})
    rows = pa.record_batch({"id": [1, 2, 3], "month": pa.array([1, 2, None], pa.int32()), "v": ["new", "b", "c"]})
    target = pickle.loads(pickle.dumps(write_target({"catalog": catalog.uri, "table": "t"}, rows.schema.names, False)))
    writing.commit_written(target, [writing.write_rows(target, [rows])], None)
    assert sorted(str(partition) for partition in catalog.partitions("t")) == ["month=01", "month=2", "month=null"]
    assert sorted(catalog.read("t", columns=["id", "v"])["v"].to_pylist()) == ["b", "c", "new"]


def test_an_error_of_one_partition_stops_no_other_and_says_how_many_are_committed(catalog):
    catalog.create_table("t", partition_keys=["p"], primary_keys=["id"])
    catalog.append("t", pa.table({"id": [0]}), {"p": "b"})
    target = write_target({"catalog": catalog.uri, "table": "t", "position": "5"}, ["id", "p"], False)
    written = writing.write_rows(target, [pa.record_batch({"id": [1, 2, 3], "p": ["a", "b", "c"]})])
    with pytest.raises(InputError, match=r"partition p=b: .* \(2 of 3 partitions are committed; for the others repeat"):
        writing.commit_written(target, [written], Token.of(("etl", 7)))
    assert sorted(catalog.read("t")["id"].to_pylist()) == [0, 1, 3]


def test_partition_option():
    assert parse_partition(None) is None
    assert parse_partition("a=1, b=x=y") == {"a": "1", "b": "x=y"}
    assert parse_partition('{"a": null, "b": "x,y", "c": 5}') == {"a": None, "b": "x,y", "c": "5"}


@pytest.mark.processes
def test_java_is_asked_for_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InputError, match="Spark needs Java, which was not found: install Java 17"):
        check_java()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(InputError, match="found is Java 8: install Java 17"):
        check_java()


# Streams


@pytest.fixture
def stream(spark, catalog, tmp_path):
    """A folder of JSON lines, as a stream into table t: `run` processes what is there."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    catalog.create_table("t", partition_keys=["day"], primary_keys=["id"], sort_keys=["at"])

    class Stream:
        checkpoint = tmp_path / "checkpoint"

        def put(self, *rows):
            name = f"{len(list(inbox.iterdir())):04}.json"
            (inbox / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

        def run(self, **options):
            rows = spark.readStream.schema("id long, day string, at long, op string").json(str(inbox))
            query = (
                rows.writeStream.format("deltacompact")
                .options(catalog=catalog.uri, table="t", operation_column="op", checkpointLocation=self.checkpoint)
                .options(**options)
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(60)

    return Stream()


def row(id, day, at, op):
    return {"id": id, "day": day, "at": at, "op": op}


def test_a_stream_counts_each_batch_once(catalog, stream):
    stream.put(row(1, "mon", 1, "c"), row(2, "mon", 1, "c"), row(3, "tue", 1, "c"))
    stream.run()
    assert deltas(catalog, "t", day="mon") == [("upsert", 2)]
    # The driver died after the catalog's commit, before Spark's: the batch runs again.
    shutil.rmtree(stream.checkpoint / "commits")
    stream.put(row(1, "mon", 2, "d"), row(4, "tue", 2, "c"))
    stream.run()
    assert deltas(catalog, "t", day="mon") == [("upsert", 2), ("delete", 1)]
    assert deltas(catalog, "t", day="tue") == [("upsert", 1), ("upsert", 1)]
    # One token for both streams of a batch: the query, and the number of the batch.
    tokens = {c.token for p in catalog.partitions("t") for c in catalog.state("t", p).commits}
    assert len(tokens) == 2 and {token.sequence for token in tokens} == {0, 1}
    assert [r["id"] for r in sorted_rows(catalog.read("t"), "id")] == [2, 3, 4]


def test_a_new_checkpoint_at_an_old_path_is_another_stream(catalog, stream):
    stream.put(row(1, "mon", 1, "c"))
    stream.run()
    shutil.rmtree(stream.checkpoint)
    stream.put(row(2, "mon", 1, "c"))
    stream.run()  # batch 0 once more, of another query: were it taken for known, row 2 would be lost
    assert [r["id"] for r in sorted_rows(catalog.read("t"), "id")] == [1, 2]


def test_the_token_option_goes_on_across_checkpoints(catalog, stream):
    stream.put(row(1, "mon", 1, "c"))
    stream.run(token="orders-feed")
    shutil.rmtree(stream.checkpoint)
    stream.run(token="orders-feed")
    assert deltas(catalog, "t", day="mon") == [("upsert", 1)]
    partition = catalog.partition("t", {"day": "mon"})
    assert catalog.state("t", partition).commits[0].token == Token("orders-feed", 0)


def test_batches_of_a_new_checkpoint_are_not_taken_for_those_of_the_old_one(catalog):
    """All up to the old number were dropped, with a line in the log."""
    catalog.create_table("t", partition_keys=["p"], primary_keys=["id"])
    target = write_target({"catalog": catalog.uri, "table": "t", "token": "feed"}, ["id", "p"], False)

    def put(number, key, *days):
        rows = pa.record_batch({"id": [key] * len(days), "p": list(days)})
        MicroBatchWriter(target, "checkpoint").commit([writing.write_rows(target, [rows]), None], number)

    for number in range(3):
        put(number, number, "mon")
        if number == 1:
            catalog.table("t").compact(settings=deltacompact.Settings(executor="local", local_threads=1))
    put(2, 2, "mon", "tue")  # once more, and the rest of it
    for number in range(2):
        with pytest.raises(InputError, match=f"'feed' sequence {number} comes after .* give another token"):
            put(number, 7, "mon", "wed")
    assert sorted((row["p"], row["id"]) for row in catalog.read("t").to_pylist()) == [
        *(("mon", number) for number in range(3)),
        ("tue", 2),
    ]


def test_a_batch_of_a_stream_that_release_0_1_committed_is_not_committed_again(catalog, stream):
    stream.put(row(1, "mon", 1, "c"))
    stream.run(token="feed")
    for stat in list(catalog.store.list("t/day=mon/stream/0/00000000000000000001")):  # as it was written then
        document = json.loads(catalog.store.get(stat.path))
        assert document["commit"].pop("sequence") == 0
        catalog.store.put(stat.path, json.dumps(document).encode())
    shutil.rmtree(stream.checkpoint / "commits")
    stream.run(token="feed")
    assert deltas(deltacompact.open_catalog(catalog.uri), "t", day="mon") == [("upsert", 1)]


# Options


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("operation_colum", "unknown option 'operation_colum': did you mean 'operation_column'?"),
        ("OperationColumn", "did you mean 'operation_column'?"),
        ("partitions", "did you mean 'partition'?"),
        ("tok", "did you mean 'token'?"),
        ("zzz", "known are catalog, table, partition, operation"),
        ("checkpointLocation", "unknown option 'checkpointlocation'"),
        ("path", "a path names no table: give options 'catalog' and 'table' instead"),
    ],
)
def test_an_option_that_is_not_known_is_an_error_that_names_the_nearest(spark, catalog, option, said):
    catalog.create_table("t", primary_keys=["id"])
    write(spark.range(1), catalog, "t")
    with pytest.raises(PySparkException) as raised:
        write(spark.range(2), catalog, "t", **{option: "op"})
    assert said.lower() in str(raised.value).lower()
    assert deltas(catalog, "t") == [("upsert", 1)]


def test_reads_and_streams_know_their_own_options(spark, catalog, stream, tmp_path):
    catalog.create_table("r", primary_keys=["id"])
    write(spark.range(2), catalog, "r")
    reader = spark.read.format("deltacompact").options(catalog=catalog.uri, table="r")
    assert reader.load().count() == 2
    for option, value, said in [("operation", "delete", "unknown option 'operation'"), ("versoin", "1", "'versoin'")]:
        with pytest.raises(PySparkException, match=said):
            spark.read.format("deltacompact").options(catalog=catalog.uri, table="r", **{option: value}).load().count()
    with pytest.raises(PySparkException, match="a path names no table"):
        reader.load(str(tmp_path)).count()
    stream.put(row(1, "mon", 1, "c"))
    for option in ("triger", "position", "token_sequence"):
        with pytest.raises(PySparkException, match=option):
            stream.run(**{option: "5"})
    stream.run(queryName="named")  # Spark itself hands over queryName and checkpointLocation
    assert deltas(catalog, "t", day="mon") == [("upsert", 1)]


def test_case_does_not_count_in_options(spark, catalog):
    catalog.create_table("t", primary_keys=["id"])
    frame = spark.range(1)
    frame.write.format("deltacompact").mode("append").options(
        CATALOG=catalog.uri, Table="t", Operation="DELETE", TOKEN="etl", Token_Sequence="7"
    ).save()
    assert deltas(catalog, "t") == [("delete", 1)]
    assert catalog.state("t", Partition()).commits[0].token == Token("etl", 7)


def test_positions_and_tokens_of_options_are_checked(catalog):
    catalog.create_table("t", primary_keys=["id"])
    for options, said in [
        ({"position": str(2**62)}, "more than a year ahead"),
        ({"token_sequence": "7"}, "name it in option 'token'"),
        ({"token": "etl", "token_sequence": "x"}, "'x' is not a whole number"),
        ({"token": ""}, "token ''"),
        ({"force_position": "yes"}, "'yes' is neither 'true' nor 'false'"),
    ]:
        with pytest.raises(InputError, match=said):
            write_target({"catalog": catalog.uri, "table": "t", **options}, ["id"], False)
    forced = {"catalog": catalog.uri, "table": "t", "position": str(2**62), "force_position": "TRUE"}
    assert write_target(forced, ["id"], False).force_position


def test_a_skipped_write_is_said_in_the_log(catalog, caplog):
    catalog.create_table("t", primary_keys=["id"])
    target = write_target({"catalog": catalog.uri, "table": "t", "token": "nightly"}, ["id"], False)
    for _ in range(2):
        written = writing.write_rows(target, [pa.record_batch({"id": [1]})])
        writing.commit_written(target, [written], target.token)
    position = catalog.state("t", Partition()).last_position
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == f"table 't', partition (all): skipped: token 'nightly' known since position {position}"


def test_write_read_and_stream_on_s3(spark, s3_catalog_uri, tmp_path):
    catalog = deltacompact.open_catalog(s3_catalog_uri)
    catalog.create_table("t", partition_keys=["day"], primary_keys=["id"], sort_keys=["at"])
    spark_session()  # tells the workers where S3 is
    frame = spark.createDataFrame(
        [(i, "day1", 1, "c", "v" * i) for i in range(9)], "id int, day string, at int, op string, v string"
    )
    write(frame, catalog, "t", operation_column="op")
    deltacompact.compact("t", delta_catalog_client=catalog, settings=deltacompact.Settings(executor="local"))
    write(
        spark.createDataFrame([(3, "day1", 2, "d")], "id int, day string, at int, op string"),
        catalog,
        "t",
        operation_column="op",
    )
    read = spark.read.format("deltacompact").options(catalog=s3_catalog_uri, table="t").load()
    assert sorted_rows(read.toArrow(), "id") == sorted_rows(catalog.read("t"), "id")
    assert read.count() == 8
    from deltacompact.spark.validate import validate

    reports = validate(catalog, "t", spark)
    assert [(report.ok, report.rows) for report in reports] == [(True, 8)], list(map(str, reports))

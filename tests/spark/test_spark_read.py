"""spark.read.format("deltacompact") equals catalog.read."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest
from iceberg_fixtures import lake, silence_is_short  # noqa: F401  (fixtures)
from publications import configure
from pyiceberg.types import LongType
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType
from spark_fixtures import compact, sorted_rows

from deltacompact import Settings
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import InputError, SchemaError
from deltacompact.base.model import ContentType, Partition
from deltacompact.spark import arrow_types, reading
from deltacompact.spark.changes import ChangeStream, _rows, fed
from deltacompact.spark.iceberg import added_up
from deltacompact.spark.producer import orders, produce
from deltacompact.spark.session import spark_session
from deltacompact.tabular.fingerprint import fingerprint_of


def load(spark, catalog, table, **options):
    frame = spark.read.format("deltacompact").options(catalog=catalog.uri, table=table, **options).load()
    return frame.toArrow()


def test_merge_on_read_with_deletes_tombstones_and_schema_growth(spark, catalog):
    catalog.create_table("t", partition_keys=["day"], primary_keys=["id"], sort_keys=["at"])
    first = {"id": pa.array([1, 2, 3, 4], pa.int32()), "at": [5, 5, 5, 5], "v": pa.array(["a", "b", "c", None])}
    catalog.append("t", pa.table(first), {"day": "mon"})
    catalog.append("t", pa.table({"id": [2], "at": [9]}), {"day": "mon"}, "delete")
    compact(catalog, "t")
    grown = {"id": [1, 2, 5], "at": [6, 7, 7], "items": [[{"x": 1.5}], None, []]}
    catalog.append("t", pa.table(grown), {"day": "mon"})
    catalog.append("t", pa.table({"id": [3, 4], "at": pa.array([None, 4], pa.int64())}), {"day": "mon"}, "delete")
    catalog.append(
        "t",
        pa.table(
            {"id": [7], "day": [None], "at": [1]}, pa.schema([("id", "int64"), ("day", "string"), ("at", "int64")])
        ),
        {"day": None},
    )
    expected = catalog.read("t")
    read = load(spark, catalog, "t")
    assert read.column_names == expected.column_names
    assert sorted_rows(read, "id") == sorted_rows(expected, "id")
    assert [row["id"] for row in sorted_rows(read, "id")] == [1, 4, 5, 7]
    (only,) = load(spark, catalog, "t", partition='{"day": null}').to_pylist()
    assert (only["id"], only["day"]) == (7, None)
    catalog.create_table("empty", partition_keys=["day"])
    assert load(spark, catalog, "empty").num_rows == 0
    with pytest.raises(PySparkException, match="has no partition day=tue"):
        load(spark, catalog, "t", partition="day=tue")


def test_types_that_spark_does_not_have(spark, catalog):
    catalog.create_table("t")
    naive = datetime.datetime(2024, 1, 1, 12, 0, 0, 123456)
    item = pa.struct([("u", pa.uint32()), ("t", pa.large_string())])
    rows = pa.table(
        {
            "u8": pa.array([255, None], pa.uint8()),
            "u64": pa.array([2**64 - 1, None], pa.uint64()),
            "half": pa.array(np.array([1.5, 2], np.float16)),
            "ns": pa.array([-1, None], pa.timestamp("ns")),
            "zoned": pa.array([naive, None], pa.timestamp("ms", "Europe/Paris")),
            "day": pa.array([datetime.datetime(1969, 12, 31), None], pa.date64()),
            "time": pa.array([1, None], pa.time32("s")),
            "long": pa.array([1, None], pa.duration("s")),
            "d": pa.array(["x", None]).dictionary_encode(),
            "fixed": pa.array([b"ab", None], pa.binary(2)),
            "view": pa.array(["v", None], pa.string_view()),
            "nested": pa.array([[{"u": 1, "t": "x"}], None], pa.large_list(item)),
            "map": pa.array([[("a", decimal.Decimal("1.5"))], None], pa.map_(pa.string(), pa.decimal128(5, 1))),
            "nothing": pa.nulls(2),
        }
    )  # fmt: skip
    catalog.append("t", rows)
    read = sorted_rows(load(spark, catalog, "t").drop_columns(["map"]), "u8")[0]
    assert read == {
        "u8": 255,
        "u64": decimal.Decimal(2**64 - 1),
        "half": 1.5,
        "ns": datetime.datetime(1970, 1, 1),  # cut off at the microsecond
        "zoned": naive.replace(microsecond=123000, tzinfo=datetime.UTC),
        "day": datetime.date(1969, 12, 31),
        "time": datetime.time(0, 0, 1),
        "long": datetime.timedelta(seconds=1),
        "d": "x",
        "fixed": b"ab",
        "view": "v",
        "nested": [{"u": 1, "t": "x"}],
        "nothing": None,
    }
    with pytest.raises(InputError, match="column 'x': decimal256"):
        arrow_types.spark_schema(pa.schema([("x", pa.decimal256(40, 2))]))


def test_spark_adds_up_the_fingerprint_of_every_type_that_it_has(spark):
    number, moment = decimal.Decimal, datetime.datetime(1969, 12, 31, 23, 59, 59, 500_000)
    columns = {
        "i8": pa.array([1, -1, None], pa.int8()),
        "i64": pa.array([2**63 - 1, -(2**63), 0]),
        "u64": pa.array([2**64 - 1, 5, None], pa.uint64()),
        "f32": pa.array([1.5, float("nan"), -0.0], pa.float32()),
        "f64": pa.array([float("-inf"), None, 0.1]),
        "d5": pa.array([number("1.50"), number("-0.05"), number("0.00")], pa.decimal128(5, 2)),
        "d38": pa.array([number("-" + "9" * 35 + ".999"), number("0.001"), None], pa.decimal128(38, 3)),
        "d21": pa.array([number(-1), number(2**64), number(-(2**64))], pa.decimal128(21, 0)),
        "at": pa.array([moment, None, datetime.datetime(9999, 1, 1)], pa.timestamp("us")),
        "zoned": pa.array([moment, None, datetime.datetime(1, 1, 1)], pa.timestamp("ms", "UTC")),
        "day": [datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)],
        "ok": [True, False, None],
        "s": ["é", "", None],
        "raw": [b"\0\xff", b"", None],
        "list": pa.array([[1, None], [], None], pa.list_(pa.int16())),
        "map": pa.array([[("k", 1.5), ("j", None)], [], None], pa.map_(pa.string(), pa.float64())),
        "struct": [{"x": 1, "y y'`\"": {"z": "q"}}, {"x": None, "y y'`\"": None}, None],
        'odd "name`': pa.array([[{"a": [1, None]}, None], [], None]),
    }
    table = pa.table(columns)
    shown = table.cast(arrow_types.spark_schema(table.schema))
    spark.createDataFrame(shown).createOrReplaceTempView("live_rows")
    assert added_up(spark, table.schema, "live_rows") == str(fingerprint_of([table], table.schema, ""))


def test_numbers_that_do_not_fit_the_schema_of_a_running_stream_are_refused():
    """Inside of lists and structs they wrapped: 3,000,000,000 was -1,294,967,296."""

    def read(value, stored, type_):
        column = pa.chunked_array([pa.array([[value]], pa.list_(stored))])
        return reading.to_type(column, pa.list_(type_), "a.parquet", "v").to_pylist()

    assert read(7, pa.int64(), pa.int32()) == [[7]]
    assert read(1_001, pa.timestamp("ns"), pa.timestamp("us"))[0][0].microsecond == 1
    with pytest.raises(SchemaError, match=r"a.parquet: column 'v' does not fit list<item: int32>: .* 3000000000 not"):
        read(3_000_000_000, pa.int64(), pa.int32())


def test_a_file_goes_to_tasks_in_pieces(catalog):
    catalog.create_table("t")
    (file,) = catalog.append("t", pa.table({"id": range(20), "v": range(20)})).files
    schema = pa.schema([("v", pa.int64()), ("id", pa.int64()), ("w", pa.string())])
    for lives in (None, np.arange(20) % 3 == 0, np.arange(20) < 3, np.arange(20) == 19):
        bits = None if lives is None else np.packbits(lives, bitorder="little")
        pieces = list(reading._pieces(Partition(), file, bits, rows_max=8))
        assert all(piece.stop - piece.first <= 8 for piece in pieces)
        batches = [batch for piece in pieces for batch in reading.piece_rows(catalog, piece, schema)]
        found = pa.Table.from_batches(batches)["id"].to_pylist()
        assert found == (list(range(20)) if lives is None else list(np.flatnonzero(lives)))
    text = DataFile(0, "a.csv", ContentType.CSV, 20, 1, file.schema)
    assert [(p.first, p.stop) for p in reading._pieces(Partition(), text, None, rows_max=8)] == [(0, 20)], (
        "read whole anyway"
    )


@pytest.mark.parametrize("has_delta", [False, True])
def test_the_plan_of_a_read_holds_a_bit_for_each_row(catalog, has_delta):
    """It held a byte: a gigabyte for a thousand million rows."""
    table = catalog.create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": range(1000)}))
    local = Settings(executor="local", local_threads=1, rewrite_dead_fraction=0.5)
    table.compact(settings=local)
    table.append(pa.table({"id": [7]}), operation="delete")
    if not has_delta:
        table.compact(settings=local)
    ((file, bits),) = reading.live_files(catalog, "t", Partition())
    assert bits is not None and bits.nbytes == file.rows // 8 == 125
    (piece,) = reading.LiveRows({"catalog": catalog.uri, "table": "t"}, StructType()).partitions()
    assert len(piece.lives) == 125
    rows = pa.Table.from_batches(reading.piece_rows(catalog, piece, pa.schema([("id", pa.int64())])))
    assert rows["id"].to_pylist() == [number for number in range(1000) if number != 7]


def test_the_producer_is_deterministic_and_writes_once(spark, catalog):
    produced = produce(spark, catalog.uri, "orders", deltas=2, rows_per_delta=200, seed=5)
    assert produced.upserts + produced.deletes == 400 and 0 < produced.deletes < 100
    assert str(produced).endswith("into 2 partitions")
    states = [catalog.state("orders", partition) for partition in catalog.partitions("orders")]
    assert [len(state.commits) for state in states] == [2, 2]
    assert all(delta.operation for state in states for delta in state.deltas)
    assert sum(delta.rows for state in states for delta in state.deltas) == 400
    before = sorted_rows(load(spark, catalog, "orders"), "order_id")
    assert before == sorted_rows(catalog.read("orders"), "order_id")
    produce(spark, catalog.uri, "orders", deltas=1, rows_per_delta=200, seed=5)
    assert sorted_rows(catalog.read("orders"), "order_id") == before
    batches = [orders(spark, 2, 1, 200, seed=5).repartition(n).toArrow() for n in (1, 3)]
    assert sorted_rows(batches[0], "order_id", "updated_at") == sorted_rows(batches[1], "order_id", "updated_at")
    with pytest.raises(InputError, match="partitions is 0"):
        produce(spark, catalog.uri, "none", partitions=0)


def feed(spark, catalog, **options):
    return spark.read.format("deltacompact").options(catalog=catalog, table="ns.t", **options).load()


def told(frame):
    return sorted((row["id"], row["v"], row["_change_type"]) for row in frame.collect())


def test_changes_in_batches_and_as_a_stream(spark, catalog, lake, monkeypatch, tmp_path):
    """Of both kinds of table in one test: what was read stays read, and a query that begins again goes on."""
    configure(lake, monkeypatch)
    spark_session()  # tells the workers of the catalog
    table = catalog.create_table("ns.t", partition_keys=["day"], primary_keys=["id"])
    lake.create("ns.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    table.append(pa.table({"id": [1, 2], "v": ["a", "b"]}), {"day": "mon"})
    table.compact()
    lake.append("ns.t", [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    places = {"streams": catalog.uri, "branch": f"iceberg://{lake.name}"}
    whole, news = [(1, "a", "insert"), (2, "b", "insert")], [(1, "a", "delete"), (3, "c", "insert")]
    found = {name: [] for name in places}

    def follow(name):
        source = spark.readStream.format("deltacompact").options(catalog=places[name], table="ns.t", changes="all")
        query = source.load().writeStream.option("checkpointLocation", str(tmp_path / name))
        going = query.foreachBatch(lambda frame, number: found[name].extend(told(frame))).start()
        going.processAllAvailable()
        going.stop()

    for name in places:
        assert told(feed(spark, places[name], changes="all")) == whole
    follow("streams")
    assert found["streams"] == whole
    middle = lake.state("ns.t").snapshot_id
    table.append(pa.table({"id": [3], "v": ["c"]}), {"day": "tue"})
    table.append(pa.table({"id": [1]}), {"day": "mon"}, "delete")
    lake.delete_by_key("ns.t", {"id": [1]})
    lake.append("ns.t", [{"id": 3, "v": "c"}])
    assert told(feed(spark, places["streams"], changes="0", partition="day=mon")) == news[:1]
    assert told(feed(spark, places["branch"], changes=str(middle), before="true")) == news
    for name in places:
        follow(name)
    assert found == {"streams": whole + news, "branch": [whole[1], news[1]]}


def test_a_stream_of_a_branch_refuses_columns_that_were_renamed(lake, monkeypatch):
    """Its rows came with null under the old name; after two columns had swapped names, with the other one's values."""
    configure(lake, monkeypatch)
    lake.create("ns.t", pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())]))
    lake.append("ns.t", [{"id": 1, "a": 1, "b": 2}])
    branch = fed({"catalog": f"iceberg://{lake.name}", "table": "ns.t", "changes": "all"})
    schema = branch.schema()
    first = branch.position(None)
    of_an_earlier_release = first["snapshot"]
    with lake.catalog.load_table("ns.t").update_schema() as change:
        change.add_column("c", LongType())
    lake.append("ns.t", [{"id": 2, "a": 3, "b": 4, "c": 5}])
    second = branch.position(None)
    for begin in (first, of_an_earlier_release):
        (piece,) = branch.slices(begin, second)
        (rows,) = _rows(branch, piece, schema)
        assert rows.select(["id", "a", "b"]).to_pylist() == [{"id": 2, "a": 3, "b": 4}]
    for was, name in (("a", "x"), ("b", "a"), ("x", "b")):
        with lake.catalog.load_table("ns.t").update_schema() as change:
            change.rename_column(was, name)
    third = branch.position(None)
    for begin, end in ((first, second), (second, third), (None, second)):
        with pytest.raises(InputError, match=r"column '[ab]' of 'ns.t' was '[ab]' at the position in the checkpoint: "):
            branch.slices(begin, end)
    with pytest.raises(InputError, match="begin another stream, with a new checkpoint"):
        branch.read(piece)
    assert branch.slices(third, branch.position(None)) == []


def test_columns_that_a_running_query_lacks_are_told(catalog, caplog):
    table = catalog.create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": [1]}))
    streams = fed({"catalog": catalog.uri, "table": "t", "changes": "all"})
    schema, begin = streams.schema(), streams.position(None)
    table.append(pa.table({"id": [2], "v": ["a"]}))
    (piece,) = streams.slices(begin, streams.position(None, begin))
    (rows,) = _rows(streams, piece, schema)
    assert rows["id"].to_pylist() == [2]
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "the feed has columns that this query lacks, begin it again to have them: v"


def test_an_option_that_would_not_be_heard_is_refused(catalog, lake, monkeypatch):
    """The whole table came for a partition, and a stream went on beyond its end."""
    configure(lake, monkeypatch)
    begin = {"table": "t", "changes": "all"}
    for catalog_uri, option, value in (
        (f"iceberg://{lake.name}", "partition", "day=mon"),
        (catalog.uri, "branch", "other"),
    ):
        with pytest.raises(InputError, match=f"unknown option '{option}'"):
            fed({"catalog": catalog_uri, option: value, **begin})
    with pytest.raises(InputError, match=r"option 'to' is for spark.read: a stream has no end"):
        ChangeStream({"catalog": catalog.uri, "to": "3", **begin}, StructType())


def test_a_version_in_spark_is_that_of_the_partition_that_is_named(catalog):
    table = catalog.create_table("t", partition_keys=["day"], primary_keys=["id"])
    for number, day in enumerate(("mon", "mon", "mon", "tue")):
        table.append(pa.table({"id": [number]}), {"day": day})
        if number < 2:
            compact(catalog, "t")
    options = {"catalog": catalog.uri, "table": "t", "changes": "1"}
    one = fed({**options, "partition": "day=mon"})
    (piece,) = one.slices(one.position("1"), one.position(None))
    assert one.read(piece).read_all()["id"].to_pylist() == [2]
    with pytest.raises(InputError, match="version '1': each partition has its own versions, name a partition or"):
        fed(options).position("1")


def test_a_stream_asks_for_what_moved_alone_and_refuses_another_table_of_the_name(catalog):
    def begun(day):
        table = catalog.create_table("t", partition_keys=["day"], primary_keys=["id"])
        for number in range(3):
            table.append(pa.table({"id": [number]}), {"day": day})
        return table

    table = begun("mon")
    streams = fed({"catalog": catalog.uri, "table": "t", "changes": "all"})
    table.append(pa.table({"id": [1]}), {"day": "tue"})
    before = streams.position(None)
    assert len(streams.slices(None, before)) == 2 and not streams.slices(before, before)
    table.append(pa.table({"id": [2]}), {"day": "tue"})
    after = streams.position(None, before)
    of_an_earlier_release = before["streams"]
    for begin in (before, of_an_earlier_release):
        (piece,) = streams.slices(begin, after)
        assert streams.read(piece).read_all()["id"].to_pylist() == [2]
    table.drop()
    begun("tue")
    with pytest.raises(InputError, match="table 't' was dropped, and created again"):
        streams.slices(after, streams.position(None, after))

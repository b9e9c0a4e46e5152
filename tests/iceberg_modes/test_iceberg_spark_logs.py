"""Event logs that Spark itself writes of its reads: plain, compressed, rolled, cut short."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter

import pytest

from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.layout.collected_reads import collected_reads

T = "ns.t"
SECRET = "an-unlikely-literal"
READS = {
    f"select * from {{{T}}} where id > 771234 and name in ('{SECRET}', 'b''c') and day = date '2026-01-02'": (
        (("id", "name", "day"), 0),
    ),
    f"select count(*) from {{{T}}} where `odd, name` = 'z, and (day = {SECRET})' or id < 3": (
        (("id", "odd, name"), 3),
    ),
    f"select id from {{{T}}} where place.x = 7 and upper(name) = '{SECRET}'": (((), 0),),
    f"select a.id from {{{T}}} a join {{{T}}} b on a.id = b.id where a.day = date '2026-01-03' and b.name = 'q'": (
        (("day",), 1),
        (("name",), 0),
    ),
    f"select * from {{{T}}}": (((), 4),),
}


@contextlib.contextmanager
def logged(spark, folder, **settings):
    """Spark's own listener, as `spark.eventLog.enabled` sets it up; the session is older than the test."""
    jvm, context = spark.sparkContext._jvm, spark.sparkContext._jsc.sc()
    folder.mkdir()
    conf = context.getConf().clone()
    for name, value in settings.items():
        conf.set(f"spark.eventLog.{name.replace('__', '.')}", value)
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "app-1", jvm.scala.Option.apply(None), jvm.java.net.URI(folder.as_uri()), conf, context.hadoopConfiguration()
    )
    listener.start()
    context.addSparkListener(listener)
    yield
    context.listenerBus().waitUntilEmpty()
    context.removeSparkListener(listener)
    listener.stop()


@pytest.fixture
def metadata(lake, spark_lake):
    spark_lake.sql(f"""create table {{{T}}} (id bigint, name string, day date, `odd, name` string, place struct<x: int>)
                       using iceberg partitioned by (day)""")
    spark_lake.sql(f"""insert into {{{T}}} select id, 'n', date_add(date '2026-01-01', cast(id % 4 as int)), 'x',
                       named_struct('x', 1) from range(100)""")
    return IcebergCatalog(lake.catalog).metadata(T)


def told(metadata, path):
    found = collected_reads(metadata.table_id, metadata.ordered_columns, 0.0, spark_logs=[path])
    return [(read.columns, read.files_opened) for read in found.reads], found


def test_logs_of_spark_tell_columns_files_and_rows_and_no_literal(spark_lake, metadata, lake, tmp_path):
    spark, wanted = spark_lake.spark, [predicate for of_query in READS.values() for predicate in of_query]
    with (
        logged(spark, tmp_path / "plain", rolling__enabled="false", compress="false"),
        logged(spark, tmp_path / "rolled", rolling__enabled="true", compress="true", compression__codec="zstd"),
    ):
        for query in READS:
            spark_lake.sql(query).collect()
        running, _ = told(metadata, tmp_path / "plain")  # the application runs: the log is as far as it is flushed
        assert running == wanted[: len(running)]
    plain, rolled = (told(metadata, tmp_path / name) for name in ("plain", "rolled"))
    assert plain[0] == rolled[0] == wanted
    assert not plain[1].left_out.lines and not rolled[1].left_out.lines
    assert {read.rows for read in plain[1].reads} == {None, 75, 100}
    opened_and_skipped = {read.files_opened + read.files_skipped for read in plain[1].reads}
    assert opened_and_skipped == {4}
    assert SECRET in next((tmp_path / "plain").iterdir()).read_text()
    assert SECRET not in repr(plain[1].reads)
    advice = IcebergCatalog(lake.catalog).table(T).advise(spark_logs=[tmp_path / "plain"])  # one name has a comma
    assert sorted(advice.columns) == ["day", "id", "name", "odd, name"]
    for name in ("plain", "rolled"):  # of one application: the second adds nothing
        heat, notes = IcebergCatalog(lake.catalog).table(T).heat(spark_logs=[tmp_path / name, tmp_path / name])
        assert {column: round(reads, 1) for column, reads in heat.columns.items()} == {
            column: float(count)
            for column, count in Counter(itertools.chain(*(columns for columns, _ in wanted))).items()
        }, name
        assert notes == ()
    kept = [path.read_text() for path in lake.folder.rglob("*.json") if "-heat" in str(path)]
    assert kept and not [text for text in kept if SECRET in text or "app-1" in text or "771234" in text]
    half_of_a_log(metadata, tmp_path, wanted)


def half_of_a_log(metadata, tmp_path, wanted):
    """Whatever the byte at which a log ends, its beginning is read."""
    (whole,) = (tmp_path / "rolled").rglob("events_1_*")
    for share in (0.2, 0.5, 0.9):
        cut = tmp_path / f"{share}.zstd"
        cut.write_bytes(whole.read_bytes()[: int(whole.stat().st_size * share)])
        found, of = told(metadata, cut)
        assert [columns for columns, _ in found] == [columns for columns, _ in wanted[: len(found)]]
        assert of.notes[0].endswith("left out: cut short, damaged, or of an unknown shape")

"""The validator accepts what is right, whatever the table looks like, and rejects what was tampered with."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import math
import random
import subprocess
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dead_rows import write_deletions
from pyspark.sql import functions as F
from spark_fixtures import LOCAL, compact, sorted_rows

import deltacompact
from deltacompact import Settings, _kernels
from deltacompact.base.limits import Limits
from deltacompact.base.model import OperationType, Partition
from deltacompact.delta_streams.log.entries import IndexReplaced
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.executors.local import LocalExecutor
from deltacompact.index.entries import TOMBSTONE, fields
from deltacompact.index.index_files import BucketWriter
from deltacompact.index.primary_key_index import read_index, read_manifest, write_manifest
from deltacompact.maintenance.check import check, rehash_table
from deltacompact.maintenance.vacuum.vacuum import vacuum
from deltacompact.spark import quiet_start
from deltacompact.spark.comparable import comparable_type
from deltacompact.spark.digests import in_sql, python_digests, sql_digest
from deltacompact.spark.validate import validate
from deltacompact.tabular.row_groups import WriteOptions
from deltacompact.tabular.writing import write_table

interpreted = pytest.mark.usefixtures("interpreted_spark")


def judge(spark, catalog, table, **arguments):
    """The reports, all of which must be good."""
    reports = validate(catalog, table, spark, **arguments)
    assert all(report.ok for report in reports), "\n".join(map(str, reports))
    return reports


def problems(spark, catalog, table):
    """What is wrong with the one partition of a table."""
    (report,) = validate(catalog, table, spark)
    assert not report.ok
    return "; ".join(report.problems)


# Digests

_UTC = datetime.UTC
_KEYS = {
    "int": pa.array([5, -1, -(2**63), None], pa.int64()),
    "uint": pa.array([5, 2**64 - 1, 0, None], pa.uint64()),
    "small": pa.array([5, -1, 127, None], pa.int8()),
    "string": pa.array(["", "a", "ü√", None]),
    "binary": pa.array([b"", b"\0", b"ab", None]),
    "bool": pa.array([True, False, True, None]),
    "date": pa.array([0, -1, 20_000, None], pa.date32()),
    "instant": pa.array([-1, 0, 1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
    "millis": pa.array([-1, 0, 1_700_000_000_123, None], pa.timestamp("ms", "Europe/Paris")),
    "naive": pa.array([-1, 0, 1_700_000_000_123_456, None], pa.timestamp("us")),
    "nanos": pa.array([-1, 0, 1_700_000_000_123_456_789, None], pa.timestamp("ns", "UTC")),
    "float": pa.array([-0.0, float("nan"), 1.5, None]),
    "decimal": pa.array([*map(decimal.Decimal, ("-1.50", "0.00", "9e30")), None], pa.decimal128(38, 2)),
    "time": pa.array([0, 1, 86_399_999, None], pa.time32("ms")),
    "duration": pa.array([-1, 0, 5, None], pa.duration("ms")),
    "null": pa.nulls(4),
}  # fmt: skip
_TAGS = dict.fromkeys(_KEYS, 1) | {
    "float": 2, "decimal": 3, "naive": 4, "instant": 5, "millis": 5, "nanos": 5, "date": 6, "time": 7, "duration": 8,
    "string": 9, "binary": 10, "bool": 11,
}  # fmt: skip


def test_digests_are_those_of_the_kernel(spark):
    table = pa.table(_KEYS)
    names = sorted(_KEYS)
    expected = {name: _kernels.key_digests([_KEYS[name]], [_TAGS[name]], 4) for name in names}
    expected["all"] = _kernels.key_digests([_KEYS[name] for name in names], [_TAGS[name] for name in names], 4)
    for name in names:
        assert python_digests([table[name]], 4) == [bytes(d) for d in expected[name]], name
    assert python_digests([table[name] for name in names], 4) == [bytes(d) for d in expected["all"]]
    in_spark = [name for name in names if in_sql(_KEYS[name].type)]
    assert set(in_spark) >= {"int", "small", "string", "binary", "bool", "date", "instant", "millis", "null"}
    frame = spark.createDataFrame(
        pa.table({name: _KEYS[name].cast(comparable_type(_KEYS[name].type)) for name in in_spark})
    )
    found = frame.select(
        *(F.hex(sql_digest([(F.col(name), _KEYS[name].type)])).alias(name) for name in in_spark)
    ).collect()
    for name in in_spark:
        assert [row[name].lower() for row in found] == [bytes(d).hex() for d in expected[name]], name
    assert python_digests([], 1) == [hashlib.sha1(b"").digest()]


# What is right

_ALL_TYPES = {
    **{name: column.slice(0, 3) for name, column in _KEYS.items()},
    "list": pa.array([[1, None], [], None], pa.large_list(pa.int16())),
    "struct": pa.array(
        [{"at": 1, "x": float("nan")}, {"at": None, "x": -0.0}, None],
        pa.struct([("at", pa.timestamp("ns")), ("x", pa.float32())]),
    ),
    "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    "maps": pa.array([[[("a", 1.5)]], [None], None], pa.list_(pa.map_(pa.string(), pa.float64()))),
    "dictionary": pa.array(["x", "y", None]).dictionary_encode(),
    "wide": pa.array([decimal.Decimal(10) ** 40, None, decimal.Decimal(-1)], pa.decimal256(60, 1)),
    "half": pa.array(np.array([1, 2, 3], np.float16)),
    "fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
    "view": pa.array(["a", None, "long enough to be no inline view"], pa.string_view()),
    "A": pa.array([1, 2, 3]),
    "a": pa.array([4, 5, 6]),
    "we`ird.name": pa.array([1, 2, 3]),
}  # fmt: skip


def test_any_type_as_key_sort_key_and_value(spark, catalog):
    """Keys and columns that Spark has no type for go through pyarrow and hashlib."""
    catalog.create_table(
        "t", primary_keys=["nanos", "float", "decimal", "uint"], sort_keys=["time", ("duration", "descending")]
    )
    table = pa.table(_ALL_TYPES)
    catalog.append("t", table)
    later = table.slice(0, 2).set_column(
        table.schema.get_field_index("time"), "time", pa.array([5, 0], pa.time64("ns"))
    )
    catalog.append("t", later.drop_columns(["maps"]).append_column("new", pa.array(["n", None])))
    catalog.append(
        "t", table.slice(2).select(["nanos", "float", "decimal", "uint", "time", "duration"]), operation="delete"
    )
    compact(catalog, "t")
    (report,) = judge(spark, catalog, "t")
    assert (report.rows, report.tombstones) == (2, 1)


def test_spark_reads_parquet_by_itself_where_schemas_grow(spark, catalog):
    catalog.create_table("t", partition_keys=["day"], primary_keys=["id", "day"], sort_keys=[("price", "descending")])
    day = {"day": "2024-01-01/[x]"}
    first = {"id": pa.array([1, 2, 3, 4], pa.int32()), "price": pa.array([1.5, None, float("nan"), -0.0], pa.float32())}
    catalog.append("t", pa.table({**first, "tags": pa.array([{"k": ["v"]}] * 4)}), partition=day)
    grown = {"id": [1, 2, 3, 4, 5], "price": [2.5, 9.0, 1.0, 0.0, 7.0], "day": [day["day"]] * 5}
    catalog.append(
        "t", pa.table({**grown, "m": pa.array([[("k", 1)]] * 5, pa.map_(pa.string(), pa.int64()))}), partition=day
    )
    catalog.append("t", pa.table({"id": [5], "price": [7.0]}), partition=day, operation="delete")
    (report,) = judge(spark, catalog, "t")
    assert str(report).endswith("validated: 4 rows identical, not compacted yet")
    compact(catalog, "t", hash_bucket_count=3)
    catalog.append("t", pa.table({"id": [5, 1], "price": [8.0, None]}), partition=day, operation="delete")
    catalog.append("t", pa.table({"id": [6], "price": [8.0], "ID": ["another column"]}), partition=day)
    (report,) = judge(spark, catalog, "t")
    assert (report.rows, report.tombstones) == (4, 1)  # the delete of key 1 has no sort key, so it clears
    assert str(report) == f"t, partition day={day['day']}: validated: 4 rows identical, index sound"


class Once:
    """An event sink that does something on the first event: an append while the compaction runs is carried over."""

    def __init__(self, act):
        self.act = act

    def __call__(self, event):
        act, self.act = self.act, lambda: None
        act()


def random_history(catalog, table, seed, *, deltas=12, keys=60, position=0):
    """Upserts, keyed and keyless deletes of one key space; sort keys collide and are null at times."""
    chance = random.Random(seed)
    for _ in range(deltas):
        position += chance.randrange(1, 30)
        files = []
        for _ in range(chance.choice([1, 1, 2])):
            rows = chance.randrange(1, keys)
            at = [chance.choice([None, *range(20)]) for _ in range(rows)]
            price = [chance.choice([None, 0.0, -0.0, float("nan"), 1.5, -1.5]) for _ in range(rows)]
            ids = [chance.randrange(keys) for _ in range(rows)]
            files.append({"id": ids, "at": pa.array(at, pa.int32()), "price": pa.array(price, pa.float64())})
        if chance.random() < 0.3:
            kept = chance.choice([["id"], ["id", "at", "price"]])
            catalog.append(table, [pa.table(file).select(kept) for file in files], None, "delete", position)
        else:
            catalog.append(
                table, [pa.table({**file, "n": range(len(file["id"]))}) for file in files], None, "upsert", position
            )
        if chance.random() < 0.25:
            position += 1
            late = {"id": [position % keys], "at": [position % 20], "price": [1.5], "n": [-1]}
            act = partial(catalog.append, table, pa.table(late), None, "upsert", position)
            compact(catalog, table, event_sinks=[Once(act)])


@pytest.mark.parametrize("retention", [None, 40])
def test_random_histories(spark, catalog, retention):
    catalog.create_table(
        "t", primary_keys=["id"], sort_keys=["price", ("at", "descending")], tombstone_retention=retention
    )
    random_history(catalog, "t", seed=retention or 7)
    compact(catalog, "t")
    random_history(catalog, "t", seed=3, deltas=3, position=1000)
    versions = [{commit.commit_id for commit in state.commits} for state in catalog.log("t", Partition()).chain()]
    assert any(before & after for before, after in pairwise(versions)), "commits were carried over"
    (report,) = judge(spark, catalog, "t")
    assert report.rows > 0 and report.tombstones > 0


@interpreted
def test_vacuumed_restated_and_rehashed_tables_and_destinations(spark, catalog):
    catalog.create_table("t", primary_keys=["id"], sort_keys=["at"])
    catalog.append("t", pa.table({"id": range(20), "at": range(20)}))
    catalog.append("t", pa.table({"id": [1, 2], "at": [50, 50]}), operation="delete")
    compact(catalog, "t")
    compact(catalog, "t", destination_compacted_table_id="copy")
    catalog.append("t", pa.table({"id": [1, 2, 3], "at": [49, 51, 51]}))
    catalog.append("t", pa.table({"id": [4], "at": [70]}), operation="delete")
    compact(catalog, "t", destination_compacted_table_id="copy")
    assert judge(spark, catalog, "copy")[0].rows == 18
    compact(catalog, "t")
    rehash_table(catalog, "t", 5, LocalExecutor(LOCAL))
    # Without the first deltas the history begins with version 1, whose tombstone still stops row (1, 49).
    first, *_ = catalog.log("t", Partition()).chain()
    catalog.store.delete([first.deltas[0].files[0].path])
    (report,) = judge(spark, catalog, "t")
    assert (report.rows, report.tombstones) == (18, 2)
    assert report.note.startswith("older files were vacuumed")
    catalog.restate("t", pa.table({"id": [1, 2], "at": [1, 1]}))
    compact(catalog, "t")
    assert judge(spark, catalog, "t")[0].rows == 2


_WORDS = ["", "a", "a\0", "ab", "é", "z" * 9, "é" * 8]


_MADE = {
    "string": pa.array,
    "dictionary": lambda words: pa.array(words).dictionary_encode(),
    "binary": lambda words: pa.array([None if word is None else word.encode() for word in words], pa.binary()),
}


@interpreted
@pytest.mark.parametrize(
    ("kind", "direction", "retention"),
    [
        ("string", "ascending", None),
        ("string", "descending", 40),
        ("dictionary", "ascending", 40),
        ("dictionary", "descending", None),
        ("binary", "ascending", None),
        ("binary", "descending", 40),
    ],
)
def test_tables_sorted_by_strings_and_binaries(spark, catalog, kind, direction, retention):
    catalog.create_table("t", primary_keys=["id"], sort_keys=[("at", direction), "n"], tombstone_retention=retention)
    chance = random.Random(direction)
    for position in range(1, 60, 10):
        ids = [chance.randrange(30) for _ in range(25)]
        at = _MADE[kind]([chance.choice([None, *_WORDS[: position // 10 + 2]]) for _ in ids])
        rows = pa.table({"id": ids, "at": at, "n": pa.array([chance.randrange(3) for _ in ids], pa.int8())})
        operation = "delete" if position in (21, 41) else "upsert"
        catalog.append("t", rows, operation=operation, stream_position=position)
        if position in (21, 31):
            compact(catalog, "t")
    judge(spark, catalog, "t")
    compact(catalog, "t")
    judge(spark, catalog, "t")
    first, *_ = catalog.log("t", Partition()).chain()
    catalog.store.delete([first.deltas[0].files[0].path])
    if retention is None:  # the tombstones of the history come out of the index
        (report,) = judge(spark, catalog, "t")
        assert report.note.startswith("older files were vacuumed")


@interpreted
def test_structs_whose_children_differ_from_file_to_file(spark, catalog):
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1, 2], "c": [{"a": 1, "b": "x"}, None]}))
    catalog.append("t", pa.table({"id": [2, 3], "c": [{"b": "y", "n": 1.5, "a": 2}, None]}))
    catalog.append("t", pa.schema([("c", pa.binary()), ("only", pa.int8())]).empty_table())
    judge(spark, catalog, "t")
    compact(catalog, "t")
    assert judge(spark, catalog, "t")[0].rows == 3


# What is wrong


@pytest.fixture
def compacted(catalog):
    """Twenty rows, of which 1 and 2 are deleted with tombstones, in one file and three buckets."""
    catalog.create_table("t", primary_keys=["id"], sort_keys=["at"])
    catalog.append("t", pa.table({"id": range(20), "at": range(20), "v": [[{"x": n}] for n in range(20)]}))
    catalog.append("t", pa.table({"id": [1, 2], "at": [50, 50]}), operation="delete")
    compact(catalog, "t", hash_bucket_count=3)
    return catalog


def rewrite_file(catalog, change):
    """Replace the compacted file by a changed one."""
    (file,) = catalog.state("t", Partition()).compacted.files
    path = catalog.store.root / file.path
    table = change(pq.read_table(path))
    path.unlink()
    pq.write_table(table, path)


def rewrite_index(catalog, change):
    """Replace the index by one whose entries were changed, checksums and all."""
    log, store = catalog.log("t", Partition()), catalog.store
    state = log.active()
    manifest = read_manifest(store, state.index)
    buckets = []
    for bucket in range(manifest.hash_bucket_count):
        chunks = read_index(store, manifest, bucket)
        paths = (log.paths.fresh("index", ".arrow") for _ in range(9))
        with BucketWriter(store, lambda paths=paths: next(paths), manifest.encoding.entry_bytes, 100, 100) as writer:
            for chunk in chunks:
                writer.write(change(bucket, chunk.copy()))
            buckets.append(writer.close())
    changed = replace(manifest, runs=(tuple(buckets),), relocations=())
    ref = write_manifest(store, log.paths.fresh("index", ".json"), changed)
    assert log.put(state.version, state.tail, IndexReplaced(ref))


@interpreted
def test_what_java_says_while_spark_starts_is_not_told(spark, compacted, monkeypatch, capfd):
    """It warns of a flag that Spark gives it, on a line before what was validated."""

    def started(name):
        subprocess.run(["sh", "-c", "echo 'WARNING: Using incubator modules: jdk.incubator.vector' >&2"], check=True)
        return spark

    monkeypatch.setattr(quiet_start, "spark_session", started)
    assert validate(compacted, "t")[0].ok
    assert capfd.readouterr().err == ""


def test_a_lost_row_is_missed(spark, compacted):
    rewrite_file(compacted, lambda table: table.slice(0, 17))
    found = problems(spark, compacted, "t")
    digest = hashlib.sha1(b"\1\1\1" + (19).to_bytes(8, "big")).hexdigest()
    assert f"rows are missing: 1 (digests {digest})" in found
    assert "index entries are of no live row: 1" in found
    assert "hold 17 rows where the log says 18" in found


@interpreted
def test_a_changed_value_and_a_resurrected_row_are_seen(spark, compacted):
    def change(table):
        rows = table.to_pylist()
        rows[3]["v"][0]["x"] = -1
        rows[4] = {"id": 1, "at": 1, "v": [{"x": 1}]}
        return pa.Table.from_pylist(rows, table.schema)

    rewrite_file(compacted, change)
    found = problems(spark, compacted, "t")
    assert "rows differ from what was written: 1 (" in found
    assert "rows live that should not: 1 (" in found
    assert "rows are missing: 1 (" in found


@interpreted
def test_swapped_rows_and_duplicates_are_seen(spark, compacted):
    rewrite_file(
        compacted,
        lambda table: pa.concat_tables(
            [table.take([1, 0]), table.slice(2, 15), table.slice(16, 1), table.slice(16, 1)]
        ),
    )
    found = problems(spark, compacted, "t")
    assert "index entries point to another place than the row's: 4 (" in found
    assert "keys live more than once: 3 (" in found


@interpreted
def test_a_wrong_pointer_a_lost_entry_and_lost_tombstones_are_seen(spark, compacted):
    def change(bucket, entries):
        view = fields(entries)
        live = np.flatnonzero(view["file"] != TOMBSTONE)
        if bucket == 0:
            view["row"][live[0]] += 1
        if bucket == 1:
            return np.delete(entries, live[0], axis=0)
        return entries if bucket == 0 else entries[live]

    rewrite_index(compacted, change)
    found = problems(spark, compacted, "t")
    assert "index entries point to another place than the row's: 1 (" in found
    assert "rows have no index entry: 1 (" in found
    tombstones = [bytes(_kernels.key_digests([pa.array([n])], [1], 1)[0]) for n in (1, 2)]
    lost = sum(int.from_bytes(digest, "big") % 3 == 2 for digest in tombstones)
    assert (f"tombstones are missing: {lost} (" in found) == (lost > 0)


@interpreted
def test_misplaced_entries_wrong_positions_and_other_digests_are_seen(spark, compacted):
    moved = []

    def change(bucket, entries):
        view = fields(entries)
        dead = view["file"] == TOMBSTONE
        view["row"][dead] -= 1
        if bucket == 0:
            moved.append(entries[~dead][:1])
            return np.delete(entries, np.flatnonzero(~dead)[0], axis=0)
        if bucket == 1:
            both = np.concatenate([entries, moved.pop()])
            return np.ascontiguousarray(both[np.lexsort(both[:, :20].T[::-1])])
        entries[-1, 19] ^= 1
        return entries

    rewrite_index(compacted, change)
    found = problems(spark, compacted, "t")
    assert "index entries are in the wrong bucket: " in found
    assert "tombstones are at another position: 2 (" in found
    assert "rows have no index entry: 1 (" in found


@interpreted
def test_missing_and_broken_files_are_problems_not_crashes(spark, compacted):
    (file,) = compacted.state("t", Partition()).compacted.files
    path = compacted.store.root / file.path
    path.write_bytes(path.read_bytes()[:100])
    assert "Spark could not read it" in problems(spark, compacted, "t")
    path.unlink()
    (report,) = validate(compacted, "t", spark)
    assert not report.ok and "\n" not in str(report)


@interpreted
def test_a_merge_on_read_that_is_wrong_is_seen(spark, compacted, monkeypatch):
    compacted.append("t", pa.table({"id": [3, 30], "at": [40, 40]}))
    from deltacompact.spark import validate as module

    genuine = module.live_sources

    def forgetful(*arguments):
        return genuine(*arguments)[:-1]

    judge(spark, compacted, "t")
    monkeypatch.setattr(module, "live_sources", forgetful)
    assert "merge on read: rows are missing: 2 (" in problems(spark, compacted, "t")


def test_a_table_without_keys_has_no_meaning(catalog):
    catalog.create_table("t")
    with pytest.raises(Exception, match="has no primary keys yet"):
        validate(catalog, "t")


@interpreted
def test_an_index_of_runs_and_relocations_is_judged_like_any_other(spark, compacted):
    never_merged = Limits(runs_max=math.inf, runs_share_max=math.inf, masks_share_of_index=math.inf)
    adding_runs = Settings(executor="local", limits=never_merged)
    for place, (operation, ids) in enumerate(
        [("upsert", [3, 30]), ("delete", [4]), ("upsert", [1, 5]), ("delete", [3])]
    ):
        rows = pa.table({"id": ids, "at": [100 + place] * len(ids), "v": [[{"x": -1}]] * len(ids)})
        compacted.append("t", rows, operation=operation)
        deltacompact.compact("t", delta_catalog_client=compacted, hash_bucket_count=3, settings=adding_runs)
        (report,) = validate(compacted, "t", spark)
        assert report.ok, report
    manifest = read_manifest(compacted.store, compacted.state("t", Partition()).index)
    assert len(manifest.runs) == 5 and len(manifest.relocations) == 4
    runs = (*manifest.runs[:-1], tuple(() for _ in manifest.runs[-1]))  # as if the last run had been lost
    log, changed = compacted.log("t", Partition()), replace(manifest, runs=runs)
    state = log.active()
    ref = write_manifest(compacted.store, log.paths.fresh("index", ".json"), changed)
    assert log.put(state.version, state.tail, IndexReplaced(ref))
    assert "index entries are of no live row: 1" in problems(spark, compacted, "t")


@interpreted
def test_files_of_deltas_with_dead_rows(spark, catalog):
    """Readers, the validator, check, compaction and vacuum go by the deletion vectors of delta files."""

    def commit(table, rows, dead, operation=OperationType.UPSERT):
        paths = TablePaths.of(table).stream(Partition())
        file = write_table(catalog.store, paths.fresh("data", ".parquet"), rows, WriteOptions())
        path = paths.fresh("index", ".masks.arrow")
        deletions = write_deletions(catalog.store, path, file.rows, dead)
        catalog.commit(table, Partition(), [(operation, [replace(file, deletions=deletions)])])

    def read(table):
        frame = spark.read.format("deltacompact").options(catalog=catalog.uri, table=table).load()
        found = sorted_rows(frame.toArrow(), "id")
        assert found == sorted_rows(catalog.read(table), "id")
        return [(row["id"], row["v"]) for row in found]

    catalog.create_table("plain")
    commit("plain", pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}), [1])
    assert read("plain") == [(1, "a"), (3, "c")]
    catalog.create_table("t", primary_keys=["id"])
    commit("t", pa.table({"id": [1, 2, 3, 4], "v": ["a", "b", "c", "d"]}), [3])
    commit("t", pa.table({"id": [1, 2, 5], "v": ["x", "y", "z"]}), [1])
    commit("t", pa.table({"id": [3, 1]}), [1], OperationType.DELETE)
    expected = [(1, "x"), (2, "b"), (5, "z")]
    assert read("t") == expected
    (report,) = judge(spark, catalog, "t")
    assert report.rows == 3
    compact(catalog, "t")
    vacuum(catalog, "t", age_min_s=0, force=True)
    assert read("t") == expected
    commit("t", pa.table({"id": [2, 5], "v": ["new", "dead"]}), [1])
    expected[1] = (2, "new")
    assert read("t") == expected
    judge(spark, catalog, "t")
    vacuum(catalog, "t", age_min_s=0, force=True)
    compact(catalog, "t")
    assert read("t") == expected
    judge(spark, catalog, "t")
    assert check(catalog, "t")[0].problems == ()

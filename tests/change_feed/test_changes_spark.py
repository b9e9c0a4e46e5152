"""Spark's own changelog view is equal where it works, and where it does not, Spark's EXCEPT ALL judges.

copy on write     create_changelog_view, with updates       the rows of ours, commit by commit
merge on read     "Delete files are … not supported"        every pair of snapshots, EXCEPT ALL both ways
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

import deltacompact
from deltacompact import Settings

T = "ns.t"
WRITES = (
    "insert into {ns.t} values (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
    "update {ns.t} set v = 'B' where id = 2",
    "delete from {ns.t} where id in (1, 3)",
    "insert into {ns.t} values (5, 'e'), (1, 'again')",
    "update {ns.t} set v = concat(v, '!') where id > 3",
)


def written(spark_lake, version, mode):
    modes = ", ".join(f"'write.{verb}.mode'='{mode}'" for verb in ("delete", "update", "merge"))
    spark_lake.sql(
        "create table {ns.t} (id bigint, v string) using iceberg "
        f"tblproperties ('format-version'='{version}', {modes})"
    )
    for number, statement in enumerate(WRITES):
        spark_lake.sql(statement)
        if number == 3 and mode == "copy-on-write":  # a replace, which is no change
            rewrite = f"call {spark_lake.name}.system.rewrite_data_files"
            spark_lake.sql(f"{rewrite}(table => '{T}', options => map('rewrite-all', 'true'))")
    return deltacompact.open_catalog(spark_lake.lake.catalog).table(T)


@pytest.mark.parametrize("version", [2, 3])
def test_the_changelog_view_says_the_same(spark_lake, version):
    table = written(spark_lake, version, "copy-on-write")
    begin = table.history()[0].snapshot_id
    spark_lake.sql(
        f"call {spark_lake.name}.system.create_changelog_view(table => '{T}', changelog_view => 'theirs', "
        f"options => map('start-snapshot-id', '{begin}'), identifier_columns => array('id'), compute_updates => true)"
    )
    names = ("id", "v", "_change_type", "_change_ordinal", "_commit_snapshot_id")
    theirs = spark_lake.spark.sql(f"select {', '.join(names)} from theirs").collect()
    ours = table.changes(begin, per_commit=True, before=True, key=["id"]).read_all().to_pylist()
    found = Counter(tuple(row[name] for name in names) for row in ours)
    expected = Counter((row[0], row[1], row[2].lower(), row[3], row[4]) for row in theirs)
    assert found == expected and len(expected) > 8


@pytest.mark.parametrize("version", [2, 3])
def test_between_any_two_snapshots_it_is_the_difference(spark_lake, version):
    table = written(spark_lake, version, "merge-on-read")
    spark_lake.delete_by_key(T, {"id": [5]})
    table.compact("rewrite", {"rewrite-all": True}, settings=Settings(executor="local", local_threads=1))
    snapshots = [made.snapshot_id for made in table.history()]
    assert len(snapshots) > 6
    read = "select id, v from {ns.t} version as of {}".replace("{ns.t}", f"{spark_lake.name}.{T}")
    rows = {
        snapshot: Counter(map(tuple, spark_lake.spark.sql(read.format(snapshot)).collect())) for snapshot in snapshots
    }
    for begin, end in combinations(snapshots, 2):
        found = table.changes(begin, end, key=[]).read_all().to_pylist()
        told = Counter((row["id"], row["v"], row["_change_type"]) for row in found)
        gone, came = rows[begin] - rows[end], rows[end] - rows[begin]
        assert told == Counter({(*row, "delete"): n for row, n in gone.items()}) + Counter(
            {(*row, "insert"): n for row, n in came.items()}
        )

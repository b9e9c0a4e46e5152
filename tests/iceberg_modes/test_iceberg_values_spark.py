"""Spark's DELETE, UPDATE and MERGE find the same rows after each mode as they do in a DataFrame without any metrics.

    DELETE … WHERE d < 1      Iceberg drops a file as a whole if its bounds and counts say that every row matches
    row NaN                   must stay: NaN < 1 is false

Iceberg skips a file whose greatest number is 1.5 for `d > 2`, though Spark takes NaN for greater than 2. That is so
without us, so literals lie within the bounds.

DELTACOMPACT_TEST_EVERYTHING=1 tries all comparisons of all types instead of a few, which takes long; what Spark does
wrong to its own files (`i <> 100` deletes the nulls of a file that has nothing else) is left out.
"""

from __future__ import annotations

import os
import re

import pyarrow.compute as pc
from iceberg_lake import SETTINGS, sorted_rows
from publications import Publications, configure

import deltacompact

T = "ns.t"
EVERYTHING = bool(os.environ.get("DELTACOMPACT_TEST_EVERYTHING"))
FLOATS = ("f", "d", "n.x")
IS_FLOAT = re.compile(r"(not )?(isnan\()?(f|d|n\.x)\b")
DAYS = [("1969-12-31", "2026-01-01"), ("1800-01-01", "2100-01-01")]
LITERALS = {
    "b": [("false", "true")],
    "i": [("-5", "7"), ("-100", "100")],
    "l": [("-5", "7"), ("-100", "100")],
    "f": [("float('-0.5')", "float('1.0')"), ("float('-100')", "float('100')")],
    "d": [("-0.5D", "1.0D"), ("-100.0D", "100.0D")],
    "n.x": [("-0.5D", "1.0D"), ("-100.0D", "100.0D")],
    "p": [("-1.50", "2.25"), ("-100", "100")],
    "s": [("'b'", "'y'"), ("''", "'~'")],
    "r": [("X'61'", "X'7A'"), ("X''", "X'FF'")],
    "da": [(f"date '{low}'", f"date '{high}'") for low, high in DAYS],
    "ts": [(f"timestamp '{low}'", f"timestamp '{high}'") for low, high in DAYS],
    "tn": [(f"timestamp_ntz '{low}'", f"timestamp_ntz '{high}'") for low, high in DAYS],
}
"""Pairs of values, among those of the rows and around them."""
ROWS = """
select id, 0 as g, false as b, int(-5) as i, -5L as l, float('-0.0') as f, -0.0D as d,
       named_struct('x', double('NaN')) as n, cast(-1.50 as decimal(38, 2)) as p, 'a' as s, X'61' as r,
       date '1969-12-31' as da, timestamp '1969-12-31 00:00:00' as ts,
       timestamp_ntz '1969-12-31 00:00:00' as tn from range(1)
union all select 1, 0, false, 0, 0, float('NaN'), double('NaN'), named_struct('x', 0.5D), 0.5, 'm', X'6D',
       date '2000-01-01', timestamp '2000-01-01 00:00:00', timestamp_ntz '2000-01-01 00:00:00'
union all select 2, 1, null, null, null, null, null, null, null, null, null, null, null, null
union all select 3, 0, true, 7, 7, float(1.5), 1.5D, named_struct('x', 1.5D), 2.25, repeat('z', 20), repeat(X'7A', 20),
       date '2026-01-01', timestamp '2026-01-01 00:00:00', timestamp_ntz '2026-01-01 00:00:00'
union all select 4, 0, true, int(-9), -9, float(-1.5), -1.5D, named_struct('x', -1.5D), -9.75, '', X'',
       date '1900-01-01', timestamp '1900-01-01 00:00:00', timestamp_ntz '1900-01-01 00:00:00'
"""


def comparisons(column):
    for low, high in LITERALS[column]:
        for sign in ("=", "<>", "<", "<=", ">", ">="):
            yield f"{column} {sign} {high if sign[0] == '<' else low}"
        yield f"{column} in ({low}, {high})"
        yield f"{column} not in ({low}, {high})"
        yield f"{column} between {low} and {high}"
    yield f"{column} is null"
    yield f"{column} is not null"
    if column in FLOATS:
        yield f"isnan({column})"
        yield f"not isnan({column})"


LOST = ["d < 100.0D", "f <= float('100')", "d between -100.0D and 100.0D"]
"""By these the rows with NaN were lost."""


class Judge:
    """A table, and the rows that it has: what a statement does to them is found in a DataFrame."""

    def __init__(self, spark_lake, table, rows):
        self.lake, self.table, self.rows = spark_lake, table, rows
        self.schema = spark_lake.sql(f"select * from {{{table}}}").schema

    def check(self, statements):
        """Try each statement on the table as it is now, and bring the table back."""
        for statement, found, expected in self._tried(statements):
            assert found == expected, statement

    def right(self, statements):
        """Those that Spark does right on the table as it is now."""
        return [statement for statement, found, expected in self._tried(statements) if found == expected]

    def _tried(self, statements):
        """Of each statement: what it leaves, and what it should leave."""
        head = self.lake.table(self.table).currentSnapshot().snapshotId()
        assert self._found() == _shown(row.asDict(recursive=True) for row in self.rows)
        for (verb, where), matches in zip(statements, self._matches(statements), strict=True):
            self.lake.sql(STATEMENTS[verb].format(table=f"{{{self.table}}}", where=where))
            rows = [row.asDict(recursive=True) for row in self.rows]
            if verb == "update":
                expected = [
                    row | {"id": -row["id"] - 1} if hit else row for row, hit in zip(rows, matches, strict=True)
                ]
            else:
                expected = [row for row, hit in zip(rows, matches, strict=True) if not hit]
            yield (verb, where), self._found(), _shown(expected)
            self.lake.table(self.table).manageSnapshots().rollbackTo(head).commit()

    def _matches(self, statements):
        """Of each statement, which rows match."""
        self.lake.spark.createDataFrame(self.rows, self.schema).coalesce(1).createOrReplaceTempView("oracle")
        asked = ", ".join(f"coalesce({where}, false)" for _, where in statements)
        return zip(*self.lake.spark.sql(f"select {asked} from oracle").collect(), strict=True)

    def _found(self):
        rows = self.lake.sql(f"select * from {{{self.table}}}").collect()
        return _shown(row.asDict(recursive=True) for row in rows)


def _shown(rows):
    """Rows that are equal if they are the same: NaN is NaN."""
    return [repr(row) for row in sorted_rows(list(rows))]


STATEMENTS = {
    "delete": "delete from {table} where {where}",
    "update": "update {table} set id = -id - 1 where {where}",
    "merge": "merge into {table} using (select 1) on {where} when matched then delete",
}


def compact(lake, mode, table=T, **options):
    catalog = deltacompact.open_catalog(lake.catalog)
    return deltacompact.compact(table, delta_catalog_client=catalog, mode=mode, options=options, settings=SETTINGS)


def filled(spark_lake, mode):
    """Two files for each partition, the second of which PyIceberg wrote, without counts of NaN.

    Nulls have a partition of their own, because no file with nulls is deleted as a whole.
    """
    lake = spark_lake.lake
    modes = ", ".join(f"'write.{verb}.mode' = '{mode}'" for verb in STATEMENTS)
    spark_lake.sql(
        f"create table {{{T}}} using iceberg partitioned by (g) tblproperties ('format-version' = '2', {modes}) "
        f"as select /*+ coalesce(1) */ * from ({ROWS})"
    )
    rows = lake.catalog.load_table(T).scan().to_arrow()
    lake.append(T, rows.set_column(0, rows.schema.field(0), pc.add(rows["id"], 10)))
    return Judge(spark_lake, T, spark_lake.sql(f"select * from {{{T}}}").collect())


def every_statement():
    of_floats = [(verb, where) for name in FLOATS for where in comparisons(name) for verb in ("update", "merge")]
    return [("delete", where) for name in LITERALS for where in comparisons(name)] + of_floats


def written_by_spark(spark_lake, mode):
    """A table as `filled` makes it, of Spark's files alone: the judge of what is Spark's own fault."""
    modes = ", ".join(f"'write.{verb}.mode' = '{mode}'" for verb in STATEMENTS)
    spark_lake.sql(
        f"create table {{ns.alone}} using iceberg partitioned by (g) tblproperties ('format-version' = '2', {modes}) "
        f"as select /*+ coalesce(1) */ * from ({ROWS})"
    )
    return Judge(spark_lake, "ns.alone", spark_lake.sql("select * from {ns.alone}").collect())


def test_no_row_with_nan_is_lost_by_a_statement_after_any_mode(spark_lake, lake, tmp_path, monkeypatch):
    for option, value in {"session.timeZone": "UTC", "shuffle.partitions": "1"}.items():
        spark_lake.spark.conf.set(f"spark.sql.{option}", value)
    few = {
        "merge-on-read": [("delete", where) for where in LOST] + [("update", LOST[0]), ("merge", LOST[1])],
        "copy-on-write": [("delete", LOST[0]), ("delete", "p between -1.50 and 2.25"), ("update", LOST[1])],
    }
    for write_mode, statements in few.items():
        everything = written_by_spark(spark_lake, write_mode).right(every_statement()) if EVERYTHING else None
        if everything is not None:
            print(write_mode, len(everything), "right; wrong without us:", set(every_statement()) - set(everything))
            spark_lake.sql("drop table {ns.alone}")
        judge = filled(spark_lake, write_mode)
        compact(lake, "upsert", **{"key-columns": "id"})
        lake.delete_by_key(T, {"id": [14]}, partition=(0,))
        compact(lake, "convert")
        judge.rows = [row for row in judge.rows if row.id != 14]
        # Spark alone loses the NaN rows of the file that PyIceberg wrote
        judge.check(
            [(verb, where) for verb, where in (everything or [("delete", "p < 1")]) if not IS_FLOAT.match(where)]
        )
        compact(lake, "rewrite", **{"rewrite-all": "true"})
        judge.check(everything or statements)
        spark_lake.sql(f"drop table {{{T}}}")
    _published(spark_lake, lake, tmp_path, monkeypatch)


def _published(spark_lake, lake, tmp_path, monkeypatch):
    """What a publication shows may be changed by Spark, once it is no publication any more."""
    configure(lake, monkeypatch)
    published = Publications(lake, tmp_path / "delta")
    published.append(spark_lake.spark.sql(f"select /*+ coalesce(1) */ * from ({ROWS}) where g = 0").toArrow())
    published.compact()
    published.publish()
    table = "ns.orders"
    rows = spark_lake.sql(f"select * from {{{table}}}").collect()
    Judge(spark_lake, table, rows).check([("delete", where) for where in LOST[:1]])

"""The fold a second time, in Spark SQL: per key the row of greatest (sort key, order) after the last keyless delete.

    digest  order     op      keyless  sort key
    k1      (0, 4)    upsert           5
    k1      (1, 0)    delete  yes                  the last keyless delete: what is before it is gone
    k1      (2, 0)    upsert           1
    k1      (3, 7)    delete           3           the greatest: k1 is dead and leaves a tombstone

If tombstones expire, the events in between decide whether a tombstone blocks an upsert. So a key's events are folded
one by one instead (`aggregate` over their sorted array).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

UPSERT, DELETE, KEYLESS = 0, 1, 2
"""Operation of an event, in its column `op`."""

_ORDER = ("ordinal", "row")
_POSITION = "decimal(20,0)"  # differences of positions leave int64


def winners(events: DataFrame, sort_columns: Sequence[tuple[Column, bool]]) -> DataFrame:
    """The event that decides each key: a row that lives, or the delete that left a tombstone.

    `events` has digest, ordinal, row, position and op; `sort_columns` are columns of it, with "descending".
    """
    whole = Window.partitionBy("digest")
    last_keyless = F.max(F.when(F.col("op") == KEYLESS, F.struct(*_ORDER))).over(whole)
    after = events.withColumn("last_keyless", last_keyless).where(
        F.col("last_keyless").isNull() | (F.struct(*_ORDER) > F.col("last_keyless"))
    )
    best = [_greatest_first(column, descending) for column, descending in sort_columns]
    place = F.row_number().over(whole.orderBy(*best, *(F.desc(name) for name in _ORDER)))
    return after.withColumn("place", place).where("place = 1").drop("last_keyless", "place")


def winners_of_retention(
    events: DataFrame, sort_columns: Sequence[tuple[Column, bool]], retention: int, watermark: int
) -> DataFrame:
    """The same where a tombstone at p blocks an upsert at q only if q - p <= retention, and goes with the watermark."""
    whole = Window.partitionBy("digest")
    smallest_first = [_smallest_first(column, descending) for column, descending in sort_columns]
    rank = F.dense_rank().over(whole.orderBy(*smallest_first)) if smallest_first else F.lit(1)
    event = F.struct("ordinal", "row", "op", F.col("position").cast(_POSITION).alias("position"), rank.alias("rank"))
    folded = (
        events.select("digest", event.alias("event"))
        .groupBy("digest")
        .agg(F.array_sort(F.collect_list("event")).alias("events"))
        .select("digest", _folded(F.col("events"), retention).alias("last"))
        .where("last.kind is not null")
        .select("digest", "last.*")
    )
    expired = (F.col("kind") == DELETE) & (F.lit(watermark).cast(_POSITION) - F.col("position") >= retention)
    kept = folded.where(~expired).select("digest", "ordinal", "row")
    return events.join(kept, ["digest", "ordinal", "row"], "left_semi")


def _folded(events: Column, retention: int) -> Column:
    """State and event have the same fields; `kind` is null (nothing), UPSERT (a live row) or DELETE (a tombstone)."""
    nothing = F.expr(
        "named_struct('kind', cast(null as int), 'ordinal', cast(null as bigint), 'row', cast(null as bigint), "
        "'position', cast(null as decimal(20,0)), 'rank', cast(null as int))"
    )

    def step(state: Column, event: Column) -> Column:
        expired = (state["kind"] == DELETE) & (event["position"] - state["position"] > retention)
        wins = state["kind"].isNull() | expired | (event["rank"] >= state["rank"])
        taken = F.struct(
            event["op"].cast("int").alias("kind"),
            event["ordinal"].alias("ordinal"),
            event["row"].alias("row"),
            event["position"].alias("position"),
            event["rank"].cast("int").alias("rank"),
        )
        forgotten = F.when(expired, nothing).otherwise(state)
        return F.when(event["op"] == KEYLESS, nothing).when(wins, taken).otherwise(forgotten)

    return F.aggregate(events, nothing, step)


def _greatest_first(column: Column, descending: bool) -> Column:
    """Null always loses, whatever the direction."""
    return column.asc_nulls_last() if descending else column.desc_nulls_last()


def _smallest_first(column: Column, descending: bool) -> Column:
    return column.desc_nulls_first() if descending else column.asc_nulls_first()


def is_keyless(sort_columns: Sequence[Column]) -> Column:
    """Whether a delete clears its key whatever has been: it has no sort key."""
    result = F.lit(True)
    for column in sort_columns:
        result = result & column.isNull()
    return result

"""The demo's producer: Spark writes CDC batches of an orders table, the same ones for the same seed.

    batch 0   order 17  day 2024-01-01  c  placed                 two deltas in each partition at once:
    batch 1   order 17  day 2024-01-01  u  shipped                deletes, then upserts
    batch 2   order 17  day 2024-01-01  d

Order ids come back from batch to batch, so that about half of a batch's rows supersede older ones; one row in ten is a
delete. Everything is a hash of (seed, batch, row): neither the number of cores nor Spark's scheduling shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from deltacompact.base.errors import InputError
from deltacompact.catalog.delta_streams import open_catalog

PARTITION_KEY = "order_day"
PRIMARY_KEYS = ("order_id",)
SORT_KEYS = ("updated_at",)
FILES_PER_BATCH = 2
_STATUSES = ("placed", "paid", "packed", "shipped", "returned")
_FIRST_DAY = "2024-01-01"
_ONE_DELETE_IN = 10
_MICROS_PER_BATCH = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Produced:
    """What was written, over all partitions."""

    batches: int
    upserts: int
    deletes: int
    partitions: int

    def __str__(self) -> str:
        return (
            f"{self.batches} batches of {self.upserts:,} upserts and {self.deletes:,} deletes "
            f"into {self.partitions} partitions"
        )


def produce(
    spark: SparkSession,
    catalog_uri: str,
    table_id: str,
    partitions: int = 2,
    deltas: int = 6,
    rows_per_delta: int = 10_000,
    seed: int = 0,
) -> Produced:
    """Create the table and write `deltas` batches of `rows_per_delta` rows through the data source.

    The same seed again writes nothing: its tokens are known. Raises ConflictError where the table is another one.
    """
    for name, value in (("partitions", partitions), ("deltas", deltas), ("rows_per_delta", rows_per_delta)):
        if value < 1:
            raise InputError(f"{name} is {value}, it must be at least 1")
    catalog = open_catalog(catalog_uri)
    catalog.create_table(table_id, [PARTITION_KEY], PRIMARY_KEYS, SORT_KEYS)
    deletes = 0
    for batch in range(deltas):
        rows = orders(spark, partitions, batch, rows_per_delta, seed)
        deletes += rows.where("op = 'd'").count()
        (
            rows.repartition(FILES_PER_BATCH, PARTITION_KEY, "order_id")
            .write.format("deltacompact")
            .mode("append")
            .options(catalog=catalog.uri, table=table_id, operation_column="op")
            .options(token=f"orders-{seed}", token_sequence=batch)
            .save()
        )
    return Produced(deltas, deltas * rows_per_delta - deletes, deletes, partitions)


def orders(spark: SparkSession, partitions: int, batch: int, rows: int, seed: int) -> DataFrame:
    """One batch: about half of the ids were in the batch before, and some are in it twice."""

    def hashed(what: str, below: int) -> Column:
        return F.pmod(F.xxhash64(F.lit(seed), F.lit(batch), F.lit(what), F.col("id")), F.lit(below)).cast("long")

    order_id = F.lit(batch * rows // 2).cast("long") + hashed("order", rows)
    day = F.date_add(F.to_date(F.lit(_FIRST_DAY)), F.pmod(order_id, F.lit(partitions)).cast("int"))
    micros = F.unix_micros(F.to_timestamp(F.lit(_FIRST_DAY + " 00:00:00Z")))
    updated_at = F.timestamp_micros(micros + F.lit(batch * _MICROS_PER_BATCH) + F.col("id"))
    status = F.element_at(F.array(*map(F.lit, _STATUSES)), (hashed("status", len(_STATUSES)) + 1).cast("int"))
    items = F.transform(
        F.sequence(F.lit(1).cast("long"), hashed("items", 4) + 1),
        lambda n: F.struct(
            F.concat(F.lit("sku-"), F.pmod(order_id * 7 + n, F.lit(997)).cast("string")).alias("sku"),
            n.cast("int").alias("quantity"),
        ),
    )
    is_delete = hashed("operation", _ONE_DELETE_IN) == 0
    return spark.range(rows).select(
        order_id.alias("order_id"),
        day.cast("string").alias(PARTITION_KEY),
        F.when(is_delete, "d").when(hashed("new", 2) == 0, "u").otherwise("c").alias("op"),
        status.alias("status"),
        (hashed("amount", 1_000_000) / 100).cast("decimal(12,2)").alias("amount"),
        updated_at.alias("updated_at"),
        items.alias("items"),
        F.create_map(
            F.lit("channel"), F.element_at(F.array(F.lit("web"), F.lit("shop")), (hashed("c", 2) + 1).cast("int"))
        ).alias("attributes"),
    )

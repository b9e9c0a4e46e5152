"""Random histories in which Spark writes and compacts, Iceberg's Java writers delete by key, and we compact in between.

Some of it, Spark's own maintenance too, happens between the plan and the commit of a compaction of ours. After every
step Spark's own reader sees the rows of an oracle. A seed is a history; each is printed where it fails.
"""

from __future__ import annotations

import random

import pytest
from every_mode import KEEP_ALL_ROWS, chosen
from iceberg_lake import SETTINGS, sorted_rows

import deltacompact
from deltacompact.iceberg_modes.modes import mode_named

T = "ns.t"
STEPS = 16
MAINTENANCE = ("rewrite_data_files", "rewrite_position_delete_files", "rewrite_manifests")
ORDERS = (
    {},
    {"strategy": "sort", "sort-order": "id DESC, name"},
    {"strategy": "sort", "sort-order": "zorder(id, name)"},
    {"cluster-by": "name,id"},
)
"""What a rewrite does with the order of rows: its options."""
WRITES = ("insert", "delete", "update", "delete_by_key")


class History:
    """A table and what its rows should be: id -> rows, since equal ids may be there several times."""

    def __init__(self, lake, spark_lake, seed: int, version: int) -> None:
        self.random = random.Random(seed)
        self.lake, self.spark = lake, spark_lake
        self.rows: list[dict] = []
        self.said: list[str] = []
        modes = ", ".join(f"'write.{verb}.mode'='merge-on-read'" for verb in ("delete", "update", "merge"))
        spark_lake.sql(
            f"create table {{{T}}} (id bigint, name string, day int) using iceberg partitioned by (day) "
            f"tblproperties ('format-version'='{version}', {modes})"
        )
        self.partitioned = True

    def insert(self) -> None:
        new = [(self.random.randrange(6), f"n{self.random.randrange(3)}", self.random.randrange(2)) for _ in range(4)]
        values = ", ".join(f"({number}, '{name}', {day})" for number, name, day in new)
        self.spark.sql(f"insert into {{{T}}} values {values}")
        self.rows += [{"id": number, "name": name, "day": day} for number, name, day in new]

    def delete(self) -> None:
        number = self.random.randrange(6)
        self.spark.sql(f"delete from {{{T}}} where id = {number} and name <> 'n0'")
        self.rows = [row for row in self.rows if row["id"] != number or row["name"] == "n0"]

    def update(self) -> None:
        number = self.random.randrange(6)
        self.spark.sql(f"update {{{T}}} set name = 'new' where id = {number}")
        self.rows = [row | {"name": "new"} if row["id"] == number else row for row in self.rows]

    def delete_by_key(self) -> None:
        """Java's equality delete: of one day, because it is bound to the partition."""
        numbers, day = [self.random.randrange(6), self.random.randrange(6)], self.random.randrange(2)
        self.spark.delete_by_key(T, {"id": numbers}, f"day={day}")
        self.rows = [row for row in self.rows if row["day"] != day or row["id"] not in numbers]

    def spark_maintains(self) -> None:
        procedure = self.random.choice(MAINTENANCE)
        options = "" if procedure == "rewrite_manifests" else ", options => map('rewrite-all', 'true')"
        self.said[-1] += f" {procedure}"
        self.spark.sql(f"call {self.spark.name}.system.{procedure}(table => '{T}'{options})")

    def order(self) -> dict:
        order = self.random.choice(ORDERS)
        self.said[-1] += f" {order}"
        return order

    def compact(self) -> None:
        mode = self.random.choice(KEEP_ALL_ROWS)
        self.said[-1] += f" {mode}"
        options = chosen(mode) | (self.order() if mode == "rewrite" else {})
        catalog = deltacompact.open_catalog(self.lake.catalog)
        deltacompact.compact(T, delta_catalog_client=catalog, mode=mode, options=options, settings=SETTINGS)

    def compact_while_others_commit(self) -> None:
        pending = self.random.sample([*WRITES, "spark_maintains"], 2)
        mode = self.random.choice(KEEP_ALL_ROWS)
        self.said[-1] += f" {mode}"

        def others() -> None:
            while pending:
                self.do(pending.pop())

        options = chosen(mode) | (self.order() if mode == "rewrite" else {})
        self.lake.prepared(T, mode=mode_named(mode), before_commit=others, **options).run()
        others()  # where there was nothing to commit

    def do(self, kind: str) -> None:
        self.said.append(kind)
        getattr(self, kind)()

    def run(self) -> None:
        kinds = [*WRITES, "insert", "compact", "compact_while_others_commit", "spark_maintains"]
        for _ in range(STEPS):
            self.do(self.random.choice(kinds) if self.rows else "insert")
            assert self.spark.rows(T) == sorted_rows(list(self.rows)), self.said


@pytest.mark.parametrize(("seed", "version"), [(1, 2), (2, 3)])
def test_spark_reads_the_rows_of_the_oracle_after_every_step(lake, spark_lake, seed, version) -> None:
    history = History(lake, spark_lake, seed, version)
    history.insert()
    history.run()

"""Random histories in which Spark writes and compacts, Iceberg's Java writers delete by key, and we compact in between.

After every step Spark's own reader sees the rows of an oracle. A seed is a history; each is printed where it fails.
"""

from __future__ import annotations

import random

import pytest
from iceberg_lake import SETTINGS, sorted_rows

import deltacompact

T = "ns.t"
STEPS = 16
MODES = ("rewrite", "convert")


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

    def spark_rewrites(self) -> None:
        self.spark.sql(
            f"call {self.spark.name}.system.rewrite_data_files(table => '{T}', options => map('rewrite-all', 'true'))"
        )

    def compact(self) -> None:
        mode = self.random.choice(MODES)
        self.said[-1] += f" {mode}"
        options = {"rewrite-all": True} if mode == "rewrite" else {}
        catalog = deltacompact.open_catalog(self.lake.catalog)
        deltacompact.compact(T, delta_catalog_client=catalog, mode=mode, options=options, settings=SETTINGS)

    def run(self) -> None:
        for _ in range(STEPS):
            kinds = ["insert", "insert", "delete", "update", "delete_by_key", "compact", "compact", "spark_rewrites"]
            kind = self.random.choice(kinds) if self.rows else "insert"
            self.said.append(kind)
            getattr(self, kind)()
            assert self.spark.rows(T) == sorted_rows(list(self.rows)), self.said


@pytest.mark.parametrize(("seed", "version"), [(1, 2), (2, 3)])
def test_spark_reads_the_rows_of_the_oracle_after_every_step(lake, spark_lake, seed, version) -> None:
    history = History(lake, spark_lake, seed, version)
    history.insert()
    history.run()

"""Random interleavings of writers and compactions, on two branches, with evolving schemas and partition specs.

After every commit a naive reader's view of both branches equals that of an oracle, which knows rows and no files.
Others commit while a compaction is between its plan and its commit.

DELTACOMPACT_EXAMPLES=nightly pytest tests/iceberg_modes/test_iceberg_fuzz.py        looks longer
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from budgets import examples
from every_mode import KEEP_ALL_ROWS, chosen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from iceberg_lake import CERTIFYING, Lake
from naive_reader import NaiveReader, Row
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from deltacompact.base.errors import ConflictError
from deltacompact.iceberg.marks.finding import Sizes
from deltacompact.iceberg_modes.modes import mode_named

T = "ns.t"
BRANCHES = ("main", "audit")
TINY = Sizes(keys_per_bucket=1, delete_files_per_task=1, delete_rows_per_task=1, rows_at_once=2)
ID, DAY, NAME = 1, 2, 3


@dataclass
class LiveRow:
    """A row of the oracle. Deletes by key are bound to the partition in which it was written."""

    values: Row
    scope: tuple[int, tuple[Any, ...]]


@dataclass
class World:
    """The table, the oracle, and what both have been told to do."""

    lake: Lake
    rows: dict[str, list[LiveRow]] = field(default_factory=lambda: {branch: [] for branch in BRANCHES})
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = NaiveReader(self.lake, T)
        columns = [
            NestedField(ID, "id", IntegerType()),
            NestedField(DAY, "day", IntegerType()),
            NestedField(NAME, "name", StringType()),
        ]
        self.lake.create(T, Schema(*columns))
        self.append("main", [(0, 0), (1, 0), (2, 1)])
        table = self.table
        table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
        self.rows["audit"] = list(self.rows["main"])

    @property
    def table(self):
        return self.lake.catalog.load_table(T)

    # What writers do

    def append(self, branch: str, keys: list[tuple[int | None, int]]) -> None:
        table = self.table
        names = {column.field_id: column.name for column in table.schema().fields}
        for day in sorted({day for _, day in keys}):  # one file a call, so that deletes by position can name it
            rows = [self._row(number, day, names) for number, of_day in keys if of_day == day]
            named = [{names[number]: value for number, value in row.items()} for row in rows]
            self.table.append(pa.Table.from_pylist(named, schema=table.schema().as_arrow()), branch=branch)
            for row in rows:
                self.rows[branch].append(LiveRow(row, (table.spec().spec_id, self._partition(table, row))))
        self.said.append(f"{branch}: append {keys}")

    def _row(self, number: int | None, day: int, names: dict[int, str]) -> Row:
        values = {ID: number, DAY: day, NAME: f"n{len(self.said) % 3}"}
        return {column: values.get(column, len(self.said)) for column in names}

    def _partition(self, table: Any, row: Row) -> tuple[Any, ...]:
        schema = table.schema()
        parts = table.spec().fields
        return tuple(
            part.transform.transform(schema.find_field(part.source_id).field_type)(row[part.source_id])
            for part in parts
        )

    def delete_by_key(self, branch: str, number: int | None, day: int, also_name: bool) -> None:
        table = self.table
        names = {column.field_id: column.name for column in table.schema().fields}
        keys: Row = {ID: number} | ({NAME: "n1"} if also_name and NAME in names else {})
        partition = self._partition(table, {ID: number, DAY: day})
        self.lake.delete_by_key(T, {names[name]: [value] for name, value in keys.items()}, partition, branch=branch)
        scope = (table.spec().spec_id, partition)
        everywhere = not table.spec().fields

        def dies(row: LiveRow) -> bool:
            same = all(row.values.get(name) == value for name, value in keys.items())
            return same and (everywhere or row.scope == scope)

        self.rows[branch] = [row for row in self.rows[branch] if not dies(row)]
        self.said.append(f"{branch}: delete {keys} in {scope}")

    def delete_by_position(self, branch: str, which: int) -> None:
        """Delete one live row, as an engine does that has read the branch."""
        live = self.reader.live(self.table, branch)
        if not live:
            return
        (path, position), values = live[which % len(live)]
        self.lake.delete_by_position(T, {path: [position]}, branch=branch)
        alike = [row for row in self.rows[branch] if row.values == self._of_then(values, row)]
        gone = max(alike, key=lambda row: row.values == values)  # an older row lacks a column
        self.rows[branch].remove(gone)
        self.said.append(f"{branch}: delete row {position} of {path[-12:]}: {values}")

    def _of_then(self, values: Row, row: LiveRow) -> Row:
        """A stored row with the columns that the oracle's row had when it was written: rewrites add and drop some."""
        return {number: values.get(number, value) for number, value in row.values.items()}

    def evolve(self, change: str) -> None:
        schema = self.table.schema()
        names = {column.name for column in schema.fields}
        with self.table.update_schema() as update:
            if change == "add":
                update.add_column(f"extra{len(self.said)}", LongType())
            elif change == "rename":
                update.rename_column(
                    schema.find_field(NAME).name if NAME in self._ids() else "id", f"c{len(self.said)}"
                )
            elif change == "widen":
                update.update_column(schema.find_field(ID).name, LongType())
            elif change == "drop" and (extra := next((name for name in names if name.startswith("extra")), None)):
                update.delete_column(extra)
        self.said.append(f"schema: {change}")

    def _ids(self) -> set[int]:
        return {column.field_id for column in self.table.schema().fields}

    def partition_by(self, how: str) -> None:
        with self.table.update_spec() as update:
            present = {part.name for part in self.table.spec().fields}
            if how == "day" and "by_day" not in present:
                update.add_field("day", IdentityTransform(), "by_day")
            elif how == "id" and "by_id" not in present:
                update.add_field(self.table.schema().find_field(ID).name, IdentityTransform(), "by_id")
            elif how == "nothing":
                for name in present:
                    update.remove_field(name)
        self.said.append(f"partitions: {how}")

    # What we do

    def compact(self, branch: str, mode: str, tiny: bool, meanwhile: list[tuple[Any, ...]]) -> None:
        before = len(self.rows[branch])
        self.said.append(f"{branch}: {mode}, meanwhile {meanwhile}")
        pending = list(meanwhile)

        def others() -> None:
            while pending:
                self.do(pending.pop(0))

        own: dict[str, Any] = {"before_commit": others} | ({"sizes": TINY} if tiny else {})
        with contextlib.suppress(ConflictError):
            options = chosen(mode)
            if mode == "rewrite" and len(self.said) % 2:
                columns = {column.field_id: column.name for column in self.table.schema().fields}
                options["cluster-by"] = f"{columns[DAY]}*2,{columns[ID]}"
            self.lake.prepared(T, branch, CERTIFYING, mode_named(mode), **options, **own).run()
        others()
        self.said.append(f"{branch}: {before} rows before")

    def do(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        getattr(self, name)(*arguments)

    def check(self) -> None:
        columns = sorted(self._ids())
        for branch in BRANCHES:
            expected = [{number: row.values.get(number) for number in columns} for row in self.rows[branch]]
            found = self.reader.rows(branch)
            assert _sorted(found) == _sorted(expected), "\n".join([branch, *self.said])
            self.lake.check_fingerprint(T, branch)


def _sorted(rows: list[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


numbers = st.sampled_from([0, 0, 1, 1, 2, None])
days = st.integers(0, 1)
branches = st.sampled_from(["main", "main", "main", "audit"])
appends = st.tuples(st.just("append"), branches, st.lists(st.tuples(numbers, days), min_size=1, max_size=4))
deletes = st.one_of(
    st.tuples(st.just("delete_by_key"), branches, numbers, days, st.booleans()),
    st.tuples(st.just("delete_by_position"), branches, st.integers(0, 20)),
)
changes = st.one_of(
    st.tuples(st.just("evolve"), st.sampled_from(["add", "rename", "widen", "drop"])),
    st.tuples(st.just("partition_by"), st.sampled_from(["day", "id", "nothing"])),
)


def compactions(meanwhile: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just("compact"), branches, st.sampled_from(KEEP_ALL_ROWS), st.booleans(), meanwhile)


interrupted = compactions(
    st.lists(st.one_of(deletes, deletes, appends, compactions(st.just([]))), min_size=1, max_size=3)
)
histories = st.lists(st.one_of(appends, deletes, changes, interrupted, interrupted), min_size=3, max_size=12)


@pytest.mark.slow
@pytest.mark.timeout(max(600, 10 * examples(25)))
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories)
def test_whatever_happens_meanwhile_readers_see_the_rows_of_the_oracle(tmp_path_factory, history) -> None:
    world = World(Lake(tmp_path_factory.mktemp("lake")))
    for step in history:
        world.do(step)
        world.check()
    for branch in BRANCHES:
        world.compact(branch, "rewrite", False, [])
        world.check()

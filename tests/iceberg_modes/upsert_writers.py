"""Writers beside an upsert, as a state machine."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from iceberg_lake import Lake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from upsert_oracle import TINY, left, newest, prepared, refusing_lost_order, visible

from deltacompact.base.errors import ConflictError
from deltacompact.catalog.iceberg import IcebergCatalog

T = "ns.t"


def table(folder, version=2, partitioned=False):
    lake = Lake(Path(folder), f"lake{uuid.uuid4().hex[:8]}")
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "day_part")) if partitioned else PartitionSpec()
    columns = [("id", LongType()), ("name", StringType()), ("day", IntegerType()), ("op", StringType())]
    schema = Schema(*(NestedField(number, name, type_) for number, (name, type_) in enumerate(columns, 1)))
    lake.create(T, schema, version=version, partition_spec=spec)
    return lake


def rows(*events):
    return [dict(zip(("id", "name", "day", "op"), event, strict=False)) for event in events]


def view(lake):
    return newest(visible(lake), ["id"], is_delete=lambda values: values["op"] == "D")


IDS = st.integers(0, 2)
EVENTS = st.lists(
    st.tuples(IDS, st.sampled_from("xyz"), st.integers(1, 2), st.sampled_from([None, None, "D"])),
    min_size=1,
    max_size=5,
)
BY_KEY = st.tuples(st.just("delete_by_key"), st.sampled_from(["id", "name", "name"]), IDS, st.integers(1, 2))
ANYTIME = [st.tuples(st.just("append"), EVENTS), BY_KEY, *(st.tuples(st.just(name)) for name in ("rewrite", "convert"))]
VERSION_2 = [
    st.tuples(st.just("delete_by_position"), st.integers(0, 99), st.booleans()),
    st.tuples(st.just("roll_back"), st.integers(1, 3)),
]
"""What the writers of our tests can do in version 2 alone."""


class Writers(RuleBasedStateMachine):
    """Writers change a table before an upsert, and between its work and its commit. It never changes the view."""

    version = 2

    @initialize(partitioned=st.booleans())
    def begin(self, partitioned):
        self.folder = tempfile.TemporaryDirectory()
        self.partitioned = partitioned and self.version == 2
        self.lake = table(self.folder.name, self.version, self.partitioned)
        self.append(rows((0, "x", 1, None), (1, "x", 1, None)))
        self.append(rows((1, "y", 2, None), (2, "y", 1, "D")))

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()

    # Writers

    def append(self, events):
        self.lake.append(T, events if isinstance(events[0], dict) else rows(*events))

    def delete_by_key(self, column, number, day):
        keys = {column: [number if column == "id" else "xyz"[number]]}
        self.lake.delete_by_key(T, keys, (day,) if self.partitioned else ())

    def delete_by_position(self, number, is_newest):
        """A row that others see, or one that keeps others from being the newest of their key."""
        seen = sorted(visible(self.lake), key=lambda row: (row.sequence, row.path, row.position))
        if is_newest:
            seen = list({row.values["id"]: row for row in seen}.values())
        if seen:
            row = seen[number % len(seen)]
            self.lake.delete_by_position(T, {row.path: [row.position]})

    def rewrite(self):
        self.lake.rewrite(T, rewrite_all=True)

    def roll_back(self, back):
        state = self.lake.state(T)
        snapshot = state.snapshot
        for _ in range(back):
            snapshot = state.metadata.snapshots.get(snapshot.parent_id, snapshot)
        self.lake.catalog.load_table(T).manage_snapshots().set_current_snapshot(snapshot.snapshot_id).commit()

    def convert(self):
        IcebergCatalog(self.lake.catalog).convert(T, settings=TINY)

    def carry_out(self, writers):
        for name, *values in writers:
            getattr(self, name)(*values)

    # Steps

    @rule(data=st.data())
    def write(self, data):
        self.carry_out([data.draw(self.any_writer())])

    @rule(data=st.data())
    def upsert(self, data):
        writers = data.draw(st.lists(self.any_writer(), max_size=2))
        views = []

        def meanwhile():
            if not views:
                self.carry_out(writers)
            views.append(view(self.lake))

        chosen = {"key_columns": "id", "operation_column": "op", "trust_row_order": True}
        doing = prepared(self.lake, settings=replace(TINY, certify=True), before_commit=meanwhile, **chosen)
        with contextlib.suppress(ConflictError), refusing_lost_order():
            result = doing.run()
            assert views or result.nothing_to_do
        self.lake.check_fingerprint(T)
        if views:
            assert view(self.lake) == views[0]
        if views and not writers:
            assert left(visible(self.lake), ["id"]) == views[0]

    def any_writer(self):
        return st.one_of(*ANYTIME, *(VERSION_2 if self.version == 2 else []))


class WritersOfVersion3(Writers):
    version = 3

"""The key index: with it and without it, convert and upsert find the same rows; with it, old data files stay closed."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from upsert_oracle import TINY

from deltacompact.catalog.iceberg.convert.convert import Convert
from deltacompact.catalog.iceberg.convert.options import convert_options
from deltacompact.catalog.iceberg.deletes.finding import Asked, Finder, Sizes
from deltacompact.catalog.iceberg.deletes.matching import DeleteIndex, Deletes
from deltacompact.catalog.iceberg.key_index.indexes import KeyIndexes
from deltacompact.catalog.iceberg.running import Tasks
from deltacompact.catalog.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.catalog.iceberg.upsert.comparing import Comparison
from deltacompact.catalog.iceberg.upsert.options import upsert_options
from deltacompact.catalog.iceberg.upsert.plan import plan_of_files
from deltacompact.executors.local import LocalExecutor
from deltacompact.executors.choose import executor_for
from deltacompact.index.live_bitmaps import read_masks

T = "ns.t"
SMALL = Sizes(keys_per_bucket=2, rows_at_once=4, block_entries=2)
"""Ten rows take several buckets, blocks and tasks."""
IDS = pa.schema([("id", pa.int32()), ("name", pa.string()), ("updated", pa.int32()), ("op", pa.string())])
UPSERTS = {"key-columns": "id", "sort-columns": "name,updated desc", "operation-column": "op", "scope": "table"}


class Twice:
    """Finds dead rows of a branch as it is, with an index and without one."""

    def __init__(self, lake, branch="main"):
        self.table = IcebergTable.load(lake.catalog, T)
        self.state = lake.state(T, branch)
        self.store = lake.store(T)
        self.executor = executor_for(TINY, 1, 1)
        self.tasks = Tasks(self.store, self.executor)
        self.notes = []

    def indexes(self, folder):
        return KeyIndexes.of(self.tasks, self.state.data, TINY.limits, folder, self.notes, SMALL.block_entries)

    def masks(self, paths):
        return {path: {number: mask.tolist() for number, mask in read_masks(self.store, path).items()} for path in paths}

    def by_key(self, has_index):
        """Which rows equality deletes hit, as convert asks."""
        folder = f"work-{uuid.uuid4().hex}/"
        index = DeleteIndex(self.state)
        asked = [Asked(entry, Deletes(index.applying_to(entry).equality)) for entry in self.state.data]
        asked = [one for one in asked if one.deletes.equality]
        indexes = self.indexes(folder) if has_index else None
        finder = Finder(self.tasks, self.state.metadata, TINY.limits, SMALL, folder, indexes)
        closed = frozenset(one.entry.file.path for one in asked)
        found = finder.find(asked, closed)
        masks = self.masks(set(found.masks_of.values()))
        return {
            one.entry.file.path: (of.live_rows, of.dead_by_key, masks[found.masks_of[of.ordinal]][of.ordinal])
            for one, of in zip(asked, found.files, strict=True)
        }

    def superseded(self, has_index, **options):
        """Which rows an upsert marks."""
        folder = f"work-{uuid.uuid4().hex}/"
        chosen = upsert_options(UPSERTS | {"trust-row-order": "true"} | options)
        plan = plan_of_files(self.state, chosen, frozenset(entry.file.path for entry in self.state.data))
        if not plan.inputs:
            return {}
        indexes = self.indexes(folder) if has_index else None
        metadata = self.state.metadata
        comparison = Comparison(self.store, metadata, plan, self.executor, TINY.limits, SMALL, folder, indexes)
        found = comparison.compared()
        masks = self.masks({of.masks_path for of in found} - {None})
        return {
            one.entry.file.path: (replace(of, masks_path=None), of.masks_path and masks[of.masks_path][of.ordinal])
            for one, of in zip(plan.inputs, found, strict=True)
        }

    def agree(self, **options):
        assert self.by_key(True) == self.by_key(False)
        assert self.superseded(True, **options) == self.superseded(False, **options)


def convert(lake, branch="main", **options):
    chosen = convert_options({"key-index": "true"} | {name.replace("_", "-"): value for name, value in options.items()})
    return Convert(IcebergTable.load(lake.catalog, T), branch, chosen, TINY, SMALL).run()


def index_files(lake):
    return sorted(Path(lake.folder).rglob("metadata/deltacompact-index/*/*"))


def row(chance, number):
    return {
        "id": chance.randrange(8),
        "name": chance.choice([None, "", "a", "b" * chance.randrange(12)]),
        "updated": chance.randrange(3),
        "op": chance.choice(["I", "U", "D", None]),
    }


class History:
    """A table that all kinds of writers change, and our own modes too."""

    def __init__(self, lake, seed):
        self.lake, self.chance = lake, random.Random(seed)
        self.version = self.chance.choice([2, 3])
        lake.create(T, IDS, version=self.version)
        self.names = {"id": "id", "name": "name", "updated": "updated", "op": "op"}
        self.heads = []
        self.append()

    @property
    def branch(self):
        branches = [name for name, ref in self.lake.state(T).metadata.refs.items() if ref.kind == "branch"]
        return self.chance.choice(branches)

    def rows(self):
        return [row(self.chance, number) for number in range(self.chance.randint(1, 6))]

    def append(self):
        rows = [{self.names[name]: value for name, value in one.items() if name in self.names} for one in self.rows()]
        self.lake.append(T, rows, self.branch)

    def delete_by_key(self):
        columns = [name for name in self.chance.choice([["id"], ["id", "name"], ["name"]]) if name in self.names]
        rows = self.rows()
        keys = {self.names[name]: [one[name] for one in rows] for name in columns}
        if keys:
            self.lake.delete_by_key(T, keys, branch=self.branch)

    def delete_by_position(self):
        branch = self.branch
        data = self.lake.state(T, branch).data
        if data and self.version == 2:
            file = self.chance.choice(data).file
            self.lake.delete_by_position(T, {file.path: [self.chance.randrange(file.rows)]}, branch)

    def rewrite(self):
        self.lake.rewrite(T, self.branch, rewrite_all=True, remove_dangling_deletes=True)

    def convert(self):
        convert(self.lake, self.branch)

    def branch_off(self):
        table = self.lake.catalog.load_table(T)
        if table.current_snapshot() and "audit" not in table.metadata.refs:
            table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()

    def roll_back(self):
        table = self.lake.catalog.load_table(T)
        snapshots = [snapshot.snapshot_id for snapshot in table.snapshots()]
        table.manage_snapshots().set_current_snapshot(self.chance.choice(snapshots)).commit()

    def evolve(self):
        if self.version == 3:
            return
        table = self.lake.catalog.load_table(T)
        kind = self.chance.choice(["promote", "rename", "again"])
        with table.update_schema(allow_incompatible_changes=True) as change:
            if kind == "promote":
                from pyiceberg.types import LongType

                change.update_column(self.names["updated"], field_type=LongType())
                change.update_column(self.names["id"], field_type=LongType())
            elif kind == "rename":
                change.rename_column(self.names["name"], "renamed" if self.names["name"] == "name" else "name")
                self.names["name"] = "renamed" if self.names["name"] == "name" else "name"
            else:
                change.delete_column("op")
        if kind == "again":
            from pyiceberg.types import StringType

            with self.lake.catalog.load_table(T).update_schema() as change:
                change.add_column("op", StringType())

    STEPS = [append, append, append, delete_by_key, delete_by_key, delete_by_position, rewrite, convert] + [
        branch_off,
        roll_back,
        evolve,
    ]

    def step(self):
        self.chance.choice(self.STEPS)(self)


@pytest.mark.parametrize("seed", range(4))
def test_the_same_rows_are_found_with_an_index_and_without(lake, seed):
    history = History(lake, seed)
    for _ in range(8):
        history.step()
        for branch in [name for name, ref in lake.state(T).metadata.refs.items() if ref.kind == "branch"]:
            twice = Twice(lake, branch)
            twice.agree(**{"sort-columns": f"{history.names['name']},updated desc"})
            assert not [note for note in twice.notes if "instead" in note], twice.notes

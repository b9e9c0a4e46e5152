"""Histories in which others commit at each attempt, at a place that the test chooses: before the catalog looks at the
table, or between its checks and the swap.

    attempt 1    others append          lost at the swap
    attempt 2    others delete a row    lost before the checks
    attempt 3    others delete by key   lost at the swap
    attempt 4    others copy a file     lost before the checks
    attempt 5    lands
"""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from iceberg_lake import SETTINGS
from pyiceberg.catalog.sql import SqlCatalog
from version_3 import delete_by_vector, live_rows

from deltacompact.base.events import GroupsCommitted
from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg.table.metadata import MAIN
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.driver import ModeRun
from deltacompact.iceberg_modes.modes import known_mode

T = "ns.t"
ID = pa.schema([("id", pa.int64())])
MODES = {
    "convert": ("convert", {}),
    "rewrite": ("rewrite", {"rewrite-all": "true", "delete-ratio-threshold": "1"}),
    "sort": (
        "rewrite",
        {"rewrite-all": "true", "delete-ratio-threshold": "1", "strategy": "sort", "sort-order": "id DESC"},
    ),
}
KINDS = ("append", "delete", "key", "copy")


class Beaten(SqlCatalog):
    """Others are faster at each commit while `acts` has something: (what they do, whether at the swap)."""

    acts = iter(())
    now = None

    def commit_table(self, table, requirements, updates):
        self.now = next(self.acts, None)
        if self.now and not self.now[1]:
            self.now[0]()
        return super().commit_table(table, requirements, updates)

    def _update_and_stage_table(self, *given):
        staged = super()._update_and_stage_table(*given)
        if self.now and self.now[1]:
            self.now[0]()
        return staged


class Others:
    """Other writers of a table. `living`: the ids that it must have."""

    def __init__(self, lake):
        self.lake, self.living, self.fresh = lake, set(), itertools.count(100)

    def append(self, number):
        self.lake.append(T, [{"id": number}])
        self.living = self.ids()

    def ids(self):
        return {row.values["id"] for row in live_rows(self.lake, T)}

    def act(self, kind):
        living = set(self.living)
        if kind == "append":
            number = next(self.fresh)
            self.lake.append(T, [{"id": number}])
            self.living = living | {number}
            return
        row = min((row for row in live_rows(self.lake, T) if row.values["id"] < 100), key=lambda row: row.values["id"])
        number = row.values["id"]
        if kind == "key":
            self.lake.delete_by_key(T, {"id": [number]})
        elif kind == "copy":
            self.copy_without(row)
        elif self.lake.state(T).metadata.format_version >= 3:
            delete_by_vector(self.lake, T, {row.path: [row.position]})
        else:
            self.lake.delete_by_position(T, {row.path: [row.position]})
        self.living = living - {number}

    def copy_without(self, gone):
        table = IcebergTable.load(self.lake.catalog, T)
        kept = [row.values for row in live_rows(self.lake, T) if row.path == gone.path and row != gone]
        data = pa.Table.from_pylist(kept, schema=table.metadata.schema)
        copy = self.lake._file(table, data, Content.DATA, (), None, ())
        deletes = self.lake.state(T).deletes
        vectors = {entry.file.key for entry in deletes if entry.file.referenced_data_file == gone.path}
        self.lake.commit(table, [copy], MAIN, "overwrite", {gone.path, *vectors})


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", [2, 3])
def test_no_row_is_lost_or_comes_back_if_others_are_faster_four_times_whatever_they_do(lake, version, mode, first):
    others = Others(lake)
    lake.create(T, ID)
    for start in (0, 10, 20):
        lake.append(T, [{"id": start + number} for number in range(6)])
    lake.delete_by_key(T, {"id": [0, 10, 20]})
    if version == 3:
        lake.upgrade(T)
    others.append(90)  # the first commit after an upgrade gives all rows ids
    catalog = Beaten(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    kinds = [KINDS[(first + number) % len(KINDS)] for number in range(len(KINDS))]
    catalog.acts = iter([(lambda kind=kind: others.act(kind), number % 2 == 0) for number, kind in enumerate(kinds)])
    events = []
    name, options = MODES[mode]
    table = IcebergTable.load(catalog, T)
    chosen = known_mode(name).read_options(options, table.metadata.properties)
    result = ModeRun(table, MAIN, chosen, SETTINGS, emit=events.append, mode=known_mode(name)).run()
    (committed, *_) = (event for event in events if isinstance(event, GroupsCommitted))
    assert (committed.attempts, result.redone) == (len(KINDS) + 1, 0)
    assert others.ids() == others.living

"""The key index: with it and without it, convert and upsert find the same rows; with it, old data files stay closed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import time
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from counting_store import CountingStore
from iceberg_lake import Lake
from plan_json import plan_to_json
from upsert_oracle import newest as newest_rows
from upsert_oracle import visible
from upsert_oracle import visible_ids as ids

from deltacompact.base.errors import InputError
from deltacompact.base.limits import Limits
from deltacompact.base.settings import Settings
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.executors.choose import executor_for
from deltacompact.iceberg.deletes.matching import DeleteIndex, Deletes, FileScanTask
from deltacompact.iceberg.key_index.document import KIND, IndexUnusableError, index_of
from deltacompact.iceberg.key_index.indexes import PROPERTY, KeyIndexes, runs_to_merge
from deltacompact.iceberg.key_index.storing import newest
from deltacompact.iceberg.key_index.terms import terms_of
from deltacompact.iceberg.marks import finding
from deltacompact.iceberg.marks.finding import Finder, Sizes
from deltacompact.iceberg.running import Tasks
from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.convert import plan_document as convert_document
from deltacompact.iceberg_modes.convert.options import convert_options
from deltacompact.iceberg_modes.driver import ModeRun
from deltacompact.iceberg_modes.maintain.maintain import Maintain
from deltacompact.iceberg_modes.modes import CONVERT, UPSERT
from deltacompact.iceberg_modes.upsert import plan as plans
from deltacompact.iceberg_modes.upsert import plan_document as upsert_document
from deltacompact.iceberg_modes.upsert.comparing import KeyComparison
from deltacompact.iceberg_modes.upsert.options import upsert_options
from deltacompact.iceberg_modes.upsert.plan import plan_of_files
from deltacompact.index.live_bitmaps import read_masks
from deltacompact.storage.checksummed import checksum
from deltacompact.storage.local import LocalStore

T = "ns.t"
SMALL = Sizes(keys_per_bucket=2, rows_at_once=4, block_entries=2)
TINY = Settings(executor="local", local_threads=1, limits=Limits(task_rows_min=6, small_rows_per_bucket=12))
"""Twenty rows take several buckets, blocks and tasks."""
IDS = pa.schema([("id", pa.int32()), ("name", pa.string()), ("updated", pa.int32()), ("op", pa.string())])
DAYS = pa.schema([*IDS, ("day", pa.int32())])
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
        return {
            path: {number: mask.tolist() for number, mask in read_masks(self.store, path).items()} for path in paths
        }

    def by_key(self, has_index):
        """Which rows equality deletes hit, as convert asks."""
        folder = f"work-{uuid.uuid4().hex}/"
        index = DeleteIndex(self.state)
        asked = [FileScanTask(entry, Deletes(index.applying_to(entry).equality)) for entry in self.state.data]
        asked = [task for task in asked if task.deletes.equality]
        indexes = self.indexes(folder) if has_index else None
        finder = Finder(self.tasks, self.state.metadata, TINY.limits, SMALL, folder, indexes)
        closed = frozenset(task.entry.file.path for task in asked)
        found = finder.find(asked, closed)
        masks = self.masks(set(found.masks_of.values()))
        return {
            task.entry.file.path: (of.live_rows, of.dead_by_key, masks[found.masks_of[of.ordinal]][of.ordinal])
            for task, of in zip(asked, found.files, strict=True)
        }

    def superseded(self, has_index, **options):
        """Which rows an upsert marks."""
        folder = f"work-{uuid.uuid4().hex}/"
        chosen = upsert_options(UPSERTS | options)
        with patch.object(plans, "_refuse_lost_order"):  # both ways must agree, whichever row wins
            plan = plan_of_files(self.state, chosen, frozenset(entry.file.path for entry in self.state.data))
        if not plan.inputs:
            return {}
        indexes = self.indexes(folder) if has_index else None
        metadata = self.state.metadata
        comparison = KeyComparison(self.store, metadata, plan, self.executor, TINY.limits, SMALL, folder, indexes)
        found = comparison.compared()
        masks = self.masks({of.masks_path for of in found} - {None})
        return {
            task.entry.file.path: (replace(of, masks_path=None), of.masks_path and masks[of.masks_path][of.ordinal])
            for task, of in zip(plan.inputs, found, strict=True)
        }

    def agree(self, **options):
        assert self.by_key(True) == self.by_key(False)
        assert self.superseded(True, **options) == self.superseded(False, **options)


def convert(lake, branch="main", settings=TINY, sizes=SMALL, **options):
    chosen = convert_options({"key-index": "true"} | {name.replace("_", "-"): value for name, value in options.items()})
    return ModeRun(IcebergTable.load(lake.catalog, T), branch, chosen, settings, sizes, mode=CONVERT).run()


def upsert(lake, settings=TINY, sizes=SMALL, **options):
    named = {name.replace("_", "-"): value for name, value in options.items()}
    chosen = upsert_options({"key-columns": "id", "key-index": "true"} | named)
    return ModeRun(IcebergTable.load(lake.catalog, T), "main", chosen, settings, sizes, mode=UPSERT).run()


def index_files(lake):
    return sorted(Path(lake.folder).rglob("metadata/deltacompact-index/*/*"))


def table_of(lake, *appends, version=2, **properties):
    lake.create(T, IDS, version=version, properties=properties)
    for numbers in appends:
        lake.append(T, [{"id": number, "name": f"n{number}", "updated": 1, "op": "I"} for number in numbers])


def row(chance, number):
    return {
        "id": chance.randrange(8),
        "name": chance.choice([None, "", "a", "b" * chance.randrange(12)]),
        "updated": chance.randrange(3),
        "op": chance.choice(["I", "U", "D", None]),
        "day": chance.choice([1, 2]),
    }


class History:
    """A table that all kinds of writers change, and our own modes too."""

    def __init__(self, lake, seed):
        self.lake, self.chance = lake, random.Random(seed)
        self.version = self.chance.choice([2, 3])
        self.is_partitioned = self.version == 2 and self.chance.random() < 0.7
        lake.create(T, DAYS, version=self.version)
        if self.is_partitioned:
            with lake.catalog.load_table(T).update_spec() as change:
                change.add_identity("day")
        self.names = {name: name for name in DAYS.names}
        self.append()

    @property
    def branch(self):
        branches = [name for name, ref in self.lake.state(T).metadata.refs.items() if ref.kind == "branch"]
        return self.chance.choice(branches or ["main"])

    def rows(self):
        return [row(self.chance, number) for number in range(self.chance.randint(1, 6))]

    def append(self):
        rows = [{self.names[name]: value for name, value in row.items() if name in self.names} for row in self.rows()]
        self.lake.append(T, rows, self.branch)

    def delete_by_key(self):
        columns = self.chance.choice([["id"], ["id", "name"], ["name"]])
        rows = self.rows()
        keys = {self.names[name]: [row[name] for row in rows] for name in columns}
        everywhere = not self.is_partitioned or self.chance.random() < 0.3
        partition, spec_id = ((), 0) if everywhere else ((self.chance.choice([1, 2]),), 1)
        self.lake.delete_by_key(T, keys, partition, spec_id, self.branch)

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

    def upsert(self):
        """What it has compared is settled: later ones look only for the keys of new rows there."""
        if "op" in self.names and "main" in self.lake.state(T).metadata.refs:
            with contextlib.suppress(InputError):  # nobody knows which rows are newer
                upsert(self.lake, **self.options)

    @property
    def options(self):
        return {"sort_columns": f"{self.names['name']},updated desc", "operation_column": "op", "scope": "table"}

    def branch_off(self):
        refs = self.refs()
        if "main" in refs:
            self.lake.edit_metadata(T, {"refs": refs | {"audit": refs["main"]}})

    def roll_back(self):
        """Main is an older snapshot again."""
        if refs := self.refs():
            refs["main"]["snapshot-id"] = self.chance.choice(list(self.lake.state(T).metadata.snapshots))
            self.lake.edit_metadata(T, {"refs": refs, "current-snapshot-id": refs["main"]["snapshot-id"]})

    def refs(self):
        refs = self.lake.state(T).metadata.refs
        return {name: {"snapshot-id": ref.snapshot_id, "type": ref.kind} for name, ref in refs.items()}

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

    STEPS = (
        *(append, append, append, delete_by_key, delete_by_key, delete_by_position),
        *(rewrite, convert, upsert, upsert, branch_off, roll_back, evolve),
    )

    def step(self):
        self.chance.choice(self.STEPS)(self)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_same_rows_are_found_with_an_index_and_without(lake, seed):
    history = History(lake, seed)
    for _ in range(7):
        history.step()
        for branch in [name for name, ref in lake.state(T).metadata.refs.items() if ref.kind == "branch"]:
            twice = Twice(lake, branch)
            twice.agree(**{"sort-columns": history.options["sort_columns"]})
            assert not [note for note in twice.notes if "instead" in note], twice.notes


class Weighed(CountingStore):
    """A store behind a network that also tells the bytes that were read of each object."""

    def __init__(self, inner, read):
        super().__init__(inner)
        self.read = read

    def get(self, path):
        data = super().get(path)
        self.read[path] += len(data)
        return data

    def fetch(self, path, start, length, etag=None):
        answer = super().fetch(path, start, length, etag)
        self.read[path] += answer.result().data.size
        return answer

    def alike(self, store):
        return Weighed(store, self.read)


@pytest.fixture
def read(monkeypatch):
    """The bytes that are read of each object, by its name. Data files are what ends in .parquet in the folder data."""
    read = Counter()
    store = IcebergTable.store
    monkeypatch.setattr(IcebergTable, "store", property(lambda table: Weighed(store.fget(table), read)))
    return read


def data_read(lake, read):
    names = {Path(entry.file.path).name for entry in lake.state(T).data}
    return {name: size for name, size in read.items() if name in names}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.slow
def test_the_next_convert_opens_no_old_data_file(lake, read, version):
    table_of(lake, range(10), range(10, 20), version=version)
    lake.delete_by_key(T, {"id": [3, 12]})
    assert convert(lake).notes == ["key index: 2 of 2 data files were read"]
    assert len(data_read(lake, read)) == 2
    lake.append(T, [{"id": 3, "name": "new", "updated": 2, "op": "I"}])
    lake.delete_by_key(T, {"id": [3, 4, 13]})
    read.clear()
    assert convert(lake).notes == ["key index: 1 of 3 data files was read"]
    new = max(lake.state(T).data, key=lambda entry: entry.sequence)
    assert set(data_read(lake, read)) == {Path(new.file.path).name}
    assert ids(lake) == sorted({*range(20)} - {3, 4, 12, 13})


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_the_next_upsert_opens_no_old_data_file(lake, read, version):
    table_of(lake, range(10), range(5, 15), version=version)
    assert upsert(lake, sort_columns="name").rows_superseded == 5
    lake.delete_by_key(T, {"name": ["n1"]})
    lake.append(T, [{"id": 7, "name": "a much longer name", "updated": 2, "op": "I"}])
    expected = newest_rows(visible(lake), ["id"])
    read.clear()
    result = upsert(lake, sort_columns="name")
    assert result.rows_superseded == 1
    new = max(lake.state(T).data, key=lambda entry: entry.sequence)
    old = {Path(entry.file.path).name for entry in lake.state(T).data} - {Path(new.file.path).name}
    assert "key index: 1 of 3 data files was read" in result.notes
    assert [row.values for row in sorted(visible(lake), key=lambda row: str(row.values["id"]))] == expected
    # the equality delete is by another column: the one file that may have its key was read once, for another index
    assert "key index: 1 of 1 data file was read" in result.notes
    lake.append(T, [{"id": 8, "name": "x", "updated": 2, "op": "I"}])
    read.clear()
    upsert(lake, sort_columns="name")
    assert not old & set(data_read(lake, read))


def test_a_few_deletes_read_a_few_blocks(lake, read):
    """The table has 60,000 rows, three of which are deleted: a block is 64 KiB of an index of 1.9 MB."""
    sizes, settings = Sizes(block_entries=2048), Settings(executor="local", local_threads=1)
    lake.create(T, pa.schema([("id", pa.int64())]))
    for start in range(0, 60_000, 20_000):
        lake.append(T, pa.table({"id": range(start, start + 20_000)}))
    lake.delete_by_key(T, {"id": [1, 59_999]})
    convert(lake, settings=settings, sizes=sizes)
    lake.delete_by_key(T, {"id": [7, 20_001, 40_001]})
    read.clear()
    assert convert(lake, settings=settings, sizes=sizes).rows_marked == 3
    assert not data_read(lake, read)
    index_bytes = sum(path.stat().st_size for path in index_files(lake) if path.suffix == ".arrow")
    from_index = sum(size for name, size in read.items() if "run-" in name)
    assert index_bytes > 60_000 * 32
    assert 0 < from_index < 4 * 2048 * 32 + 64_000


@pytest.mark.slow
def test_a_few_new_rows_read_a_few_blocks_of_what_is_settled(lake, read):
    """The next upsert looks for the keys of new rows in an index of 1.9 MB: old ones, a new one, and that one again."""
    sizes, settings = Sizes(block_entries=2048), Settings(executor="local", local_threads=1)
    lake.create(T, pa.schema([("id", pa.int64())]))
    for start in range(0, 60_000, 20_000):
        lake.append(T, pa.table({"id": range(start, start + 20_000)}))
    lake.append(T, pa.table({"id": [5, 59_999]}))
    assert upsert(lake, settings, sizes).rows_superseded == 2
    lake.append(T, pa.table({"id": [7, 20_001, 70_000, 70_000, 5]}))
    read.clear()
    assert upsert(lake, settings, sizes).rows_superseded == 4
    assert len(data_read(lake, read)) == 1
    from_index = sum(size for name, size in read.items() if "run-" in name)
    assert 0 < from_index < 6 * 2048 * 32 + 64_000
    assert sorted(row.values["id"] for row in visible(lake)) == [*range(60_000), 70_000]


# What becomes of the index


def test_runs_are_merged_when_newer_ones_have_grown_to_their_size():
    for rounds in (8, 64, 100):
        runs, written = [], 0
        for _ in range(rounds):
            merged = runs_to_merge([(size, size) for size in runs], 1)
            assert merged == list(range(len(runs)))[len(runs) - len(merged) :]
            size = 1 + sum(runs[number] for number in merged)
            runs = [*runs[: len(runs) - len(merged)], size]
            written += size
        assert sum(runs) == rounds
        assert len(runs) <= rounds.bit_length()
        assert written <= rounds * (1 + rounds.bit_length() / 2)


def test_a_run_of_which_most_is_gone_is_merged_and_a_fresh_one_is_not():
    assert runs_to_merge([(100, 40)], 1) == [0]
    assert runs_to_merge([(100, 50)], 1) == []
    assert runs_to_merge([(100, 0), (50, 50)], 1) == [0]


def test_what_a_rewrite_replaced_leaves_the_index(lake):
    table_of(lake, range(10), range(10, 20))
    lake.delete_by_key(T, {"id": [3, 12]})
    convert(lake)
    before = index_files(lake)
    assert len([path for path in before if path.suffix == ".arrow"]) > 1, "a bucket is what a task can hold"
    lake.rewrite(T, rewrite_all=True)
    assert index_files(lake) == before, "it is no journal of a dead session"
    for number in (4, 5, 6):
        lake.delete_by_key(T, {"id": [number]})
        convert(lake)
    newest_document = json.loads([path for path in index_files(lake) if path.suffix == ".json"][-1].read_bytes())
    runs = newest_document["index"]["runs"]
    live = {entry.file.path for entry in lake.state(T).data}
    assert {path for run in runs for path, *_ in run["data"]} == live


@pytest.mark.slow
def test_old_generations_and_their_files_go(lake):
    table_of(lake, [0])
    for number in range(1, 8):
        lake.append(T, [{"id": number, "name": "n", "updated": 1, "op": "I"}])
        lake.delete_by_key(T, {"id": [number - 1]})
        convert(lake)
    files = index_files(lake)
    by_folder = {path.parent for path in files}
    for folder in by_folder:
        documents = sorted(folder.glob("*.json"))
        assert len(documents) <= 2
        named = {
            name
            for path in documents
            for run in json.loads(path.read_bytes())["index"]["runs"]
            for name, *_ in run["files"]
        }
        assert {path.name for path in folder.glob("*.arrow")} == named


def age(paths, days):
    for path in paths:
        os.utime(path, (time.time() - days * 86_400,) * 2)


def remove_orphans(lake):
    work = Maintain(IcebergTable.load(lake.catalog, T), "main", {}, False, int(time.time() * 1000))
    return work.run(remove_orphans=True).remove_orphans


def test_maintain_keeps_an_index_that_is_used_and_removes_what_nobody_names(lake):
    table_of(lake, range(10))
    lake.delete_by_key(T, {"id": [3]})
    convert(lake)
    kept = index_files(lake)
    lost = kept[0].parent / f"run-{uuid.uuid4().hex}-0.arrow"
    lost.write_bytes(b"a session lost a race")
    age([*kept, lost], days=20)
    assert remove_orphans(lake).files == 1
    assert index_files(lake) == kept
    lake.delete_by_key(T, {"id": [4]})
    assert convert(lake).rows_marked == 1  # it is used, and says so
    age([path for path in index_files(lake) if path.suffix == ".arrow"], days=40)
    remove_orphans(lake)
    assert {path.name for path in kept} <= {path.name for path in index_files(lake)}
    age(index_files(lake), days=31)
    remove_orphans(lake)
    assert index_files(lake) == []
    lake.delete_by_key(T, {"id": [5]})
    assert convert(lake).rows_marked == 1
    assert ids(lake) == [0, 1, 2, 6, 7, 8, 9]


# Kills, races, foreign and damaged objects


class Killed(BaseException):
    """The process ends here."""


def at_step(monkeypatch, step, act):
    """Call `act` before the n-th time that something of an index is written or deleted. Returns the count."""
    done = [0]

    def around(method):
        def call(store, paths, *inputs):
            of_index = [paths] if isinstance(paths, str) else paths
            if any("deltacompact-index" in path for path in of_index):
                done[0] += 1
                if done[0] == step:
                    act()
            return method(store, paths, *inputs)

        return call

    for name in ("put", "put_if_absent", "writer", "delete"):
        monkeypatch.setattr(LocalStore, name, around(getattr(LocalStore, name)))
    return done


def die():
    raise Killed


@pytest.mark.slow
def test_a_kill_at_every_operation_of_index_writing(lake, monkeypatch):
    """The index is as before or as after, and right either way."""
    table_of(lake, range(0, 6), range(3, 9))
    for step in itertools.count(1):
        lake.append(T, [{"id": step % 9, "name": "again", "updated": 1, "op": "I"}])
        lake.delete_by_key(T, {"name": [f"n{step % 9}"]})
        with monkeypatch.context() as patching:
            at_step(patching, step, die)
            try:
                Twice(lake).superseded(True)
                was_killed = False
            except Killed:
                was_killed = True
        twice = Twice(lake)
        assert twice.superseded(True) == twice.superseded(False)
        assert not [note for note in twice.notes if "instead" in note]
        if not was_killed:
            break
    assert step > 5


@pytest.mark.slow
def test_sessions_that_write_at_the_same_time_leave_a_right_index(lake, monkeypatch):
    """Another session does all its work before an operation of ours. Whoever is second loses time and nothing else."""
    table_of(lake, range(0, 6), range(3, 9))
    for step in itertools.count(1):
        lake.append(T, [{"id": step % 9, "name": "again", "updated": 1, "op": "I"}])
        lake.delete_by_key(T, {"name": [f"n{step % 9}"]})
        expected = Twice(lake).superseded(False)
        ran: list = []
        with monkeypatch.context() as patching:
            at_step(patching, step, lambda ran=ran: ran.append(Twice(lake).superseded(True)))
            assert Twice(lake).superseded(True) == expected
        assert Twice(lake).superseded(True) == expected
        assert all(found == expected for found in ran)
        if not ran:
            break
    assert step > 2


def test_a_session_whose_files_others_deleted_reads_the_data_files(lake, monkeypatch):
    table_of(lake, range(10))
    lake.delete_by_key(T, {"id": [3]})
    expected = Twice(lake).by_key(False)
    look_up, calls = finding.look_up, []

    def late(store, task):
        if not calls:
            calls.append(task)
            for path in index_files(lake):
                path.unlink()
        return look_up(store, task)

    monkeypatch.setattr(finding, "look_up", late)
    twice = Twice(lake)
    assert twice.by_key(True) == expected
    assert calls
    assert [note for note in twice.notes if "does not exist" in note and note.endswith("read instead")]


def flipped(path):
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 3, len(data), 7):
        data[place] ^= 0x55
    path.write_bytes(bytes(data))


DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"garbage" * 100),
    "flipped": flipped,
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", [".json", ".arrow"])
@pytest.mark.slow
def test_damage_is_told_and_the_data_files_are_read(lake, damage, suffix):
    table_of(lake, range(0, 6), range(3, 9))
    lake.delete_by_key(T, {"id": [1, 4]})
    expected = Twice(lake).superseded(True)
    for path in index_files(lake):
        if path.suffix == suffix:
            DAMAGES[damage](path)
    twice = Twice(lake)
    assert twice.superseded(True) == expected
    told = [note for note in twice.notes if note.endswith("read instead")]
    assert "".join(told).count("\n") == 0
    assert told or (damage, suffix) == ("gone", ".json")
    again = Twice(lake)
    assert again.superseded(True) == expected
    assert not [note for note in again.notes if "instead" in note], "the index was made anew"


def test_an_index_of_a_newer_version_is_left_alone(lake):
    table_of(lake, range(6))
    lake.delete_by_key(T, {"id": [1, 4]})
    Twice(lake).by_key(True)
    path = index_files(lake)[0]
    newer = json.dumps({"format": 2, "kind": KIND, "runs": "of another shape"})
    path.write_text(newer)
    before = index_files(lake)
    twice = Twice(lake)
    assert twice.by_key(True) == twice.by_key(False)
    assert twice.notes == [
        f"key index: {path.relative_to(Path(lake.folder, 'warehouse/ns/t'))} has format 2, this deltacompact knows up "
        "to 1; the data files are read instead"
    ]
    assert index_files(lake) == before
    assert path.read_text() == newer
    age(before, days=20)
    remove_orphans(lake)
    assert index_files(lake) == before


def test_an_index_of_another_table_is_not_used(lake, tmp_path):
    """Somebody copied a table's folder with its index: paths, sizes and terms agree, the rows do not."""
    table_of(lake, range(6))
    lake.delete_by_key(T, {"id": [1, 4]})
    Twice(lake).by_key(True)
    other = Lake(tmp_path / "other", "other")
    table_of(other, range(6))
    other.delete_by_key(T, {"id": [1, 4]})
    for path in index_files(lake):
        target = Path(other.folder, "warehouse", path.relative_to(Path(lake.folder, "warehouse")))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    twice = Twice(other)
    assert twice.by_key(True) == twice.by_key(False)
    assert "belongs to another table" in twice.notes[0]


@pytest.mark.parametrize("version", [2, 3])
def test_the_sequence_number_of_a_file_is_asked_of_the_table(lake, version):
    """A file that comes back with another number, as add_files may do, needs no other entries."""
    table_of(lake, range(4), range(2, 6), version=version)
    former = Twice(lake)
    expected = former.superseded(True)
    twice = Twice(lake)
    numbers = [entry.sequence_number for entry in twice.state.data]
    moved = [
        replace(entry, sequence_number=number)
        for entry, number in zip(twice.state.data, reversed(numbers), strict=True)
    ]
    twice.state = replace(twice.state, data=tuple(moved))
    found = twice.superseded(True)
    assert twice.notes == ["key index: 0 of 2 data files were read"]
    assert found == twice.superseded(False)
    assert {path for path, (of, _) in found.items() if of.dead} != {
        path for path, (of, _) in expected.items() if of.dead
    }


def test_a_file_that_the_table_has_twice_is_read(lake):
    table_of(lake, range(4), [9])
    lake.delete_by_key(T, {"id": [1]})
    twice = Twice(lake)
    first = next(entry for entry in twice.state.data if entry.file.rows == 4)
    twice.state = replace(twice.state, data=(first, *twice.state.data))
    folder = f"work-{uuid.uuid4().hex}/"
    asked = [FileScanTask(first, DeleteIndex(twice.state).applying_to(first))] * 2
    indexes = twice.indexes(folder)
    finder = Finder(twice.tasks, twice.state.metadata, TINY.limits, SMALL, folder, indexes)
    assert [of.dead_by_key for of in finder.find(asked, frozenset({first.file.path})).files] == [1, 1]
    assert twice.notes == [f"key index: the table has {first.file.path} twice; the data files are read instead"]


def test_an_empty_data_file_is_in_the_index(lake):
    table_of(lake, range(4))
    loaded = IcebergTable.load(lake.catalog, T)
    nothing = loaded.metadata.schema.empty_table()
    lake.commit(loaded, [lake._file(loaded, nothing, Content.DATA, (), None, ())], operation="append")
    state = lake.state(T)
    twice = Twice(lake)
    twice.state = replace(state, data=tuple(entry for entry in state.data if not entry.file.rows))
    assert twice.superseded(True) == twice.superseded(False)
    Twice(lake).agree()


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run.update(data=[[["a list"], 1, 2, "x"]]),
        lambda run: run.update(data="nothing"),
        lambda run: run.update(encoding=7),
        lambda run: run["encoding"].update(sort_types="00ff"),
        lambda run: run["files"][0].__setitem__(0, "../../../data/a.parquet"),
        lambda run: run["files"][0].__setitem__(1, "many"),
        lambda run: run["files"][0].__setitem__(3, [-1]),
        lambda run: run["files"][0].__setitem__(4, [1 << 70]),
        lambda run: run["data"].append(run["data"][0]),
    ],
)
@pytest.mark.slow
def test_a_document_that_says_nonsense_is_damaged(lake, change):
    """Its checksum is right: somebody meant it."""
    table_of(lake, range(4))
    lake.delete_by_key(T, {"id": [1]})
    index = covered(lake)
    document = json.loads(index.to_bytes())
    change(document["index"]["runs"][0])
    document["sha256"] = checksum(document["index"])
    with pytest.raises(IndexUnusableError, match=f"{index.path} is damaged: "):
        index_of(json.dumps(document).encode(), index.terms, index.generation, 0.0)


def covered(lake):
    """The index of equality deletes by id, as a conversion leaves it."""
    Twice(lake).by_key(True)
    terms = terms_of(lake.state(T).metadata, "equality deletes", [1])
    return newest(lake.store(T), terms)


def test_a_file_that_was_put_again_under_its_name_is_another_one(lake):
    table_of(lake, range(6))
    lake.delete_by_key(T, {"id": [1, 4]})
    twice = Twice(lake)
    twice.by_key(True)
    file = twice.state.data[0].file
    changed = tuple(
        replace(entry, file=replace(entry.file, file_bytes=file.file_bytes + 1)) for entry in twice.state.data
    )
    twice.state = replace(twice.state, data=changed)
    twice.by_key(True)
    assert twice.notes == ["key index: 1 of 1 data file was read"] * 2


# Keys and settings


def test_a_row_without_a_key_is_refused_only_if_it_lives(lake):
    table_of(lake, range(4))
    lake.append(T, [{"id": None, "name": "nobody", "updated": 1, "op": "I"}])
    with pytest.raises(InputError, match=r"parquet: key column 'id' is null in 1 row"):
        upsert(lake)
    lake.delete_by_key(T, {"name": ["nobody"]})
    lake.append(T, [{"id": 2, "name": "again", "updated": 1, "op": "I"}])
    assert upsert(lake).rows_superseded == 1
    assert ids(lake) == [0, 1, 2, 3]


def test_keys_of_two_partitions_do_not_meet(lake):
    """scope=partition: the same key in two partitions is two keys."""
    lake.create(T, IDS)
    with lake.catalog.load_table(T).update_spec() as change:
        change.add_identity("updated")
    for day in (1, 2, 1):
        lake.append(T, [{"id": 7, "name": str(day), "updated": day, "op": "I"}])
    Twice(lake).agree(scope="partition")
    Twice(lake).agree(scope="table")
    assert upsert(lake, scope="partition").rows_superseded == 1
    assert ids(lake) == [7, 7]


def test_a_delete_of_one_partition_hits_no_key_of_another(lake):
    lake.create(T, DAYS)
    with lake.catalog.load_table(T).update_spec() as change:
        change.add_identity("day")
    lake.append(T, [{"id": id_, "name": "n", "updated": 1, "op": "I", "day": day} for id_ in (7, 8) for day in (1, 2)])
    lake.delete_by_key(T, {"id": [7]}, (1,), 1)
    lake.delete_by_key(T, {"id": [8]}, (2,), 1)
    Twice(lake).agree()
    assert convert(lake).rows_marked == 2
    assert sorted((row.values["id"], row.values["day"]) for row in visible(lake)) == [(7, 2), (8, 1)]


def test_rule_16_a_delete_hits_no_row_of_its_own_commit(lake):
    """Another delete of the same key set makes the index be asked about that row."""
    table_of(lake, [5, 6])
    loaded = IcebergTable.load(lake.catalog, T)
    fields = loaded.metadata.schema
    rows = [{"id": number, "name": "new", "updated": 1, "op": "I"} for number in (5, 7)]  # 6 lies between its bounds
    data = pa.Table.from_pylist(rows, schema=fields)
    keys = pa.Table.from_pydict({"id": [5]}, schema=pa.schema([fields.field("id")]))
    files = [
        lake._file(loaded, data, Content.DATA, (), None, ()),
        lake._file(loaded, keys, Content.EQUALITY_DELETES, (), None, (1,)),
    ]
    lake.commit(loaded, files, operation="overwrite")
    lake.delete_by_key(T, {"id": [6]})
    Twice(lake).agree()
    assert convert(lake).rows_marked == 2
    assert [row.values["name"] for row in visible(lake)] == ["new", "new"]


def test_ray_finds_the_same_rows(lake, ray_cluster):
    settings = Settings(executor="ray", ray_address=ray_cluster, limits=Limits(task_rows_min=4))
    table_of(lake, range(10), range(5, 15))
    lake.delete_by_key(T, {"id": [3, 12]})
    assert convert(lake, settings=settings).rows_marked == 2
    for path in index_files(lake):
        if path.suffix == ".arrow":
            flipped(path)
    lake.delete_by_key(T, {"id": [4]})
    result = convert(lake, settings=settings)
    assert (result.executor, result.rows_marked, len(result.notes)) == ("ray", 1, 3)
    assert "damaged" in result.notes[1] or "cannot be read" in result.notes[1]
    assert upsert(lake, settings=settings, sort_columns="name", operation_column="op").rows_superseded == 5
    assert ids(lake) == [number for number in range(15) if number not in (3, 4, 12)]


def test_partial_progress_and_partitions_share_an_index(lake):
    table_of(lake, *([number, number + 1] for number in range(0, 12, 2)))
    lake.delete_by_key(T, {"id": list(range(0, 12, 3))})
    options = {"partial_progress.enabled": "true", "partial_progress.max_commits": "3"}
    result = convert(lake, **options)
    assert len(result.snapshots) == 3
    assert ids(lake) == [number for number in range(12) if number % 3]
    lake.delete_by_key(T, {"id": [1, 2]})
    assert convert(lake).notes == ["key index: 0 of 2 data files were read"]


def test_the_property_turns_it_on_and_the_option_decides(lake):
    table_of(lake, range(4), **{PROPERTY: "true"})
    catalog = IcebergCatalog(lake.catalog)
    for number, options, has_notes in ((0, {}, True), (1, {"key-index": "false"}, False)):
        lake.delete_by_key(T, {"id": [number]})
        result = catalog.convert(T, options, settings=TINY)
        assert bool(result.notes) is has_notes
    lake.append(T, [{"id": 2, "name": "again", "updated": 1, "op": "I"}])
    assert catalog.upsert(T, {"key-columns": "id"}, settings=TINY).notes
    for options, mode in (({"key-index": "maybe"}, catalog.convert), ({"key-index": "1"}, catalog.upsert)):
        with pytest.raises(InputError, match=r"option key-index: '.*' is neither true nor false"):
            mode(T, options)
    asked = {"key-index": "true"}
    plan = catalog.plan_upsert(T, asked | {"key-columns": "id"})
    assert upsert_document.plan_from_json(plan_to_json(plan), lake.state(T)).options.key_index is True
    plan = catalog.plan_conversion(T, asked)
    assert convert_document.plan_from_json(plan_to_json(plan), lake.state(T)).options.key_index is True
    with lake.catalog.load_table(T).transaction() as change:
        change.set_properties({PROPERTY: "on"})
    lake.delete_by_key(T, {"id": [3]})
    with pytest.raises(InputError, match=rf"table property {PROPERTY}: 'on' is neither true nor false"):
        catalog.convert(T)

"""Tables of thousands of partitions on S3: their files are many and small, so what counts is how often a task waits.

one file after the other    footer, rows, footer, rows, …        2 round trips a file: 3,000 files take 3 minutes
opened ahead                16 files are under way               1 round trip for 16 files: 6 seconds
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future

import pyarrow as pa
import pytest
from iceberg_lake import Lake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField
from stores import ranged
from upsert_oracle import visible_ids as ids

import deltacompact
from deltacompact import Settings
from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.storage.fetched_file import open_fetched

T = "ns.t"
PARTITIONS = 64
LOCAL = Settings(executor="local", local_threads=1)
IDS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "part", IntegerType(), required=True),
    identifier_field_ids=[1],
)


class Answer(Future):
    """An answer that is under way. Whoever waits for one waits for all that have been asked for: one round trip."""

    def __init__(self, far, act):
        super().__init__()
        self.far, self.act = far, act
        far.under_way.append(self)

    def result(self, timeout=None):
        if not self.done():
            self.far.round_trips += 1
            waiting, self.far.under_way = self.far.under_way, []
            for answer in waiting:
                answer.arrive()
        return super().result(timeout)

    def arrive(self):
        if self.set_running_or_notify_cancel():
            try:
                self.set_result(self.act())
            except Exception as error:
                self.set_exception(error)


class Far:
    """What all stores behind the network have in common: answers under way, and the fetches of each file."""

    def __init__(self):
        self.under_way, self.round_trips, self.fetches = [], 0, Counter()


class FarStore:
    """A store whose files are fetched range by range. Its other requests are not counted."""

    def __init__(self, inner, far):
        self.inner, self.far = inner, far

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def alike(self, store):
        return FarStore(store, self.far)

    def open(self, path):
        return open_fetched(self, path)

    def fetch(self, path, start, length, etag=None):
        self.far.fetches[path.rpartition("/")[2]] += 1
        return Answer(self.far, lambda: ranged(self.inner.get(path), start, length))


@pytest.fixture
def far(monkeypatch):
    far, store = Far(), IcebergTable.store
    monkeypatch.setattr(IcebergTable, "store", property(lambda table: FarStore(store.fget(table), far)))
    return far


def rows(numbers):
    return [{"id": number, "part": number % PARTITIONS} for number in numbers]


def table_of(lake: Lake, version: int = 2) -> None:
    """A file with two rows in each partition."""
    lake.create(T, IDS, partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part")))
    lake.append(T, rows(range(2 * PARTITIONS)))
    if version == 3:
        lake.upgrade(T, **{"last-sequence-number": 1})


def deleted_in_each(lake: Lake, file_of) -> None:
    """One delete file for each data file, in one snapshot."""
    table, state = IcebergTable.load(lake.catalog, T), lake.state(T)
    lake.commit(table, [file_of(lake, table, state, entry.file) for entry in state.data])


def by_position(lake, table, state, file):
    return lake._position_file(table, state, {file.path: [0]})


def by_key(row):
    def file_of(lake, table, state, file):
        schema = pa.schema([table.metadata.schema.field("id")])
        keys = pa.table({"id": [file.partition[0] + PARTITIONS * row]}, schema=schema)
        return lake._file(table, keys, Content.EQUALITY_DELETES, file.partition, file.spec_id, (1,))

    return file_of


def catalog(lake):
    return deltacompact.open_catalog(lake.catalog)


def names(entries):
    return {entry.file.path.rpartition("/")[2] for entry in entries}


@pytest.mark.slow
def test_an_upsert_of_many_partitions_opens_its_files_ahead(lake, far):
    table_of(lake)
    deleted_in_each(lake, by_position)
    lake.append(T, rows(range(PARTITIONS)))
    catalog(lake).upsert(T, {"key-columns": "id"}, settings=LOCAL)
    assert far.round_trips < PARTITIONS / 2  # 4 for each partition, one file after the other
    assert ids(lake) == list(range(2 * PARTITIONS))


@pytest.mark.slow
def test_a_rewrite_opens_each_position_delete_once(lake, far):
    table_of(lake)
    deleted_in_each(lake, by_position)
    deletes = names(lake.state(T).deletes)
    catalog(lake).rewrite(T, {"delete-file-threshold": "1"}, settings=LOCAL)
    assert [far.fetches[name] for name in deletes] == [1] * PARTITIONS
    assert ids(lake) == list(range(PARTITIONS, 2 * PARTITIONS))


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("has_index", ["true", "false"])
def test_a_conversion_of_many_partitions_opens_its_files_ahead(lake, far, version, has_index):
    table_of(lake, version)
    for row in range(2):  # the second one has the deletes by position, or the vectors, of the first
        deleted_in_each(lake, by_key(row))
        deletes = names(entry for entry in lake.state(T).deletes if entry.file.content is Content.EQUALITY_DELETES)
        far.round_trips = 0
        catalog(lake).convert(T, {"key-index": has_index}, settings=LOCAL)
        assert far.round_trips < PARTITIONS * 3 / 2  # one for each partition's keys: these are tasks side by side
        assert [far.fetches[name] for name in deletes] == [1] * PARTITIONS
    assert ids(lake) == []

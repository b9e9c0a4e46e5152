"""Rows of many partitions: split by their columns, one commit a partition, and nothing twice after a crash."""

from __future__ import annotations

import datetime
from itertools import pairwise

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Oracle
from stores import InterceptedStore
from tables import problems

from deltacompact import DeltaStreamCatalog, InputError, SchemaError, open_catalog
from deltacompact.base.errors import DeltaCompactError, Interrupted, StoreError
from deltacompact.base.model import Partition
from deltacompact.change_events.partitions import divided
from deltacompact.storage.memory import MemoryStore


class Killed(BaseException):
    """The process ends here."""


class DyingStore(MemoryStore):
    """The process dies at the n-th write: before it, or after it without hearing of it."""

    writes_left = 10**9
    lands = False

    def put_if_absent(self, path, data):
        return self._counted(lambda: super(DyingStore, self).put_if_absent(path, data))

    def put(self, path, data):
        return self._counted(lambda: super(DyingStore, self).put(path, data))

    def _counted(self, write):
        self.writes_left -= 1
        if self.writes_left == 0:
            if self.lands:
                write()
            raise Killed
        if self.writes_left < 0:
            raise Killed  # a dead process cleans nothing up
        return write()

    def delete(self, paths):
        if self.writes_left <= 0:
            raise Killed
        super().delete(paths)


FRAME = pa.table(
    {
        "op": ["I", "I", "D", "I", "D", "U", "I"],
        "day": [1, 2, 1, 3, 2, 3, 1],
        "id": [1, 1, 1, 1, 7, 1, 2],
        "v": list("abcdefg"),
    }
)
HELD = [(1, 2, "g"), (2, 1, "b"), (3, 1, "f")]


def rows_of(catalog):
    return sorted((row["day"], row["id"], row["v"]) for row in catalog.read("t").to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("lands", [False, True])
def test_a_call_that_is_repeated_after_a_crash_at_any_write_neither_loses_nor_doubles(lands):
    for at in range(1, 40):
        store = DyingStore()
        DeltaStreamCatalog(store).create_table("t", ["day"], ["id"])
        store.writes_left, store.lands = at, lands
        catalog = DeltaStreamCatalog(store)
        try:
            appended = catalog.append("t", FRAME, operation_column="op", token=("cdc", 1))
            died = False
        except Killed:
            died = True
            store.writes_left = 10**9
            catalog = DeltaStreamCatalog(store)
            before = [str(partition) for partition in catalog.partitions("t")]
            appended = catalog.append("t", FRAME, operation_column="op", token=("cdc", 1))
            assert [str(partition) for partition, _ in appended.commits] == ["day=1", "day=2", "day=3"]
            assert set(before) <= {"day=1", "day=2", "day=3"}
        assert rows_of(catalog) == HELD
        for partition in catalog.partitions("t"):
            assert len(catalog.state("t", partition).commits) == 1
        assert not catalog.append("t", FRAME, operation_column="op", token=("cdc", 1)).committed
        assert not problems(catalog, "t")
        if not died:
            break
    else:
        pytest.fail("it never ran to its end")
    assert at > 6


@settings(max_examples=examples(60))
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "day": st.dates(datetime.date(2026, 1, 1), datetime.date(2026, 1, 4)),
                "region": st.sampled_from(["eu", "us", "a/b=ü", ""]),
                "id": st.integers(1, 3),
            }
        ),
        max_size=12,
    ),
    cuts=st.lists(st.integers(0, 12), max_size=2),
    operation=st.sampled_from(["upsert", "delete"]),
)
def test_every_row_goes_to_the_partition_of_its_values(rows, cuts, operation):
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day", "region"], ["id"])
    schema = pa.schema([("day", pa.date32()), ("region", pa.string()), ("id", pa.int64()), ("place", pa.int64())])
    table = pa.Table.from_pylist([row | {"place": place} for place, row in enumerate(rows)], schema)
    bounds = [0, *sorted(cuts), len(rows)]
    frames = [table.slice(low, max(0, high - low)) for low, high in pairwise(bounds)]
    if operation == "delete":
        catalog.append("t", table, partition_by=["day", "region"])
    appended = catalog.append("t", frames, operation=operation)
    assert appended.rows == len(rows)
    oracle = Oracle(["day", "region", "id"])
    oracle.apply(0, "upsert", [table.to_pylist()])
    if operation == "delete":
        oracle.apply(1, "delete", [table.to_pylist()])
    held = catalog.read("t").to_pylist() if rows else []
    assert sorted(row["place"] for row in held) == sorted(row["place"] for row in oracle.rows())
    assert {str(p) for p, _ in appended.commits} == {f"day={row['day']}/region={row['region']}" for row in rows}


def test_partition_keys_that_are_named_come_first_and_others_from_the_rows(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", ["day", "region"], ["id"])
    frame = pa.table({"region": ["eu", "us"], "id": [1, 2]})
    appended = catalog.append("t", frame, {"day": "1"}, partition_by="region")
    assert [str(partition) for partition, _ in appended.commits] == ["day=1/region=eu", "day=1/region=us"]
    pq.write_table(frame, tmp_path / "a.parquet")
    pa.csv.write_csv(frame, tmp_path / "b.csv")
    appended = catalog.append_files("t", [tmp_path / "a.parquet", tmp_path / "b.csv"], {"day": "2"})
    assert [[delta.rows for delta in deltas] for _, deltas in appended.commits] == [[2], [2]]
    assert catalog.read("t").num_rows == 4


@pytest.mark.parametrize(
    ("frame", "given", "said"),
    [
        ({"id": [1]}, {}, "partition key 'day' is no column of the rows (columns: id): give its value in partition"),
        ({"id": [1, 2], "day": ["1", None]}, {}, "row 2: partition column 'day' is null: correct the row, or name"),
        ({"id": [1], "day": ["1"]}, {"partition_by": ["dya"]}, "'dya' is no partition key"),
        ({"id": [1], "day": ["1"]}, {"partition_by": [], "partition": {}}, "neither in partition_by nor in partition"),
        (
            {"id": [1], "day": ["1"]},
            {"partition_by": "day", "partition": {"day": "1"}},
            "a value in partition, too",
        ),
        ({"id": [1], "day": [b"1"]}, {}, "'day' is binary, but in the table it is string: cast it to string"),
        ({"id": ["x", 1][:1], "day": ["2"]}, {}, "key column 'id' is string, a string, but in the table it is"),
        ({"id": [1], "day": ["1"]}, {"partition": {"hour": 1}}, "unknown partition key 'hour'"),
        ({"id": [1], "day": ["1"]}, {"operation": "upsrt"}, "operation is 'upsrt', it must be 'upsert' or 'delete'"),
    ],
)
def test_what_cannot_be_split_commits_nothing(frame, given, said):
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day"], ["id"])
    catalog.append("t", pa.table({"id": [1], "day": ["1"]}))
    catalog.append("t", pa.table({"id": [1], "day": ["2"]}))
    objects = {stat.path for stat in catalog.store.list("")}
    with pytest.raises((InputError, SchemaError)) as error:
        catalog.append("t", pa.table(frame), **given)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert {stat.path for stat in catalog.store.list("")} == objects


def test_a_partition_that_refuses_its_rows_keeps_the_others_from_being_committed():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day"], ["id"])
    catalog.append("t", pa.table({"id": [1], "v": ["a"]}), {"day": "2"})
    frame = pa.table({"id": [1, 2], "day": ["1", "2"], "v": [1, 2]})
    with pytest.raises(
        SchemaError, match=r"^the appended table: column 'v' is int64 here and string in partition day=2"
    ):
        DeltaStreamCatalog(catalog.store).append("t", frame)
    assert [str(partition) for partition in catalog.partitions("t")] == ["day=2"]
    assert not [stat.path for stat in catalog.store.list("t/data") if "day" in stat.path]


def test_thousands_of_partitions_are_divided_by_one_sort():
    days = pa.array([number % 3000 for number in range(30_000)])
    parts = list(divided(pa.table({"day": days, "place": range(30_000)}), ["day"]))
    assert len(parts) == 3000
    for ((_, day),), rows, indices in parts:
        assert rows["place"].to_pylist() == indices.tolist() == list(range(int(day), 30_000, 3000))


def test_a_null_partition_is_named():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day"], ["id"])
    delta = catalog.append("t", pa.table({"id": [1], "day": pa.nulls(1, pa.string())}), {"day": None})
    assert delta.rows == 1
    assert catalog.partitions("t") == [Partition((("day", None),))]


@pytest.mark.parametrize("token", [None, ("cdc", 1)])
@pytest.mark.parametrize(
    ("error", "at"),
    [
        (StoreError("no answer"), f"t/day=3/stream/0/{1:020}.json"),
        (KeyboardInterrupt(), f"t/day=3/stream/0/{1:020}.json"),
        (RuntimeError("a bug"), "t/partitions/day=3"),
    ],
)
def test_an_append_that_ends_between_two_commits_says_how_to_go_on(token, error, at):
    """A later batch would go into the partitions that lack this one, so the repetition comes first."""
    failing: list[bool] = []

    def fail(kind, path, act):
        if failing and kind == "put_if_absent" and path == at:
            raise error
        return act()

    catalog = DeltaStreamCatalog(InterceptedStore(MemoryStore(), fail))
    catalog.create_table("t", ["day"], ["id"])
    failing.append(True)
    frame = pa.table({"id": range(5), "day": list("12345")})
    with pytest.raises((DeltaCompactError, Interrupted)) as raised:
        catalog.append("t", frame, token=token)
    said, again = str(raised.value), "repeat the append with the same token" if token else "append their rows again"
    count = 2 if isinstance(error, KeyboardInterrupt) else 4
    if isinstance(error, KeyboardInterrupt) and not token:  # who has no token must know which ones are committed
        assert said.count("is committed") == 2
    else:
        assert f"{count} of 5 partitions are committed; for the others {again}, before any later batch" in said
        assert said.startswith(f"{count} of" if isinstance(error, KeyboardInterrupt) else "partition day=3: ")
    failing.clear()
    if token:
        assert catalog.append("t", frame, token=token).rows == 5
        assert sorted(catalog.read("t")["id"].to_pylist()) == list(range(5))

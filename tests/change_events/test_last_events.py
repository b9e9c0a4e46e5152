"""A batch of change events folds to what its rows fold to one by one, whatever order, sort keys and partitions."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from budgets import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Oracle
from tables import problems

from deltacompact import DeltaStreamCatalog, Settings, compact
from deltacompact.change_events import events as events_of
from deltacompact.storage.memory import MemoryStore

VALUES = st.none() | st.sampled_from([-0.0, 0.0, 1.0, 2.0, float("nan")])
SORT_KEYS = st.sampled_from(
    [[], [("s", "ascending")], [("s", "descending")], [("s", "ascending"), ("t", "descending")], [("t", "ascending")]]
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from("ID"),
            "day": st.sampled_from(["1", "2"]),
            "id": st.none() | st.integers(1, 3),
            "s": VALUES,
            "t": st.none() | st.sampled_from(["", "a", "aa", "b\0"]),
        }
    ),
    max_size=14,
)
SCHEMA = pa.schema([("op", pa.string()), ("day", pa.string()), ("id", pa.int64()), ("s", pa.float64())])
SCHEMA = SCHEMA.append(pa.field("t", pa.string())).append(pa.field("place", pa.int64()))


def oracle_of(batches, sort_keys, day):
    oracle = Oracle(["id"], sort_keys)
    for position, batch in enumerate(batches):
        for row in batch:
            if day in (None, row["day"]):
                oracle.apply(position, "upsert" if row["op"] == "I" else "delete", [[row]])
    return sorted(row["place"] for row in oracle.rows())


@settings(max_examples=examples(80))
@given(
    batches=st.lists(EVENTS, min_size=1, max_size=3),
    sort_keys=SORT_KEYS,
    partitioned=st.booleans(),
    in_parts=st.booleans(),
    compacts=st.booleans(),
    bytes_max=st.sampled_from([1, 200, 1 << 20]),
)
def test_a_batch_folds_as_its_rows_one_by_one(batches, sort_keys, partitioned, in_parts, compacts, bytes_max):
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day"] if partitioned else [], ["id"], sort_keys)
    places = iter(range(1000))
    batches = [[row | {"place": next(places)} for row in batch] for batch in batches]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(events_of, "BATCH_BYTES", bytes_max)
        for batch in batches:
            tables = [batch[:3], batch[3:7], batch[7:]] if in_parts else [batch]
            frames = [pa.Table.from_pylist(rows, SCHEMA) for rows in tables]
            appended = catalog.append("t", frames, operation_column="op", token=f"batch {len(batches)} {id(batch)}")
            assert appended.committed == bool(batch)
            assert appended.rows <= len(batch)
            if bytes_max > 1000:
                assert all(
                    [delta.operation for delta in deltas] in (["delete"], ["upsert"], ["delete", "upsert"])
                    for _, deltas in appended.commits
                )
            if compacts and appended.committed:
                compact("t", delta_catalog_client=catalog, settings=Settings(executor="local", local_threads=1))
    if partitioned:
        expected = sorted(oracle_of(batches, sort_keys, "1") + oracle_of(batches, sort_keys, "2"))
    else:
        expected = oracle_of(batches, sort_keys, None)
    held = catalog.read("t") if catalog.partitions("t") else pa.table({})
    assert sorted(held["place"].to_pylist() if "place" in held.column_names else []) == expected
    assert not problems(catalog, "t")


def test_events_of_one_key_are_two_rows_at_most():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"], sort_keys=["n"])
    frame = pa.table({"op": ["I", "D"] * 500, "id": [1] * 1000, "n": list(range(1000))})
    appended = catalog.append("t", frame, operation_column="op")
    assert [(delta.operation, delta.rows) for delta in appended.deltas] == [("delete", 1)]
    assert catalog.read("t").num_rows == 0
    assert catalog.append("t", frame.slice(0, 999), operation_column="op").rows == 1  # late: the delete at 999 stands
    assert catalog.read("t").num_rows == 0


def test_files_with_and_without_deletes_are_one_batch(tmp_path):
    """The delete side of a file without deletes has the columns that the parser found for it: none."""
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"], sort_keys=["lsn"])
    for number in range(6):
        gone = [{"op": "d", "before": {"id": number - 1}, "after": None, "source": {"lsn": number}}] * (number % 2)
        came = [{"op": "c", "before": None, "after": {"id": number, "v": 1.5}, "source": {"lsn": number}}]
        (tmp_path / f"{number}.json").write_text("\n".join(map(json.dumps, [*gone, *came])))
    appended = catalog.append_files("t", sorted(map(str, tmp_path.iterdir())), format="debezium")
    assert [(delta.operation, delta.rows, len(delta.files)) for delta in appended.deltas] == [
        ("delete", 3, 1),
        ("upsert", 3, 1),
    ]
    assert sorted(catalog.read("t")["id"].to_pylist()) == [1, 3, 5]


@pytest.mark.parametrize(("operations", "held"), [("IDI", [2]), ("ID", []), ("DI", [1]), ("IID", []), ("DID", [])])
def test_without_sort_keys_the_last_row_of_a_key_counts(operations, held):
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1], "place": [-1]}))
    places = list(range(len(operations)))
    frame = pa.table({"op": list(operations), "id": [1] * len(places), "place": places})
    catalog.append("t", frame, operation_column="op")
    assert catalog.read("t")["place"].to_pylist() == held

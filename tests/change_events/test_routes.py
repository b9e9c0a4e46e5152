"""Values that mean a partition: whatever type and spelling they come in, they find the table's one."""

from __future__ import annotations

import datetime
import decimal
import json

import pyarrow as pa
import pytest

from deltacompact import DeltaStreamCatalog, InputError, open_catalog
from deltacompact.change_events.routes import Routes
from deltacompact.storage.memory import MemoryStore

MIDNIGHT = datetime.datetime(2024, 1, 1)
DAY = datetime.date(2024, 1, 1)


@pytest.fixture
def catalog(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", ["day"], ["id"])
    return catalog


def held(catalog):
    return [(str(partition), row["id"]) for partition in catalog.partitions("t") for row in rows(catalog, partition)]


def rows(catalog, partition):
    return catalog.read("t", dict(partition.values)).to_pylist()


DEBEZIUM = {"op": "d", "before": {"id": 1, "day": "2024-01-01"}, "after": None}


@pytest.mark.parametrize(
    ("name", "text", "given", "day"),
    [
        ("a.json", json.dumps(DEBEZIUM), {"format": "debezium"}, "2024-01-01"),
        ("a.json", json.dumps({"payload": DEBEZIUM}), {"format": "debezium"}, "2024-01-01"),
        ("a.jsonl", '{"id": 1, "day": "2024-01-01", "n": 1}', {"operation": "delete"}, "2024-01-01"),
        ("a.jsonl", '{"id": 1, "day": 1}', {"operation": "delete"}, "1"),
        ("a.jsonl", '{"id": 1, "day": 1}', {"operation": "delete"}, "01"),
        ("a.csv", "Op,id,day,v\nD,1,01,", {"format": "dms"}, "01"),
        ("a.csv", "id,day\n1,2024-01-01", {"operation": "delete"}, "2024-01-01"),
        ("a.tsv", "id\tday\n1\t2024-01-01", {"operation": "delete"}, "2024-01-01"),
    ],
)
def test_a_text_file_deletes_in_a_partition_that_was_named(catalog, tmp_path, name, text, given, day):
    catalog.append("t", pa.table({"id": [1, 2]}), {"day": day})
    (tmp_path / name).write_text(text + "\n")
    catalog.append_files("t", tmp_path / name, **given)
    assert held(catalog) == [(f"day={day}", 2)]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_texts_of_a_first_file_stay_texts(catalog, tmp_path, name):
    text = "id,day\n1,2024-01-01\n" if name == "a.csv" else '{"id": 1, "day": "2024-01-01"}\n'
    (tmp_path / name).write_text(text)
    catalog.append_files("t", tmp_path / name)
    catalog.append_files("t", tmp_path / name, {"day": "2024-01-01"}, operation="delete")
    assert [str(partition) for partition in catalog.partitions("t")] == ["day=2024-01-01"]
    assert held(catalog) == []


DECIMALS = [pa.array([decimal.Decimal(text)], pa.decimal128(5, scale)) for text, scale in [("1.0", 1), ("1.00", 2)]]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ([1], [1.0]),
        ([1.0], [1]),
        (["1"], ["1"]),
        ([1], ["1"]),
        ([1], ["01"]),
        (DECIMALS[0], DECIMALS[1]),
        (DECIMALS[1], DECIMALS[0]),
        ([DAY], pa.array([MIDNIGHT], pa.timestamp("ns"))),
        (pa.array([MIDNIGHT], pa.timestamp("ns")), [DAY]),
        (pa.array([MIDNIGHT], pa.timestamp("s")), ["2024-01-01"]),
        ([DAY], ["2024-01-01"]),
        (pa.array([MIDNIGHT], pa.timestamp("us", "UTC")), pa.array([MIDNIGHT], pa.timestamp("us", "Europe/Berlin"))),
        ("1", [1]),
        ("01", [1]),
        ("1", [1.0]),
        ("1", [decimal.Decimal("1.00")]),
        ("2024-01-01", [DAY]),
        ("2024-01-01", pa.array([MIDNIGHT], pa.timestamp("ns"))),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_a_value_of_another_type_finds_its_partition(first, then, together):
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day"], ["id"])
    inserts, deletes = pa.table({"op": ["I"], "id": [1]}), pa.table({"op": ["D"], "id": [1], "day": then})
    if isinstance(first, str):
        catalog.append("t", inserts.drop_columns(["op"]), {"day": first})
        catalog.append("t", deletes, operation_column="op")
    else:
        frames = [inserts.append_column("day", pa.array(first)), deletes]
        for batch in [frames] if together else frames:
            catalog.append("t", batch, operation_column="op")
    assert len(catalog.partitions("t")) == 1
    assert held(catalog) == []


@pytest.mark.parametrize(
    ("before", "then", "said"),
    [
        ([[1]], ["x"], "partition column 'day' is string, but in the table it is int64, and values do not fit"),
        ([[1]], [1.5], "is double, but in the table it is int64, and values do not fit: give the column the type"),
        ([["1"]], [1], "partition column 'day' is int64, but in the table it is string: cast it to string"),
        (["x"], [1], "partition column 'day' is int64, which partition day=x of the table does not fit: give the"),
        (["1", "01"], [1], "partitions day=1 and day=01 are both 1: write it as a string"),
        ([], [b"1"], "partition column 'day': binary values cannot name partitions"),
        ([[DAY]], [datetime.datetime(2024, 1, 1, 7)], "is timestamp[us], but in the table it is date32[day], and"),
        ([[1], "2"], ["x"], "partition column 'day' is string, but in the table it is int64"),  # the last lacks it
    ],
)
def test_what_fits_no_partition_is_refused(before, then, said):
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day"], ["id"])
    for value in before:
        if isinstance(value, str):
            catalog.append("t", pa.table({"id": [1]}), {"day": value})
        else:
            catalog.append("t", pa.table({"id": [1], "day": value}))
    objects = {stat.path for stat in catalog.store.list("")}
    with pytest.raises(InputError) as error:
        catalog.append("t", pa.table({"id": [1], "day": then}))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert {stat.path for stat in catalog.store.list("")} == objects
    assert not before or catalog.read("t").num_rows == len(before)


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_nan_names_no_partition_and_its_row_is_named(type_):
    """The message said that no double could, and that NaN in the rows disagrees with the partition's nan."""
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day"], ["id"])
    odd = pa.table({"id": [1, 2], "day": pa.array([1.5, float("nan")], type_)})
    with pytest.raises(InputError, match="row 2: partition column 'day': NaN names no partition"):
        catalog.append("t", odd)
    with pytest.raises(InputError, match="partition column 'day': NaN names no partition"):
        Routes({}, {}).texts(odd["day"].combine_chunks(), "day")
    with pytest.raises(InputError, match="column 'day': NaN names no partition"):
        catalog.append("t", odd.slice(1), {"day": "nan"})
    catalog.append("t", odd.slice(0, 1))
    assert held(catalog) == [("day=1.5", 1)]


def test_tables_of_one_batch_agree():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day"], ["id"])
    frames = [pa.table({"id": [1], "day": [1]}), pa.table({"id": [2], "day": ["x"]})]
    with pytest.raises(InputError, match=r"'day' is string, but in the table it is int64"):
        catalog.append("t", frames)
    assert not list(catalog.store.list("t/data"))

"""The nine traps that a reference implementation fell into, and their neighbours."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pytest
from tables import problems

from deltacompact import DeltaStreamCatalog, InputError, SchemaError, SessionResult, Settings, compact
from deltacompact.base.model import Partition
from deltacompact.storage.memory import MemoryStore

LOCAL = Settings(executor="local")


def table_of(keys: list[str], sort_keys: list[Any] | None = None, **options: Any) -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=keys, sort_keys=sort_keys or [], **options)
    return catalog


def run(catalog: DeltaStreamCatalog, **arguments: Any) -> SessionResult:
    (session,) = compact("t", delta_catalog_client=catalog, **{"settings": LOCAL, **arguments}).sessions
    assert problems(catalog) == []
    return session


def read_both_ways(catalog: DeltaStreamCatalog) -> list[dict[str, Any]]:
    """The rows before and after a compaction, which must agree."""
    before = catalog.read("t").to_pylist()
    run(catalog)
    after = catalog.read("t").to_pylist()
    assert sorted(map(repr, after)) == sorted(map(repr, before))
    return after


def keys_after_upserting(columns: list[pa.Array]) -> list[Any]:
    """Each column in a file and a delta of its own, compacted in between."""
    catalog = table_of(["k"])
    for place, column in enumerate(columns):
        catalog.append("t", pa.table({"k": column, "from": [place] * len(column)}))
        read_both_ways(catalog)
    return [row["k"] for row in catalog.read("t").to_pylist()]


def test_trap_1_null_and_the_empty_string_are_two_keys() -> None:
    assert keys_after_upserting([pa.array([None, ""]), pa.array(["", None])]) == ["", None]


def test_trap_1_one_instant_in_two_units_is_one_key() -> None:
    at = datetime(2026, 11, 21, 3, 48)
    units = [pa.array([at], pa.timestamp(unit)) for unit in ("s", "us", "ns", "ms")]
    assert len(keys_after_upserting(units)) == 1


def test_trap_1_zero_and_minus_zero_are_one_key_and_so_is_every_nan() -> None:
    keys = keys_after_upserting([pa.array([0.0, math.nan]), pa.array([-0.0, -math.nan]), pa.array([0.0], pa.float32())])
    assert len(keys) == 2


def test_trap_1_bytes_that_are_no_utf8_are_keys_like_any_other() -> None:
    first, second = pa.array([b"\xff\xfe", b"\xff"]), pa.array([b"\xff\xfe", b"\xfe"], pa.large_binary())
    assert sorted(keys_after_upserting([first, second])) == [b"\xfe", b"\xff", b"\xff\xfe"]


@pytest.mark.parametrize("direction", ["ascending", "descending"])
@pytest.mark.parametrize("first", ["value", "null"])
def test_trap_2_a_null_sort_key_never_wins(direction: str, first: str) -> None:
    catalog = table_of(["k"], [("s", direction)])
    rows = [5, None] if first == "value" else [None, 5]
    for value in rows:
        catalog.append("t", pa.table({"k": [1], "s": pa.array([value], pa.int64())}))
    assert read_both_ways(catalog) == [{"k": 1, "s": 5}]


def test_trap_2_a_nan_sort_key_is_above_every_number_and_no_more() -> None:
    for direction, expected in (("ascending", "NaN"), ("descending", "number")):
        catalog = table_of(["k"], [("s", direction)])
        catalog.append("t", pa.table({"k": [1], "s": [math.nan], "v": ["NaN"]}))
        catalog.append("t", pa.table({"k": [1], "s": [math.inf], "v": ["number"]}))
        catalog.append("t", pa.table({"k": [1], "s": pa.array([None], pa.float64()), "v": ["null"]}))
        assert [row["v"] for row in read_both_ways(catalog)] == [expected]


def test_trap_2_a_partition_key_is_no_sort_key_because_files_may_lack_its_column() -> None:
    """Null there, it lost to the value in other files: a later row was dropped, whatever its first sort key."""
    refused = "sort key 'day' is a partition key: it has one value in each partition"
    with pytest.raises(InputError, match=refused):
        table_of(["k"], ["s", "day"], partition_keys=["day"])
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day"])
    catalog.append("t", pa.table({"k": [1], "s": [1]}), {"day": "a"})
    with pytest.raises(InputError, match=refused):
        run(catalog, primary_keys=["k"], sort_keys=["day"])
    assert run(catalog, primary_keys=["k"], sort_keys=["s"]).live == 1


def test_trap_2_a_table_of_an_earlier_release_with_such_a_sort_key_is_still_there(monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("deltacompact.delta_streams.tables.check_sort_keys", lambda *keys: None)
        catalog = table_of(["k"], ["day"], partition_keys=["day"])
    catalog.create_table("t", ["day"], ["k"], ["day"])
    catalog.append("t", pa.table({"k": [1], "day": ["a"]}), {"day": "a"})
    assert read_both_ways(catalog) == [{"k": 1, "day": "a"}]
    run(catalog, primary_keys=["k"], sort_keys=["day"])
    catalog.declare_table(
        "d", ["day"], tombstone_retention=None
    )  # a run that was killed after it had created the destination
    catalog.declare_source("d", "t")
    run(catalog, destination_compacted_table_id="d")
    assert catalog.described("d").keys == catalog.described("t").keys


def test_trap_3_a_late_older_event_does_not_overwrite_a_newer_compacted_row() -> None:
    catalog = table_of(["k"], ["s"])
    catalog.append("t", pa.table({"k": [1, 2], "s": [10, 10]}))
    run(catalog)
    catalog.append("t", pa.table({"k": [1, 2], "s": [9, 11]}))
    late = run(catalog)
    assert (late.superseded, late.live) == (2, 2)
    assert sorted(row["s"] for row in catalog.read("t").to_pylist()) == [10, 11]


def test_trap_4_files_that_nothing_touches_are_kept_once_each() -> None:
    catalog = table_of(["k"])
    catalog.append("t", pa.table({"k": range(12), "v": ["old"] * 12}))
    run(catalog, rows_per_compacted_file=3)
    before = catalog.state("t", Partition()).compacted
    assert before is not None and len(before.files) == 4
    catalog.append("t", pa.table({"k": [4], "v": ["new"]}))
    session = run(catalog, rows_per_compacted_file=3)
    after = catalog.state("t", Partition()).compacted
    assert after is not None
    kept = {file.path for file in before.files} & {file.path for file in after.files}
    assert (session.files_kept, len(kept), session.files_rewritten) == (3, 3, 1)
    rows = catalog.read("t").to_pydict()
    assert sorted(rows["k"]) == list(range(12))
    assert rows["v"].count("new") == 1


def test_trap_4_small_files_are_merged_as_soon_as_there_are_two_pieces() -> None:
    catalog = table_of(["k"])
    files = []
    for turn in range(4):
        catalog.append("t", pa.table({"k": [2 * turn, 2 * turn + 1]}))
        session = run(catalog, rows_per_compacted_file=5)
        files.append((session.files_kept, session.files_after))
    assert files == [(0, 1), (0, 1), (1, 2), (1, 2)]  # 2 rows; 4; 4 and 2; 4 and 4
    assert sorted(row["k"] for row in catalog.read("t").to_pylist()) == list(range(8))


def test_trap_5_composite_deletes_are_not_joined_crosswise() -> None:
    catalog = table_of(["a", "b"])
    catalog.append("t", pa.table({"a": [1, 1, 2, 2], "b": [1, 2, 1, 2]}))
    catalog.append("t", pa.table({"a": [1, 2], "b": [1, 2]}), operation="delete")
    assert sorted((row["a"], row["b"]) for row in read_both_ways(catalog)) == [(1, 2), (2, 1)]


def test_trap_5_a_delete_without_one_of_the_key_columns_is_refused_by_name() -> None:
    catalog = table_of(["a", "b"])
    catalog.append("t", pa.table({"a": [1], "b": [1]}))
    with pytest.raises(SchemaError, match="'b' is missing"):
        catalog.append("t", pa.table({"a": [1]}), operation="delete")
    assert read_both_ways(catalog) == [{"a": 1, "b": 1}]


def test_trap_5_a_delete_with_some_of_the_sort_columns_is_refused_by_name() -> None:
    catalog = table_of(["k"], ["s", "t"])
    catalog.append("t", pa.table({"k": [1], "s": [1], "t": [1]}))
    with pytest.raises(SchemaError, match="'t' is missing"):
        catalog.append("t", pa.table({"k": [1], "s": [1]}), operation="delete")
    assert len(read_both_ways(catalog)) == 1


def test_trap_6_nested_columns_pass_through_as_they_are() -> None:
    nested = [
        {"k": 1, "pair": {"a": 1, "b": [1, None]}, "items": [{"x": "y"}], "tags": [("t", 1)]},
        {"k": 2, "pair": {"a": None, "b": None}, "items": [], "tags": []},
        {"k": 3, "pair": None, "items": None, "tags": None},
    ]
    types = {
        "k": pa.int64(),
        "pair": pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int8()))]),
        "items": pa.list_(pa.struct([("x", pa.string())])),
        "tags": pa.map_(pa.string(), pa.int32()),
    }
    catalog = table_of(["k"])
    catalog.append("t", pa.Table.from_pylist(nested, schema=pa.schema(types.items())))
    catalog.append("t", pa.table({"k": [3, 4]}), operation="delete")
    assert read_both_ways(catalog) == nested[:2]


def test_trap_6_int32_and_int64_keys_are_the_same_keys() -> None:
    narrow, wide, unsigned = pa.array([1, -1], pa.int32()), pa.array([1, 2**40]), pa.array([1], pa.uint8())
    assert sorted(keys_after_upserting([narrow, wide, unsigned])) == [-1, 1, 2**40]


def test_trap_6_the_greatest_uint64_is_not_minus_one() -> None:
    catalog = table_of(["k"])
    catalog.append("t", pa.table({"k": [-1]}))
    catalog.append("t", pa.table({"k": pa.array([2**64 - 1], pa.uint64())}), operation="delete")
    assert read_both_ways(catalog) == [{"k": -1}]


def test_trap_6_a_value_that_the_common_type_does_not_hold_is_refused_by_name() -> None:
    catalog = table_of(["k"])
    catalog.append("t", pa.table({"k": [1], "amount": [-1]}))
    with pytest.raises(SchemaError, match="'amount' has the value 9223372036854775808, which does not fit int64"):
        catalog.append("t", pa.table({"k": [2], "amount": pa.array([2**63], pa.uint64())}))


def test_trap_6_a_null_in_a_dictionarys_values_is_a_null(tmp_path: Path) -> None:
    catalog = table_of(["k"], ["s"])
    catalog.append("t", pa.table({"k": ["x"], "s": [5]}))
    nulls = pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([None], pa.int64()))
    pyarrow.feather.write_feather(pa.table({"k": ["x"], "s": nulls}), tmp_path / "cdc.feather")
    catalog.append_files("t", [tmp_path / "cdc.feather"], operation="delete")
    assert read_both_ways(catalog) == []


@pytest.mark.slow
def test_trap_7_a_column_may_hold_more_than_two_gigabytes_of_strings() -> None:
    text = "x" * (1 << 20)
    same = pa.array([text] * 64)  # the chunks share it: what is large is only what is read back
    large = pa.chunked_array([same] * 33)
    catalog = table_of(["k"])
    catalog.append("t", pa.table({"k": range(len(large)), "text": large}))
    catalog.append("t", pa.table({"k": [0], "text": [""]}))
    assert run(catalog).live == len(large)
    read = catalog.read("t")
    lengths = pa.compute.binary_length(read["text"])
    assert pa.compute.sum(lengths).as_py() == (len(large) - 1) << 20 > 2**31


def test_trap_8_the_number_of_hash_buckets_may_change_with_every_compaction() -> None:
    catalog = table_of(["k"], ["s"])
    for turn, buckets in enumerate([3, 7, 1, None, 2]):
        catalog.append("t", pa.table({"k": range(turn, turn + 5), "s": [turn] * 5}))
        assert run(catalog, hash_bucket_count=buckets).hash_bucket_count == (buckets or 1)
    catalog.append("t", pa.table({"k": [0], "s": [9]}), operation="delete")
    assert run(catalog, hash_bucket_count=5).deleted == 1
    catalog.append("t", pa.table({"k": [0], "s": [8]}))
    run(catalog, hash_bucket_count=4)
    assert sorted(row["k"] for row in catalog.read("t").to_pylist()) == list(range(1, 9))


def test_trap_9_rounds_add_the_compacted_rows_once() -> None:
    def compacted_twice(rows_per_round: int | None) -> tuple[SessionResult, list[Any]]:
        catalog = table_of(["k"])
        catalog.append("t", pa.table({"k": range(10), "v": ["old"] * 10}))
        run(catalog)
        catalog.append("t", [pa.table({"k": [n, n + 20], "v": ["new"] * 2}) for n in range(4)])
        session = run(catalog, settings=Settings(executor="local", rows_per_round=rows_per_round))
        return session, catalog.read("t").to_pylist()

    at_once, rows_at_once = compacted_twice(None)
    in_rounds, rows_in_rounds = compacted_twice(2)
    assert (at_once.rounds, in_rounds.rounds) == (1, 4)
    for session in (at_once, in_rounds):
        assert (session.rows_in, session.live, session.superseded, session.deleted) == (18, 14, 4, 0)
        assert session.bytes_in == at_once.bytes_in
    assert rows_in_rounds == rows_at_once

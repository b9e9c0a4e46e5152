"""Sort keys of strings and binaries: how wide they are, who knows it, and that the rows do not depend on it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from oracle import Oracle
from stores import CHANGES, Crash, FailsAt, InterceptedStore, copy_of
from tables import problems

from deltacompact import DeltaStreamCatalog, Settings, cli, compact
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import InputError, SchemaError
from deltacompact.base.model import ContentType, OperationType, Partition
from deltacompact.base.table_keys import TableKeys
from deltacompact.index.entries import TOMBSTONE, fields
from deltacompact.index.keys import Encoding, SortColumn, resolve_encoding
from deltacompact.index.primary_key_index import IndexManifest, read_index, read_manifest, reencoded
from deltacompact.index.sort_keys import decode
from deltacompact.job import Request, prepare
from deltacompact.storage.memory import MemoryStore

LOCAL = Settings(executor="local", local_threads=1)
ROUNDS = Settings(executor="local", local_threads=1, rows_per_round=1)


def lake(*sort_keys: tuple[str, str], keys: bool = True) -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"] if keys else [], sort_keys=sort_keys)
    return catalog


def table(*values: Any, **columns: pa.DataType) -> pa.Table:
    """Key 0, 1, … with the sort column v (a string unless said otherwise)."""
    return pa.table({"k": range(len(values)), "v": pa.array(values, columns.get("v", pa.string()))})


def manifest_of(catalog: DeltaStreamCatalog) -> IndexManifest:
    state = catalog.state("t", Partition())
    assert state.index is not None
    return read_manifest(catalog.store, state.index)


def widths(catalog: DeltaStreamCatalog) -> list[tuple[int | None, int]]:
    return [(column.width, column.longest) for column in manifest_of(catalog).encoding.sort_columns]


def run(catalog: DeltaStreamCatalog, settings: Settings = LOCAL) -> None:
    (session,) = compact("t", delta_catalog_client=catalog, settings=settings).sessions
    assert session.error is None
    assert problems(catalog) == []


def winners(catalog: DeltaStreamCatalog) -> dict[int, Any]:
    return {row["k"]: row["v"] for row in catalog.read("t").to_pylist()}


# --- the width -------------------------------------------------------------------------------------------------------


def test_the_width_follows_the_longest_value_and_the_index_is_encoded_anew_as_it_widens() -> None:
    catalog = lake(("v", "ascending"))
    seen = []
    for longest in ("abc", "abcdefghi", "z" * 32):
        catalog.append("t", table(longest, "b", None))
        assert winners(catalog) == {0: longest, 1: "b", 2: None}
        run(catalog)
        assert winners(catalog) == {0: longest, 1: "b", 2: None}
        (entries,) = read_index(catalog.store, manifest_of(catalog), 0)
        seen.append((widths(catalog), entries.shape[1]))
    assert seen == [([(8, 3)], 42), ([(16, 9)], 50), ([(32, 32)], 66)]


def test_a_longer_value_within_the_width_adds_a_run_and_encodes_nothing_anew() -> None:
    catalog = lake(("v", "ascending"))
    catalog.append("t", table(*["a"] * 1000))
    run(catalog)
    catalog.append("t", table("abcdefg"))
    run(catalog)
    assert len(manifest_of(catalog).runs) == 2
    assert widths(catalog) == [(8, 7)]


@pytest.mark.parametrize("rounds", [LOCAL, ROUNDS])
def test_one_long_value_in_a_late_round_widens_the_entries_of_all_rounds(rounds: Settings) -> None:
    catalog = lake(("v", "descending"))
    for value in ["b", "a", "b", "c", "a" * 31, "b", None]:
        catalog.append("t", table(value, "b"))
    run(catalog, rounds)
    assert winners(catalog) == {0: "a", 1: "b"}
    assert widths(catalog) == [(32, 31)]


@pytest.mark.parametrize("together", [True, False])
def test_several_columns_share_32_bytes_however_the_deltas_are_divided(together: bool) -> None:
    """17 and 9 bytes would be 24 and 16 when rounded up: they get what they need."""
    catalog = lake(("v", "ascending"), ("w", "descending"))
    for v, w in (("v" * 17, "w"), ("v", "w" * 9), ("v", "w" * 15)):
        catalog.append("t", pa.table({"k": [1], "v": [v], "w": [w]}))
        if not together:
            run(catalog)
    if together:
        run(catalog, ROUNDS)
    assert widths(catalog) == [(17, 17), (15, 15)]
    for each in (catalog, DeltaStreamCatalog(catalog.store)):
        with pytest.raises(SchemaError, match="sort keys take 33 bytes, 32 at most: v string of up to 17 bytes"):
            each.append("t", pa.table({"k": [1], "v": ["v"], "w": ["w" * 16]}))


def test_a_string_has_the_room_that_numbers_leave() -> None:
    catalog = lake(("v", "ascending"), ("n", "ascending"))
    catalog.append("t", pa.table({"k": [1], "v": ["v" * 25], "n": pa.array([1], pa.int32())}))
    run(catalog)
    assert widths(catalog) == [(25, 25), (None, 0)]
    with pytest.raises(SchemaError, match="sort keys take 33 bytes"):
        catalog.append("t", pa.table({"k": [1], "v": ["v" * 25], "n": pa.array([1], pa.int64())}))


@pytest.mark.parametrize("first", [pa.binary(2), pa.binary()])
def test_binaries_of_fixed_size_become_variable_beside_others(first: pa.DataType) -> None:
    for order in (1, -1):
        catalog = lake(("v", "ascending"))
        for values, type_ in [([b"ab", b"zz"], first), ([b"abc", b"\0\0\0"], pa.binary(3))][::order]:
            catalog.append("t", table(*values, v=type_))
            run(catalog)
        assert winners(catalog) == {0: b"abc", 1: b"zz"}


def test_a_string_does_not_mix_with_a_binary() -> None:
    catalog = lake(("v", "ascending"))
    catalog.append("t", table("a"))
    with pytest.raises(SchemaError, match="sort key 'v' is binary, which does not fit string"):
        catalog.append("t", table(b"a", v=pa.binary()))


@pytest.mark.parametrize("direction", ["ascending", "descending"])
def test_prefixes_zeros_and_other_letters_are_ordered_by_their_bytes(direction: str) -> None:
    values = ["", "\0", "\0\0", "a", "a\0", "ab", "é", "z", "é" * 16, "z" * 32, None]
    for settings in (LOCAL, ROUNDS):
        catalog, oracle = lake(("v", direction)), Oracle(["k"], [("v", direction)])
        pairs = list(itertools.product(values, values))
        for place in (0, 1):
            rows = [{"k": k, "v": pair[place], "from": place} for k, pair in enumerate(pairs)]
            oracle.apply(place, "upsert", [rows])
            catalog.append("t", pa.Table.from_pylist(rows), stream_position=place)
        expected = {row["k"]: row["from"] for row in oracle.rows()}
        assert {row["k"]: row["from"] for row in catalog.read("t").to_pylist()} == expected
        run(catalog, settings)
        assert {row["k"]: row["from"] for row in catalog.read("t").to_pylist()} == expected


def test_a_keyed_delete_leaves_its_string_in_a_tombstone_that_outlives_a_wider_index() -> None:
    catalog = lake(("v", "ascending"))
    catalog.append("t", table("2024-01-01", "2024-01-01"))
    run(catalog)
    catalog.append("t", table("2024-02-01", None), operation="delete")
    run(catalog)
    assert winners(catalog) == {}
    catalog.append("t", table("2024-01-31T23:59:59.999999Z", "2024-01-01"))
    assert winners(catalog) == {1: "2024-01-01"}
    run(catalog)
    assert winners(catalog) == {1: "2024-01-01"}
    (entries,) = read_index(catalog.store, manifest_of(catalog), 0)
    dead = entries[fields(entries)["file"] == TOMBSTONE]
    (column,) = decode(np.ascontiguousarray(dead[:, 20:-12]), manifest_of(catalog).encoding)
    assert column.to_pylist() == ["2024-02-01"]


def test_reencoding_keeps_every_value() -> None:
    values = pa.array(["", "a\0", None, "é", "abcdefgh"])
    narrow = Encoding((), (SortColumn("v", pa.string(), True, 8, 8),))
    entries = np.hstack(
        [np.zeros((5, 20), np.uint8), narrow.sort_keys(pa.table({"v": values}), "f"), np.ones((5, 12), np.uint8)]
    )
    for column in (SortColumn("v", pa.string(), True, 32, 8), SortColumn("v", pa.string(), False, 8, 8)):
        wide = Encoding((), (column,))
        fresh = reencoded(np.ascontiguousarray(entries), narrow, wide)
        assert fresh[:, 20:-12].tobytes() == wide.sort_keys(pa.table({"v": values}), "f").tobytes()
        assert decode(np.ascontiguousarray(fresh[:, 20:-12]), wide)[0].to_pylist() == values.to_pylist()


# --- who knows it ----------------------------------------------------------------------------------------------------


def test_what_append_recorded_is_not_read_again() -> None:
    catalog = lake(("v", "ascending"))
    delta = catalog.append("t", table("a", "abc"))
    assert delta.files[0].longest == (("v", 3),)
    assert catalog.state("t", Partition()).deltas[0].files[0].longest == (("v", 3),)
    assert opened_by_plan(catalog) == []


def test_a_column_is_read_where_the_sort_keys_were_not_known_at_append() -> None:
    catalog = lake(keys=False)
    path = catalog.append("t", table("a", "abcdefghij")).files[0].path
    assert opened_by_plan(catalog, ["k"], ["v"]) == [path]
    compact("t", ["k"], ["v"], delta_catalog_client=catalog, settings=LOCAL)
    assert widths(catalog) == [(16, 10)]
    assert catalog.append("t", table("a")).files[0].longest == (("v", 1),)


def test_files_are_measured_as_they_are_appended(tmp_path: Any) -> None:
    catalog = lake(("v", "ascending"))
    pq.write_table(table("a", "ab", "é" * 3), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("k,v\n1,abcd\n2,\n")
    delta = catalog.append_files("t", [tmp_path / "a.parquet", tmp_path / "b.csv"])
    assert [file.longest for file in delta.files] == [(("v", 6),), (("v", 4),)]


def opened_by_plan(catalog: DeltaStreamCatalog, *keys: Any) -> list[str]:
    """The data files that planning opens."""
    from deltacompact.job import plan_work
    from deltacompact.planning.plan import Capacity

    opened: list[str] = []

    def listen(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if kind == "open":
            opened.append(path)
        return act()

    assert isinstance(catalog.store, MemoryStore)
    watched = DeltaStreamCatalog(InterceptedStore(catalog.store, listen))  # type: ignore[arg-type]
    job = prepare(watched, Request("t", *(keys or (None, None))))
    (work,), (snapshot,) = job.work, job.snapshots
    plan_work(job, work, snapshot, Capacity(1, 1 << 30, 1 << 30))
    return opened


def test_a_value_longer_than_what_was_recorded_is_refused_by_file_and_column() -> None:
    """As where a file was changed behind our back."""
    catalog = lake(("v", "ascending"))
    file = catalog.append("t", table("abc")).files[0]
    sink = pa.BufferOutputStream()
    pq.write_table(table("abcdefghij"), sink)
    catalog.store.put(file.path, sink.getvalue().to_pybytes())
    with pytest.raises(SchemaError, match=f"{file.path}: sort key 'v': a value of 10 bytes is longer than 8"):
        run(catalog)


def test_a_refused_value_is_never_shown(capfd: Any, tmp_path: Any) -> None:
    catalog = lake(("v", "ascending"))
    with pytest.raises(SchemaError) as refused:
        catalog.append("t", table("secret" * 6))
    assert "secret" not in str(refused.value)
    assert catalog.partitions("t") == []


@pytest.mark.slow
def test_any_crash_is_resumed_with_the_same_widths() -> None:
    catalog = lake(("v", "ascending"))
    catalog.append("t", table("a", "b", "c"))
    run(catalog)
    for value in ("b" * 9, "a", "c" * 20):
        catalog.append("t", table(value, "a"))
    prepared = catalog.store
    assert isinstance(prepared, MemoryStore)
    for at in itertools.count():
        store = copy_of(prepared)
        try:
            run(DeltaStreamCatalog(InterceptedStore(store, FailsAt(at, kinds=CHANGES, error=Crash))), ROUNDS)  # type: ignore[arg-type]
        except Crash:
            resumed = DeltaStreamCatalog(store)
            if resumed.state("t", Partition()).deltas:
                run(resumed, ROUNDS)
            assert winners(resumed) == {0: "c" * 20, 1: "b", 2: "c"}
            assert widths(resumed) == [(24, 20)]
            continue
        break
    assert at > 8


# --- on disk ---------------------------------------------------------------------------------------------------------


def test_an_index_of_strings_has_another_encoding_version_and_one_of_numbers_the_first() -> None:
    files = [
        DataFile(0, "f", ContentType.PARQUET, 1, 1, pa.schema([("k", pa.int8()), ("v", type_)]))
        for type_ in (pa.int8(), pa.string())
    ]
    keys = TableKeys.of(["k"], ["v"])
    versions = [resolve_encoding(keys, (), [(OperationType.UPSERT, file)]).version for file in files]
    assert versions == [1, 2]


def test_a_manifest_without_widths_is_read_and_one_of_a_newer_encoding_is_refused() -> None:
    catalog = lake(("v", "ascending"))
    catalog.append("t", table(1, 2, v=pa.int16()))
    run(catalog)
    manifest = manifest_of(catalog)
    document = json.loads(manifest.to_bytes())
    del document["sort_widths"]
    assert IndexManifest.from_bytes(json.dumps(document).encode(), "m") == manifest
    with pytest.raises(InputError, match="m has key encoding 3, this deltacompact knows up to 2"):
        IndexManifest.from_bytes(json.dumps({**document, "encoding_version": 3}).encode(), "m")


def test_a_table_sorted_by_a_string_from_the_command_line(tmp_path: Any, capfd: Any) -> None:
    uri = str(tmp_path / "lake")
    (tmp_path / "a.csv").write_text("id,version\n1,v1.10\n2,v1.9\n")
    (tmp_path / "b.csv").write_text("id,version\n1,v1.9\n2,v1.10\n")
    for command in (
        ["create", uri, "t", "--primary-key", "id", "--sort-key", "version"],
        ["append", uri, "t", str(tmp_path / "a.csv")],
        ["append", uri, "t", str(tmp_path / "b.csv")],
        ["plan", uri, "t"],
        ["compact", uri, "t", "--rows-per-round", "1"],
        ["rehash", uri, "t", "--hash-buckets", "3"],
        ["check", uri, "t"],
        ["export", uri, "t", str(tmp_path / "out.csv")],
    ):
        assert cli.run(command) == 0, capfd.readouterr().err
    assert sorted((tmp_path / "out.csv").read_text().splitlines()[1:]) == ['1,"v1.9"', '2,"v1.9"']

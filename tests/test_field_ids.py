"""Columns that are matched by field id: a file is read under the table's names of today, whatever it calls them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import unmeasured  # noqa: F401
from toy_catalog import ToyCatalog
from toy_runs import rows as live_rows
from toy_runs import run, snapshot

from deltacompact import Settings
from deltacompact.base.errors import SchemaError
from deltacompact.base.model import ContentType, DataFile, SortKey, TableKeys
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.index.primary_key_index import IndexManifest, read_manifest
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import field_ids, files, formats, writing
from deltacompact.tabular.field_ids import FIELD_ID, field_id
from deltacompact.tabular.row_groups import WriteOptions


def column(number: int, name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, metadata={FIELD_ID: str(number)})


def table(columns: list[pa.Field], rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema(columns))


ID, NOTE, PRICE = column(1, "id", pa.int64()), column(2, "note", pa.string()), column(3, "price", pa.float64())


def toy_of(columns: list[pa.Field], *primary: str, sort: tuple[str, ...] = ()) -> ToyCatalog:
    keys = TableKeys.of(primary or ["id"], [SortKey(name) for name in sort])
    return ToyCatalog(MemoryStore(), keys, columns=pa.schema(columns))


def evolve(toy: ToyCatalog, columns: list[pa.Field], *primary: str, sort: tuple[str, ...] = ()) -> None:
    toy.columns = pa.schema(columns)
    toy.keys = TableKeys.of(primary or ["id"], [SortKey(name) for name in sort])


def by_id(toy: ToyCatalog) -> list[dict[str, Any]]:
    return sorted(live_rows(toy), key=lambda row: row["id"])


@pytest.mark.parametrize("compacted", [False, True])
def test_a_renamed_column_is_read_under_its_new_name(compacted: bool) -> None:
    toy = toy_of([ID, NOTE])
    toy.append(1, table([ID, NOTE], [{"id": 1, "note": "a"}, {"id": 2, "note": "b"}]))
    if compacted:
        run(toy)
    renamed = column(2, "remark", pa.string())
    evolve(toy, [ID, renamed])
    assert by_id(toy) == [{"id": 1, "remark": "a"}, {"id": 2, "remark": "b"}]
    toy.append(2, table([ID, renamed], [{"id": 2, "remark": "c"}]))
    run(toy)
    assert by_id(toy) == [{"id": 1, "remark": "a"}, {"id": 2, "remark": "c"}]


def test_a_name_that_was_dropped_and_added_again_is_another_column() -> None:
    toy = toy_of([ID, NOTE])
    toy.append(1, table([ID, NOTE], [{"id": 1, "note": "old"}]))
    again = column(7, "note", pa.int64())
    evolve(toy, [ID, again])
    toy.append(2, table([ID, again], [{"id": 2, "note": 5}]))
    assert by_id(toy) == [{"id": 1, "note": None}, {"id": 2, "note": 5}]
    run(toy)
    assert by_id(toy) == [{"id": 1, "note": None}, {"id": 2, "note": 5}]


def test_two_columns_that_swapped_their_names() -> None:
    a, b = column(2, "a", pa.string()), column(3, "b", pa.string())
    toy = toy_of([ID, a, b])
    toy.append(1, table([ID, a, b], [{"id": n, "a": f"a{n}", "b": f"b{n}"} for n in range(3000)]))
    run(toy, rows_per_compacted_file=10_000)
    evolve(toy, [ID, column(3, "a", pa.string()), column(2, "b", pa.string())])
    toy.append(2, table(list(toy.columns), [{"id": 0, "a": "x", "b": "y"}]))
    run(toy, rows_per_compacted_file=10_000)
    assert by_id(toy) == [{"id": 0, "a": "x", "b": "y"}] + [
        {"id": n, "a": f"b{n}", "b": f"a{n}"} for n in range(1, 3000)
    ]


@pytest.mark.parametrize("renamed", [False, True])
def test_row_groups_are_copied_where_ids_and_names_agree(renamed: bool) -> None:
    toy = toy_of([ID, NOTE])
    rows = [{"id": n, "note": str(n)} for n in range(4000)]
    toy.append(1, table([ID, NOTE], rows))
    toy.append(2, table([ID, NOTE], [{"id": n, "note": str(n)} for n in range(4000, 8000)]))
    arguments = {"rows_per_compacted_file": 10_000, "row_group_rows": 1000}
    if renamed:
        evolve(toy, [ID, column(2, "remark", pa.string())])
    session, published = run(toy, **arguments)
    assert (session.measured.rows_copied == 0) is renamed
    name = "remark" if renamed else "note"
    assert by_id(toy) == [{"id": n, name: str(n)} for n in range(8000)]
    with files.opened(toy.store, published.compacted.files[0]) as source:
        written = pq.read_schema(source)
    assert [(field_id(field), field.name) for field in written] == [(1, "id"), (2, name)]


def test_keys_that_were_renamed_are_the_same_keys() -> None:
    """The digest goes by the order of the first index, though the new names would sort otherwise."""
    a, b, v = column(1, "a", pa.int64()), column(2, "b", pa.int64()), column(3, "v", pa.int32())
    toy = toy_of([a, b, v], "a", "b", sort=("v",))
    toy.append(1, table([a, b, v], [{"a": n, "b": n + 1, "v": n} for n in range(9)]))
    run(toy)
    z, b, w = column(1, "z", pa.int64()), column(2, "b", pa.int64()), column(3, "w", pa.int32())
    evolve(toy, [z, b, w], "z", "b", sort=("w",))
    toy.append(2, table([w, b, z], [{"z": 3, "b": 4, "w": 100}, {"z": 5, "b": 6, "w": -1}]))
    expected = [{"z": n, "b": n + 1, "w": 100 if n == 3 else n} for n in range(9)]
    assert sorted(live_rows(toy), key=lambda row: row["z"]) == expected
    _, published = run(toy)
    assert published.counts.superseded == 2
    assert sorted(live_rows(toy), key=lambda row: row["z"]) == expected
    encoding = read_manifest(toy.store, published.compacted.index).encoding
    assert [key.name for key in encoding.key_columns] == ["z", "b"]
    assert encoding.field_ids == (("z", 1), ("b", 2), ("w", 3))


def test_nested_columns_at_any_depth() -> None:
    inner = [column(11, "x", pa.int64()), column(12, "y", pa.string())]
    point = column(10, "point", pa.struct(inner))
    tags = column(20, "tags", pa.list_(column(21, "element", pa.struct([column(22, "t", pa.string())]))))
    key = pa.field("key", pa.string(), nullable=False, metadata={FIELD_ID: "31"})
    named = column(30, "named", pa.map_(key, column(32, "value", pa.struct([column(33, "n", pa.int64())]))))
    row = {"id": 1, "point": {"x": 1, "y": "a"}, "tags": [{"t": "p"}, None, {"t": None}], "named": [("k", {"n": 7})]}
    none = {"id": 2, "point": None, "tags": None, "named": None}
    empty = {"id": 3, "point": {"x": None, "y": None}, "tags": [], "named": []}
    toy = toy_of([ID, point, tags, named])
    toy.append(1, table([ID, point, tags, named], [row, none, empty]))
    run(toy)
    point = column(10, "place", pa.struct([column(12, "x", pa.string()), column(13, "y", pa.string())]))
    items = pa.struct([column(23, "t", pa.int64()), column(22, "tag", pa.string())])
    tags = column(20, "tags", pa.list_(column(21, "element", items)))
    named = column(30, "named", pa.map_(key, column(32, "value", pa.struct([column(33, "number", pa.int64())]))))
    evolve(toy, [ID, named, tags, point])
    expected = [
        {
            "id": 1,
            "named": [("k", {"number": 7})],
            "tags": [{"t": None, "tag": "p"}, None, {"t": None, "tag": None}],
            "place": {"x": "a", "y": None},
        },
        {"id": 2, "named": None, "tags": None, "place": None},
        {"id": 3, "named": [], "tags": [], "place": {"x": None, "y": None}},
    ]
    assert by_id(toy) == expected
    toy.append(2, table([ID], [{"id": 2}]))
    _, published = run(toy, purge=True)
    assert by_id(toy) == expected
    with files.opened(toy.store, published.compacted.files[-1]) as source:
        assert pq.read_schema(source).field("place").type.field("y").metadata == {FIELD_ID: b"13"}


def test_a_struct_all_of_whose_children_were_replaced_keeps_its_rows() -> None:
    old = column(10, "s", pa.struct([column(11, "a", pa.int64())]))
    toy = toy_of([ID, old])
    toy.append(1, table([ID, old], [{"id": 1, "s": {"a": 1}}, {"id": 2, "s": None}]))
    evolve(toy, [ID, column(10, "s", pa.struct([column(12, "a", pa.int64())]))])
    assert by_id(toy) == [{"id": 1, "s": {"a": None}}, {"id": 2, "s": None}]


@pytest.mark.parametrize("where", ["table", "file"])
def test_a_column_without_an_id_is_refused(where: str) -> None:
    toy = toy_of([ID, pa.field("note", pa.string()) if where == "table" else NOTE])
    toy.append(1, table([ID, pa.field("note", pa.string())], [{"id": 1, "note": "a"}]))
    with pytest.raises(SchemaError, match="column 'note' has no field id"):
        toy.fetch()


def test_a_file_is_matched_once_however_often_a_snapshot_is_made() -> None:
    toy = toy_of([ID, NOTE])
    toy.append(1, table([ID, NOTE], [{"id": 1, "note": "a"}]))
    evolve(toy, [ID, column(2, "remark", pa.string())])
    (file,) = snapshot(toy).deltas[0].files
    assert (file.schema.names, file.stored.names) == (["id", "remark"], ["id", "note"])
    assert field_ids.matched(file, toy.columns) == file
    again = field_ids.matched(file, pa.schema([ID, column(2, "third", pa.string())]))
    assert (again.schema.names, again.stored) == (["id", "third"], file.stored)


def test_what_was_measured_of_a_column_goes_by_its_id() -> None:
    """The old note has longer values than the new one, which is another column."""
    a, v = column(2, "note", pa.string()), column(3, "v", pa.int64())
    file = writing.write_table(MemoryStore(), "a.parquet", table([ID, a, v], []), WriteOptions())
    file = replace(file, schema=pa.schema([ID, a, v]), longest=(("note", 9),))
    assert field_ids.matched(file, pa.schema([ID, column(7, "note", pa.string())])).longest == ()
    renamed = field_ids.matched(file, pa.schema([ID, column(2, "remark", pa.string())]))
    assert renamed.longest == (("remark", 9),)
    assert field_ids.matched(renamed, pa.schema([ID, a])).longest == (("note", 9),)


def test_a_file_whose_values_no_column_of_the_table_holds_is_refused_before_any_work() -> None:
    toy = toy_of([ID, column(2, "n", pa.int64())])
    toy.append(1, table([ID, column(2, "m", pa.string())], [{"id": 1, "m": "a"}]))
    with pytest.raises(SchemaError, match="column 'n' is string, which does not fit int64"):
        run(toy)
    assert not [stat.path for stat in toy.store.list("toy/index")]


def test_the_same_on_ray(tmp_path: Path, ray_cluster: str) -> None:
    from deltacompact.executors.ray import RayExecutor

    a, b, v = column(1, "a", pa.int64()), column(2, "b", pa.int64()), column(3, "v", pa.int32())
    toy = ToyCatalog(LocalStore(tmp_path), TableKeys.of(["a", "b"]), columns=pa.schema([a, b, v]))
    executor = RayExecutor(Settings(executor="ray", ray_address=ray_cluster))
    toy.append(1, table([a, b, v], [{"a": n, "b": n, "v": n} for n in range(9)]))
    run(toy, executor, rows_per_round=4)
    z, w = column(1, "z", pa.int64()), column(7, "v", pa.string())
    evolve(toy, [b, w, z], "z", "b")
    toy.append(2, table([z, w, b], [{"z": 3, "b": 3, "v": "new"}]))
    run(toy, executor)
    expected = [{"b": n, "v": "new" if n == 3 else None, "z": n} for n in range(9)]
    assert sorted(live_rows(toy), key=lambda row: row["z"]) == expected


def test_manifests_of_tables_that_match_by_name_say_nothing_of_ids_or_paths() -> None:
    store = MemoryStore()
    toy = ToyCatalog(store, TableKeys.of(["id"]))
    toy.append(1, pa.table({"id": [1]}))
    _, published = run(toy)
    manifest = read_manifest(store, published.compacted.index)
    bare = IndexManifest(manifest.encoding, manifest.runs, manifest.rows, manifest.tombstones)
    assert b"field_ids" not in bare.to_bytes() and b"data_files" not in bare.to_bytes()
    assert IndexManifest.from_bytes(manifest.to_bytes(), "m") == manifest


# --- any evolution of a schema, against a model ----------------------------------------------------------------------

KEY_ID, STRUCT_ID = 1, 2
Names = dict[int, str]

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 5), min_size=1, max_size=5), st.just(0)),
        st.tuples(st.just("compact"), st.sampled_from([1, 4, 100]), st.sampled_from([0.0, 0.9])),
        st.tuples(st.just("rename"), st.integers(0, 9), st.sampled_from("abcdef")),
        st.tuples(st.just("add"), st.sampled_from("abcdef"), st.booleans()),
        st.tuples(st.just("drop"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("reorder"), st.randoms(use_true_random=False), st.just(0)),
    ),
    min_size=1,
    max_size=12,
)


class Evolving:
    """A table of integer columns and a struct of integers. Values are kept by field id, as they should be read."""

    def __init__(self) -> None:
        self.columns: Names = {KEY_ID: "k", STRUCT_ID: "s", 3: "a"}
        self.children: Names = {4: "a", 5: "b"}
        self.next = 6
        self.rows: dict[int, tuple[dict[int, int], dict[int, int]]] = {}
        self.toy = ToyCatalog(MemoryStore(), TableKeys.of(["k"]), columns=self.schema)

    @property
    def schema(self) -> pa.Schema:
        children = pa.struct([column(number, name, pa.int64()) for number, name in self.children.items()])
        return pa.schema(
            column(number, name, children if number == STRUCT_ID else pa.int64())
            for number, name in self.columns.items()
        )

    def append(self, position: int, keys: list[int]) -> None:
        rows = []
        for place, key in enumerate(keys):
            values = {number: position * 1000 + place * 100 + number for number in range(self.next)}
            flat = {number: values[number] for number in self.columns if number not in (KEY_ID, STRUCT_ID)}
            inner = {number: values[number] for number in self.children}
            self.rows[key] = (flat, inner)
            rows.append(self.named(key, flat, inner))
        self.toy.append(position, pa.Table.from_pylist(rows, self.schema))

    def named(self, key: int, flat: dict[int, int], inner: dict[int, int]) -> dict[str, Any]:
        struct = {name: inner.get(number) for number, name in self.children.items()}
        return {
            name: key if number == KEY_ID else struct if number == STRUCT_ID else flat.get(number)
            for number, name in self.columns.items()
        }

    def expected(self) -> list[dict[str, Any]]:
        return [self.named(key, *self.rows[key]) for key in sorted(self.rows)]

    def change(self, kind: str, first: Any, second: Any) -> None:
        if kind == "rename":
            names = self.columns if first % 2 else self.children
            number = list(names)[first % len(names)]
            if second not in names.values():
                names[number] = second
        elif kind == "add":
            names = self.columns if second else self.children
            if first not in names.values():
                names[self.next] = first
                self.next += 1
        elif kind == "drop":
            names = self.columns if first % 2 else self.children
            number = list(names)[first % len(names)]
            if number not in (KEY_ID, STRUCT_ID) and len(names) > 1:
                del names[number]
        elif kind == "reorder":
            for attribute in ("columns", "children"):
                pairs = list(getattr(self, attribute).items())
                first.shuffle(pairs)
                setattr(self, attribute, dict(pairs))
        self.toy.columns, self.toy.keys = self.schema, TableKeys.of([self.columns[KEY_ID]])


@given(ACTIONS)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_any_evolution_is_read_by_id(actions: list[tuple[str, Any, Any]]) -> None:
    lake = Evolving()
    for position, (kind, first, second) in enumerate(actions, 1):
        if kind == "append":
            lake.append(position, first)
        elif kind == "compact":
            if lake.toy.newest()[1]["deltas"]:
                run(lake.toy, rows_per_round=first, rewrite_dead_fraction=second)
        else:
            lake.change(kind, first, second)
        key = lake.columns[KEY_ID]
        assert sorted(live_rows(lake.toy), key=lambda row: row[key]) == lake.expected()


def test_other_formats_are_matched_too() -> None:
    store = MemoryStore()
    rows = table([ID, NOTE], [{"id": n, "note": str(n)} for n in range(5)])
    for content_type in (ContentType.FEATHER, ContentType.ORC, ContentType.CSV):
        path = "a" + formats.suffix_of(content_type)
        written = writing.write_table(store, path, rows, WriteOptions(content_type))
        file = DataFile(UNNUMBERED, path, content_type, written.rows, written.bytes, rows.schema)
        file = field_ids.matched(file, pa.schema([column(2, "remark", pa.string()), ID]))
        ((_, read),) = files.read(store, file, ["remark"], (1, 3))
        assert read.to_pylist() == [{"remark": "1"}, {"remark": "2"}]

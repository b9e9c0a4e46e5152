"""Columns that are matched by field id: a file is read under the table's names of today, whatever it calls them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from budgets import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import SchemaError
from deltacompact.base.model import ContentType, Partition
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import field_ids, files, formats, schemas, writing
from deltacompact.tabular.field_ids import FIELD_ID
from deltacompact.tabular.row_groups import WriteOptions


def column(number: int, name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, metadata={FIELD_ID: str(number)})


def table(columns: list[pa.Field], rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema(columns))


ID, NOTE, PRICE = column(1, "id", pa.int64()), column(2, "note", pa.string()), column(3, "price", pa.float64())


STORE = MemoryStore()


def stored(columns: list[pa.Field], rows: list[dict[str, Any]], path: str = "a.parquet") -> DataFile:
    """A file of these rows, which knows its columns as a table's metadata would tell them."""
    file = writing.write_table(STORE, path, table(columns, rows), WriteOptions())
    return replace(file, schema=pa.schema(columns))


def read(file: DataFile, columns: list[pa.Field]) -> list[dict[str, Any]]:
    """The file's rows under the table's names of today, with null in columns that it lacks."""
    today = pa.schema(columns)
    tables = [rows for _, rows in files.read(STORE, field_ids.matched(file, today), today.names)]
    aligned = [schemas.align(rows, today, Partition(), file.path) for rows in tables]
    return [row for rows in aligned for row in rows.to_pylist()]


def test_a_renamed_column_is_read_under_its_new_name() -> None:
    file = stored([ID, NOTE], [{"id": 1, "note": "a"}, {"id": 2, "note": "b"}])
    found = read(file, [ID, column(2, "remark", pa.string())])
    assert found == [{"id": 1, "remark": "a"}, {"id": 2, "remark": "b"}]


def test_a_name_that_was_dropped_and_added_again_is_another_column() -> None:
    file = stored([ID, NOTE], [{"id": 1, "note": "old"}])
    assert read(file, [ID, column(7, "note", pa.int64())]) == [{"id": 1, "note": None}]


def test_two_columns_that_swapped_their_names() -> None:
    a, b = column(2, "a", pa.string()), column(3, "b", pa.string())
    file = stored([ID, a, b], [{"id": n, "a": f"a{n}", "b": f"b{n}"} for n in range(3000)])
    found = read(file, [ID, column(3, "a", pa.string()), column(2, "b", pa.string())])
    assert found == [{"id": n, "a": f"b{n}", "b": f"a{n}"} for n in range(3000)]


@pytest.mark.parametrize("renamed", [False, True])
def test_row_groups_may_be_copied_where_ids_and_names_agree(renamed: bool) -> None:
    today = pa.schema([ID, column(2, "remark", pa.string()) if renamed else NOTE])
    file = field_ids.matched(stored([ID, NOTE], [{"id": 1, "note": "a"}]), today)
    assert field_ids.agree(file, today) is not renamed


def test_nested_columns_at_any_depth() -> None:
    inner = [column(11, "x", pa.int64()), column(12, "y", pa.string())]
    point = column(10, "point", pa.struct(inner))
    tags = column(20, "tags", pa.list_(column(21, "element", pa.struct([column(22, "t", pa.string())]))))
    key = pa.field("key", pa.string(), nullable=False, metadata={FIELD_ID: "31"})
    named = column(30, "named", pa.map_(key, column(32, "value", pa.struct([column(33, "n", pa.int64())]))))
    row = {"id": 1, "point": {"x": 1, "y": "a"}, "tags": [{"t": "p"}, None, {"t": None}], "named": [("k", {"n": 7})]}
    none = {"id": 2, "point": None, "tags": None, "named": None}
    empty = {"id": 3, "point": {"x": None, "y": None}, "tags": [], "named": []}
    file = stored([ID, point, tags, named], [row, none, empty])
    point = column(10, "place", pa.struct([column(12, "x", pa.string()), column(13, "y", pa.string())]))
    items = pa.struct([column(23, "t", pa.int64()), column(22, "tag", pa.string())])
    tags = column(20, "tags", pa.list_(column(21, "element", items)))
    named = column(30, "named", pa.map_(key, column(32, "value", pa.struct([column(33, "number", pa.int64())]))))
    assert read(file, [ID, named, tags, point]) == [
        {
            "id": 1,
            "named": [("k", {"number": 7})],
            "tags": [{"t": None, "tag": "p"}, None, {"t": None, "tag": None}],
            "place": {"x": "a", "y": None},
        },
        {"id": 2, "named": None, "tags": None, "place": None},
        {"id": 3, "named": [], "tags": [], "place": {"x": None, "y": None}},
    ]


def test_a_struct_all_of_whose_children_were_replaced_keeps_its_rows() -> None:
    old = column(10, "s", pa.struct([column(11, "a", pa.int64())]))
    file = stored([ID, old], [{"id": 1, "s": {"a": 1}}, {"id": 2, "s": None}])
    again = column(10, "s", pa.struct([column(12, "a", pa.int64())]))
    assert read(file, [ID, again]) == [{"id": 1, "s": {"a": None}}, {"id": 2, "s": None}]


@pytest.mark.parametrize("where", ["table", "file"])
def test_a_column_without_an_id_is_refused(where: str) -> None:
    bare = pa.field("note", pa.string())
    file = stored([ID, bare if where == "file" else NOTE], [{"id": 1, "note": "a"}])
    with pytest.raises(SchemaError, match="column 'note' has no field id"):
        field_ids.matched(file, pa.schema([ID, bare if where == "table" else NOTE]))


def test_a_file_is_matched_once_however_often() -> None:
    today = pa.schema([ID, column(2, "remark", pa.string())])
    file = field_ids.matched(stored([ID, NOTE], [{"id": 1, "note": "a"}]), today)
    assert file.stored is not None
    assert (file.schema.names, file.stored.names) == (["id", "remark"], ["id", "note"])
    assert field_ids.matched(file, today) == file
    again = field_ids.matched(file, pa.schema([ID, column(2, "third", pa.string())]))
    assert (again.schema.names, again.stored) == (["id", "third"], file.stored)


def test_what_was_measured_of_a_column_goes_by_its_id() -> None:
    """The old note has longer values than the new one, which is another column."""
    a, v = column(2, "note", pa.string()), column(3, "v", pa.int64())
    file = replace(stored([ID, a, v], []), longest=(("note", 9),))
    assert field_ids.matched(file, pa.schema([ID, column(7, "note", pa.string())])).longest == ()
    renamed = field_ids.matched(file, pa.schema([ID, column(2, "remark", pa.string())]))
    assert renamed.longest == (("remark", 9),)
    assert field_ids.matched(renamed, pa.schema([ID, a])).longest == (("note", 9),)


# --- any evolution of a schema, against a model ----------------------------------------------------------------------

KEY_ID, STRUCT_ID = 1, 2
Names = dict[int, str]

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 5), min_size=1, max_size=5), st.just(0)),
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
        self.rows: list[tuple[int, dict[int, int], dict[int, int]]] = []
        self.files: list[DataFile] = []

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
            self.rows.append((key, flat, inner))
            rows.append(self.named(key, flat, inner))
        self.files.append(stored(list(self.schema), rows, f"{position}.parquet"))

    def named(self, key: int, flat: dict[int, int], inner: dict[int, int]) -> dict[str, Any]:
        struct = {name: inner.get(number) for number, name in self.children.items()}
        return {
            name: key if number == KEY_ID else struct if number == STRUCT_ID else flat.get(number)
            for number, name in self.columns.items()
        }

    def expected(self) -> list[dict[str, Any]]:
        return [self.named(*row) for row in self.rows]

    def found(self) -> list[dict[str, Any]]:
        return [row for file in self.files for row in read(file, list(self.schema))]

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


@given(ACTIONS)
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
def test_any_evolution_is_read_by_id(actions: list[tuple[str, Any, Any]]) -> None:
    lake = Evolving()
    for position, (kind, first, second) in enumerate(actions, 1):
        if kind == "append":
            lake.append(position, first)
        else:
            lake.change(kind, first, second)
        assert lake.found() == lake.expected()


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

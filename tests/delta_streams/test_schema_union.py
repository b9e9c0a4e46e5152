"""Deltas with schemas of any kind: a table holds their rows, or refuses them by file and column before any work."""

from __future__ import annotations

import io
import json
import math
import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from budgets import examples
from columns import bag
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import problems

from deltacompact import ContentType, DeltaStreamCatalog, Settings, check, compact
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import InputError, SchemaError
from deltacompact.base.model import OperationType, Partition
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import column_types, schemas
from deltacompact.tabular.conversion import converted

DAY = date(2024, 2, 29)
LOCAL = Settings(executor="local", local_threads=1)
REQUIRED = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])


@pytest.fixture
def catalog() -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    return catalog


def compacted(catalog: DeltaStreamCatalog, content_type: str = "parquet") -> list[dict[str, Any]]:
    """The rows after a compaction, which are those of the merge-on-read before it."""
    before = rows_of(catalog)
    compact("t", delta_catalog_client=catalog, settings=LOCAL, compacted_file_content_type=content_type)
    after = rows_of(catalog)
    assert list(map(canonical, after)) == list(map(canonical, before))
    assert problems(catalog) == []
    return after


def rows_of(catalog: DeltaStreamCatalog) -> list[dict[str, Any]]:
    table = catalog.read("t")
    assert not any(field.metadata for field in table.schema)
    return sorted(table.to_pylist(), key=lambda row: str(row.get("k")).zfill(3))


def canonical(value: Any) -> Any:
    """Values that may be compared, without regard to children of structs that are null; NaN equals itself."""
    if isinstance(value, dict):
        return frozenset((name, canonical(each)) for name, each in value.items() if each is not None)
    if isinstance(value, list | tuple):
        return tuple(canonical(each) for each in value)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


# --- nullable in depth -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", ["parquet", "feather", "orc"])
def test_a_struct_with_a_required_child_and_then_a_delta_without_the_column(
    catalog: DeltaStreamCatalog, content_type: str
) -> None:
    pair = pa.array([{"a": 1, "b": "x"}], REQUIRED)
    catalog.append(
        "t", pa.table({"k": [1], "pair": pair, "pairs": pa.array([[{"a": 2, "b": None}]], pa.list_(REQUIRED))})
    )
    catalog.append("t", pa.table({"k": [2]}))
    assert compacted(catalog, content_type) == [
        {"k": 1, "pair": {"a": 1, "b": "x"}, "pairs": [{"a": 2, "b": None}]},
        {"k": 2, "pair": None, "pairs": None},
    ]


def test_a_table_of_the_code_before_whose_schema_has_a_required_child_is_compacted_on() -> None:
    base = pa.schema([pa.field("k", pa.int64()), pa.field("pair", REQUIRED)])
    assert schemas.union([], base).field("pair").type.field("a").nullable


@pytest.mark.parametrize(
    ("required", "nullable"),
    [
        (pa.list_(pa.field("item", pa.int8(), nullable=False)), pa.list_(pa.int8())),
        (pa.map_(pa.string(), pa.field("value", REQUIRED, nullable=False)), None),
        (pa.large_list(REQUIRED), None),
        (pa.list_(REQUIRED, 2), None),
    ],
)
def test_everything_nested_is_nullable_but_the_keys_of_maps(
    required: pa.DataType, nullable: pa.DataType | None
) -> None:
    stored = column_types.stored_type(required)
    assert nullable is None or stored == nullable
    assert all(field.nullable for field in nested_fields(stored))
    assert column_types.stored_type(stored) == stored


@pytest.mark.parametrize(
    ("type_", "stored"),
    [
        (pa.decimal32(5, 2), pa.decimal128(5, 2)),
        (pa.decimal256(38, 2), pa.decimal128(38, 2)),
        (pa.decimal256(39, 2), pa.decimal256(39, 2)),
        (pa.struct([("a", pa.decimal64(9, 0))]), pa.struct([("a", pa.decimal128(9, 0))])),
        (pa.list_(pa.float32(), 3), pa.list_(pa.float32(), 3)),
        (pa.list_(pa.struct([("a", pa.int8())]), 3), pa.list_(pa.struct([("a", pa.int8())]))),
    ],
)
def test_compacted_files_have_decimals_and_lists_that_every_reader_takes(
    type_: pa.DataType, stored: pa.DataType
) -> None:
    assert column_types.stored_type(type_) == column_types.stored_type(stored) == stored


def nested_fields(type_: pa.DataType) -> list[pa.Field]:
    """All fields in depth but the keys of maps."""
    if pa.types.is_map(type_):
        direct = [type_.item_field]
    elif pa.types.is_struct(type_):
        direct = list(type_)
    elif pa.types.is_nested(type_):
        direct = [type_.value_field]
    else:
        direct = []
    return direct + [field for each in direct for field in nested_fields(each.type)]


# --- layouts of other programs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", ["parquet", "feather"])
@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_files_of_polars_with_categories_at_any_depth(tmp_path: Any, suffix: str, content_type: str) -> None:
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "lake"))
    catalog.create_table("t", primary_keys=["k"], sort_keys=["category"])
    for number, words in enumerate((["b", "a"], ["c", "é"])):
        frame = pl.DataFrame(
            {
                "k": pl.Series([f"{number}{word}" for word in words], dtype=pl.Categorical),
                "category": pl.Series(words, dtype=pl.Categorical),
                "enum": pl.Series([words[0], None], dtype=pl.Enum(words)),
                "listed": pl.Series([words, None], dtype=pl.List(pl.Categorical)),
                "inside": pl.Series([{"c": words[0], "n": [words[1]]}, None], dtype=INSIDE),
                "array": pl.Series([words, None], dtype=pl.Array(pl.String, 2)),
                "bytes": pl.Series([b"1", None], dtype=pl.Binary),
            }
        )
        path = tmp_path / f"{number}{suffix}"
        frame.write_ipc(path) if suffix == ".arrow" else frame.write_parquet(path)
        catalog.append_files("t", [path])
    rows = compacted(catalog, content_type)
    assert [row["k"] for row in rows] == ["0a", "0b", "1c", "1é"]
    assert rows[1] == {
        "k": "0b",
        "category": "b",
        "enum": "b",
        "listed": ["b", "a"],
        "inside": {"c": "b", "n": ["a"]},
        "array": ["b", "a"],
        "bytes": b"1",
    }


INSIDE = pl.Struct({"c": pl.Categorical, "n": pl.List(pl.Categorical)})


@pytest.mark.parametrize(
    "column",
    [
        pa.ExtensionArray.from_storage(pa.json_(pa.string_view()), pa.array(["1", None]).cast(pa.string_view())),
        pa.array([["x", None], None], pa.list_(pa.string_view())),
        pa.array([["x", None], None], pa.list_view(pa.string_view())),
        pa.array([[1, None], None], pa.large_list_view(pa.int8())),
        pa.array([{"a": b"x"}, None], pa.struct([("a", pa.binary_view())])),
        pa.array([["x", "y"], None], pa.list_(pa.string_view(), 2)),
        pa.array([[("x", b"y")], None], pa.map_(pa.string_view(), pa.binary_view())),
        pc.run_end_encode(pa.array(["x", None])),
        pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.uint8()), pa.array([b"x", None]).cast(pa.binary_view())),
        pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int64()), pa.array(["x"]), ordered=True),
        pa.array([1.5, None], pa.float16()),
        pa.array([[1.5], None], pa.list_(pa.float16())),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("content_type", ["parquet", "feather"])
@pytest.mark.slow
def test_layouts_in_memory_are_read_from_an_arrow_file(tmp_path: Any, column: pa.Array, content_type: str) -> None:
    """A first file of plain values, a second one in the layout; and the other way round."""
    for order in (1, -1):
        catalog = DeltaStreamCatalog(LocalStore(tmp_path / f"lake{order}"))
        catalog.create_table("t", primary_keys=["k"])
        plain = converted(column, column_types.plain_type(column.type))
        for number, values in enumerate([plain, column][::order]):
            path = tmp_path / f"{order}{number}.arrow"
            with (
                pa.OSFile(str(path), "wb") as sink,
                pa.ipc.new_file(sink, pa.schema([("k", pa.int8()), ("c", values.type)])) as out,
            ):
                out.write_table(pa.table({"k": pa.array([2 * number, 2 * number + 1], pa.int8()), "c": values}))
            catalog.append_files("t", [path])
        rows = compacted(catalog, content_type)
        assert [row["c"] for row in rows] == plain.to_pylist() * 2


@pytest.mark.parametrize("content_type", ["parquet", "feather", "orc"])
def test_dictionaries_within_others_are_written_as_their_values(catalog: DeltaStreamCatalog, content_type: str) -> None:
    words = pa.array([["x", "y"], None], pa.list_(pa.dictionary(pa.int8(), pa.string())))
    catalog.append("t", pa.table({"k": [1, 2], "c": words}))
    assert [row["c"] for row in compacted(catalog, content_type)] == [["x", "y"], None]


# --- files without rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty_first", [True, False])
@pytest.mark.parametrize("compacted_between", [True, False])
def test_a_file_without_rows_refuses_nothing_whatever_its_columns_are(
    catalog: DeltaStreamCatalog, empty_first: bool, compacted_between: bool
) -> None:
    empty = pa.schema([("c", pa.struct([("a", pa.int8())])), ("only", pa.int16())]).empty_table()
    wrong = pa.schema([("k", pa.list_(pa.int8())), ("c", pa.binary())]).empty_table()
    rows = pa.table({"k": [1], "c": ["x"]})
    for table in [empty, wrong, rows] if empty_first else [rows, wrong, empty]:
        catalog.append("t", table)
        if compacted_between:
            compacted(catalog)
    catalog.append("t", wrong, operation="delete")
    assert compacted(catalog) == [{"k": 1, "c": "x", "only": None}]


def test_a_column_that_only_files_without_rows_have_takes_the_type_of_the_first_rows(
    catalog: DeltaStreamCatalog,
) -> None:
    """However often the table was compacted, and rewritten with that column, in between."""
    catalog.append("t", pa.table({"k": pa.array([], pa.int64()), "c": pa.array([], pa.int32())}))
    catalog.append("t", pa.table({"k": [1]}))
    assert compacted(catalog) == [{"k": 1, "c": None}]
    assert catalog.read("t").schema.field("c").type == pa.int32()
    catalog.append("t", pa.table({"k": [2], "c": [{"a": "x"}]}))
    assert compacted(catalog) == [{"k": 1, "c": None}, {"k": 2, "c": {"a": "x"}}]


@pytest.mark.parametrize("type_", [pa.null(), pa.int32()])
def test_keys_are_in_compacted_files_although_no_row_has_had_a_value(tmp_path: Path, type_: pa.DataType) -> None:
    """A file without any column cannot say how many rows it has."""
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "lake"))
    catalog.create_table("t", primary_keys=["k"], sort_keys=["s"])
    for rows in ([], [None], [None], []):
        columns = {name: pa.array(rows, pa.null() if rows else type_) for name in ("k", "s", "c")}
        catalog.append("t", pa.table(columns))
        compact("t", delta_catalog_client=catalog, settings=Settings(executor="local"))
        assert check(catalog, "t")[0].problems == ()
    assert catalog.read("t").to_pylist() == [{"k": None, "s": None, "c": None}]


def test_values_in_a_copy_of_a_file_of_ours_decide_the_type_of_their_column(catalog: DeltaStreamCatalog) -> None:
    """Release 0.2 wrote the mark into files. It says nothing of rows that others put under the copied schema."""
    marked = pa.field("c", pa.int32(), metadata={"deltacompact": "no row yet"})
    catalog.append("t", pa.table([pa.array([1]), pa.array([5], pa.int32())], pa.schema([("k", pa.int64()), marked])))
    with pytest.raises(SchemaError, match="column 'c' is string, which does not fit int32"):
        catalog.append("t", pa.table({"k": [2], "c": ["x"]}))


def test_the_types_of_a_file_without_rows_are_those_of_a_csv_file_after_it(tmp_path: Any) -> None:
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "lake"))
    catalog.create_table("t", primary_keys=["zip"])
    catalog.append("t", pa.schema([("zip", pa.string())]).empty_table())
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    (tmp_path / "a.csv").write_text("zip\n01234\n")
    catalog.append_files("t", [tmp_path / "a.csv"])
    assert catalog.read("t").to_pylist() == [{"zip": "01234"}]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.large_list(pa.int64()), [1, 2]),
        (pa.list_(pa.int8(), 2), [1, 2]),
        (pa.struct([("at", pa.date32()), ("words", pa.large_list(pa.large_string()))]), {"at": DAY, "words": ["x"]}),
        (pa.json_(), "{}"),
        (pa.float16(), 1.5),
    ],
    ids=str,
)
def test_json_lines_take_the_types_of_a_file_of_polars_before_them(
    tmp_path: Any, type_: pa.DataType, value: Any
) -> None:
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "lake"))
    catalog.create_table("t", primary_keys=["k"])
    catalog.append("t", pa.table({"k": [1], "c": pa.array([value], type_)}))
    (tmp_path / "a.jsonl").write_text(json.dumps({"k": 2, "c": value}, default=str) + "\n")
    catalog.append_files("t", [tmp_path / "a.jsonl"])
    assert compacted(catalog) == [{"k": 1, "c": value}, {"k": 2, "c": value}]
    assert catalog.read("t").schema.field("c").type == type_


@pytest.mark.parametrize(
    ("name", "texts"),
    [("csv", ["id,v\n", "id,v\n,\n", "id,v\n7,x\n"]), ("jsonl", ["", '{"id":null,"v":null}\n', '{"id":7,"v":"x"}\n'])],
)
def test_a_column_that_had_no_value_yet_takes_any(tmp_path: Any, name: str, texts: list[str]) -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", (), ["id"])
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.{name}"
        path.write_text(text)
        if text:
            catalog.append_files("t", [path])
    expected = bag([{"id": None}, {"id": 7, "v": "x"}])
    assert bag(catalog.read("t").to_pylist()) == expected
    assert bag(compacted(catalog)) == expected


def test_half_floats_are_written_as_csv_and_read_again(catalog: DeltaStreamCatalog) -> None:
    values = [1.5, -65504.0, math.nan, None]
    catalog.append("t", pa.table({"k": range(4), "c": pa.array(values, pa.float16())}))
    rows = compacted(catalog, "csv")
    assert canonical([row["c"] for row in rows]) == canonical(values)
    assert catalog.read("t").schema.field("c").type == pa.float16()


# --- any two schemas -------------------------------------------------------------------------------------------------


LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((kind, st.integers(0, 100)) for kind in (pa.int8(), pa.int64(), pa.uint16(), pa.uint64())),
    *((kind, st.sampled_from([0.5, -2.0, math.nan])) for kind in (pa.float16(), pa.float32(), pa.float64())),
    *((kind, st.text("aé", max_size=3)) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, st.binary(max_size=3)) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.binary(2), st.just(b"ab")),
    (pa.dictionary(pa.int8(), pa.string()), st.text("aé", max_size=3)),
    (pa.dictionary(pa.uint32(), pa.string_view()), st.text("aé", max_size=3)),
    (pa.dictionary(pa.int32(), pa.int16()), st.integers(0, 100)),
    *((kind, st.just(Decimal("1.50"))) for kind in (pa.decimal128(4, 2), pa.decimal256(40, 2), pa.decimal64(9, 2))),
    *((kind, st.just(datetime(2024, 2, 29, 1))) for kind in (pa.timestamp("s"), pa.timestamp("us"))),
    *((kind, st.just(date(2024, 2, 29))) for kind in (pa.date32(), pa.date64())),
    (pa.bool_(), st.booleans()),
    (pa.null(), st.none()),
]


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """A type, and its values as Python has them."""
    kind = draw(st.sampled_from(["leaf", "leaf", "struct", "list", "map"])) if depth else "leaf"
    if kind == "leaf":
        type_, values = draw(st.sampled_from(LEAVES))
        return type_, st.none() | values
    if kind == "struct":
        names = draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True))
        inside = {name: draw(types(depth - 1)) for name in names}
        fields = [pa.field(name, type_, nullable=True) for name, (type_, _) in inside.items()]
        return pa.struct(fields), st.none() | st.fixed_dictionaries(
            {name: values for name, (_, values) in inside.items()}
        )
    type_, values = draw(types(depth - 1))
    if kind == "map":
        pairs = st.lists(st.tuples(st.text("xy", max_size=2), values), max_size=2, unique_by=lambda pair: pair[0])
        return pa.map_(pa.string(), type_, draw(st.booleans())), st.none() | pairs
    size = draw(st.none() | st.just(2))
    if size:
        return pa.list_(type_, size), st.none() | st.lists(values, min_size=size, max_size=size)
    make = draw(st.sampled_from([pa.list_, pa.large_list, pa.list_view, pa.large_list_view]))
    return make(type_), st.none() | st.lists(values, max_size=3)


def array_of(values: list[Any], type_: pa.DataType) -> pa.Array:
    """pyarrow cannot make every type from Python's values: the others are made of the plain type."""
    try:
        array = pa.array(values, type_)
        array.validate(full=True)
        return array
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, NotImplementedError):
        return converted(pa.array(values, column_types.stored_type(type_)), column_types.stored_type(type_))


@st.composite
def deltas(draw: st.DrawFn, first_key: int) -> pa.Table:
    rows = draw(st.integers(0, 3))
    columns = {"k": pa.array(range(first_key, first_key + rows), pa.int64())}
    for name in draw(st.lists(st.sampled_from(["u", "v"]), unique=True)):
        type_, values = draw(types())
        columns[name] = array_of(draw(st.lists(values, min_size=rows, max_size=rows)), type_)
    return pa.table(columns)


@pytest.mark.slow
@given(deltas(0), deltas(10), deltas(20), st.sampled_from(["parquet", "feather", "orc"]), st.booleans())
@settings(
    max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_deltas_of_any_schemas_are_compacted_or_refused_by_file_and_column(
    first: pa.Table, second: pa.Table, third: pa.Table, content_type: str, compacted_between: bool
) -> None:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    expected = []
    for number, table in enumerate((first, second, third)):
        path = f"given/{number}.arrow"
        sink = io.BytesIO()
        feather.write_feather(table, sink, compression="uncompressed")
        catalog.store.put(path, sink.getvalue())
        described = DataFile(0, path, ContentType.FEATHER, table.num_rows, len(sink.getvalue()), table.schema)
        try:
            catalog.commit("t", Partition(), [(OperationType.UPSERT, [described])])
            expected += table.to_pylist()
            rows = rows_of(catalog)
            assert list(map(canonical, rows)) == list(map(canonical, expected))
            if compacted_between or number == 2:
                objects = len(list(catalog.store.list("t/data/")))
                assert list(map(canonical, compacted(catalog, content_type))) == list(map(canonical, expected))
        except SchemaError as error:
            assert path in str(error) and ("'u'" in str(error) or "'v'" in str(error))
            return
        except InputError as error:
            assert content_type in str(error) and ("'u'" in str(error) or "'v'" in str(error))
            assert len(list(catalog.store.list("t/data/"))) == objects, "refused only after work was done"
            return


def test_a_struct_in_a_later_delta_adds_children_and_reorders_them(catalog: DeltaStreamCatalog) -> None:
    catalog.append("t", pa.table({"k": [1], "c": pa.array([{"a": 1, "b": "x"}])}))
    catalog.append("t", pa.table({"k": [2], "c": pa.array([{"b": "y", "c": 1.5, "a": 2}])}))
    with pytest.raises(SchemaError, match="column 'c' is map"):
        catalog.append("t", pa.table({"k": [3], "c": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))}))
    assert compacted(catalog) == [
        {"k": 1, "c": {"a": 1, "b": "x", "c": None}},
        {"k": 2, "c": {"a": 2, "b": "y", "c": 1.5}},
    ]


def test_an_output_of_a_nested_column_has_the_types_that_were_asked_for(catalog: DeltaStreamCatalog) -> None:
    narrow, wide = pa.list_(pa.struct([("n", pa.int8())])), pa.list_(pa.struct([("n", pa.int64())]))
    catalog.append("t", pa.table({"k": [1], "c": pa.array([[{"n": 1}]], narrow)}))
    catalog.append("t", pa.table({"k": [2], "c": pa.array([[{"n": 2**40}]], wide)}))
    assert [row["c"] for row in compacted(catalog)] == [[{"n": 1}], [{"n": 2**40}]]
    state = catalog.state("t", Partition())
    assert state.compacted is not None
    with catalog.store.open(state.compacted.files[0].path) as source:
        assert pq.ParquetFile(source).schema_arrow.field("c").type == wide


def test_duckdb_reads_kept_files_beside_those_with_new_columns_as_the_documents_say(tmp_path: Path) -> None:
    """By itself it takes the columns of the first file for those of all."""
    text = (Path(__file__).parents[2] / "docs/reading.md").read_text()
    (said,) = re.findall(r"duckdb\.read_parquet\(catalog\.compacted_files\(\"orders\"\).*?\)(?=`)", text)
    catalog = DeltaStreamCatalog(LocalStore(tmp_path))
    catalog.create_table("orders", primary_keys=["k"])
    for rows in ({"k": [1, 2]}, {"k": [3, 4], "v": ["a", "b"]}):
        catalog.append("orders", pa.table(rows))
        compact("orders", delta_catalog_client=catalog, settings=LOCAL, rows_per_compacted_file=2)
    assert len(catalog.compacted_files("orders")) == 2
    shown = eval(said, {"duckdb": duckdb, "catalog": catalog})
    assert sorted(shown.fetchall()) == [(1, None), (2, None), (3, "a"), (4, "b")]

"""What people hand to append: frames of any library, streams, folders, globs, prefixes, compressed text."""

from __future__ import annotations

import bz2
import datetime
import gzip
import json
import os
from decimal import Decimal

import boto3
import botocore.exceptions
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import deltacompact
from deltacompact import InputError, SchemaError, Settings, cli, compact, open_catalog
from deltacompact.base.model import Partition
from deltacompact.delta_streams.appending.sources import sources
from deltacompact.maintenance.check import check
from deltacompact.tabular import formats

ROWS = pa.table({"id": [1, 2, 3], "v": ["a", None, "c"]})
LOCAL = Settings(executor="local")
ODD = pa.list_(pa.uuid(), 2)
"""Of this type, pyarrow makes no table without rows."""


@pytest.fixture
def catalog(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    return catalog


class Stream:
    """An object of a library that nobody here knows."""

    def __arrow_c_stream__(self, requested_schema=None):
        return ROWS.__arrow_c_stream__(requested_schema)


class Array:
    def __arrow_c_array__(self, requested_schema=None):
        return ROWS.to_batches()[0].__arrow_c_array__(requested_schema)


FORMS = {
    "Table": lambda: ROWS,
    "RecordBatch": lambda: ROWS.to_batches()[0],
    "RecordBatchReader": lambda: ROWS.to_reader(max_chunksize=1),
    "dataset": lambda: pa.dataset.dataset(ROWS),
    "scanner": lambda: pa.dataset.dataset(ROWS).scanner(),
    "pandas": lambda: ROWS.to_pandas(),
    "pandas, filtered": lambda: pd.concat([ROWS.to_pandas(), ROWS.to_pandas()]).iloc[3:],
    "pandas, keyed": lambda: ROWS.to_pandas().set_index("id"),
    "Polars": lambda: pl.from_arrow(ROWS),
    "__arrow_c_stream__": Stream,
    "__arrow_c_array__": Array,
    "StructArray": lambda: ROWS.to_struct_array().combine_chunks(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
def test_rows_in_any_form_are_appended_alone_and_in_lists(catalog, form):
    delta = catalog.append("t", FORMS[form]())
    assert (len(delta.files), delta.rows) == (1, 3)
    assert delta.files[0].schema.names == ["id", "v"]
    delta = catalog.append("t", [FORMS[form](), ROWS, FORMS[form]()])
    assert [file.rows for file in delta.files] == [3, 3, 3]
    assert catalog.read("t").select(["id", "v"]).sort_by("id").cast(ROWS.schema).equals(ROWS)
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert check(catalog, "t")[0].problems == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"id": [1]}, "not a dict (pyarrow.table"),
        ([{"id": 1}], "item 1 of the list is a dict"),
        ("rows.parquet", "not a str (append_files appends files)"),
        (b"rows", "not a bytes"),
        (7, "not an int"),
        (None, "not a NoneType"),
        ([ROWS, None], "item 2 of the list is a NoneType"),
        ([[1, 2]], "item 1 of the list is a list"),
        (pl.DataFrame({"id": [1]}).lazy(), "(collect it first)"),
        (pd.DataFrame, "not the class DataFrame"),
        (pd.Series([1]), "gives no rows"),
        (pl.Series([1]), "gives no rows"),
        (pa.array([1]), "gives no rows"),
        (
            pd.DataFrame({"o": [object()]}),
            "inferring an Arrow data type; Conversion failed for column o with type object",
        ),
        (np.ones(3), "item 1 of the list is a numpy.float64"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_holds_no_rows_is_refused_in_one_line(catalog, given, said):
    for call in (catalog.append, catalog.restate):
        with pytest.raises(InputError) as raised:
            call("t", given)
        assert said in str(raised.value) and "\n" not in str(raised.value)
    assert [stat.path for stat in catalog.store.list("t/data/")] == []


def test_rows_without_columns_are_refused(catalog):
    with pytest.raises(InputError, match="3 rows without columns"):
        catalog.append("t", pa.table({"id": [1, 2, 3]}).select([]))


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (pl.DataFrame({"id": [1], "v": [object()]}), "column 'v' has Python objects"),  # their addresses were written
        (pd.DataFrame([[1, 2, 3]], columns=["id", "a", "a"]), "Duplicate column names"),
    ],
)
def test_a_frame_without_values_is_refused(catalog, frame, why):
    with pytest.raises(InputError, match=f"the appended table.*{why}"):
        catalog.append("t", frame)


def test_a_pandas_index_that_carries_data_is_never_lost(catalog):
    frame = ROWS.to_pandas()
    levels = frame.assign(day="mon").set_index(["id", "day"])
    assert catalog.append("t", levels).files[0].schema.names == ["id", "day", "v"]
    named = frame.rename_axis("row")
    assert catalog.append("t", named).files[0].schema.names == ["row", "id", "v"]
    days = pd.Index([datetime.date(2024, 1, day) for day in (1, 2, 3)])
    for index in (["x", "y", "z"], days, pd.MultiIndex.from_tuples([(1, 1), (1, 2), (1, 3)], names=["a", None])):
        with pytest.raises(InputError, match=r"index holds .* without a name: name it"):
            catalog.append("t", frame.set_axis(index))
    with pytest.raises(InputError, match="both called 'id'"):
        catalog.append("t", frame.rename_axis("id"))
    with pytest.raises(SchemaError, match="'id' is missing"):
        catalog.append("t", frame[["v"]])


def test_frames_without_rows_are_appended(catalog):
    for empty in (ROWS.to_pandas().iloc[:0], pl.from_arrow(ROWS.slice(0, 0)), ROWS.slice(0, 0).to_reader()):
        assert catalog.append("t", empty).rows == 0
    catalog.append("t", ROWS)
    assert catalog.read("t").num_rows == 3


def test_a_stream_is_written_as_it_comes_and_never_collected(catalog):
    rows, batches = 20_000, 64
    values = np.random.default_rng(0)
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    held: list[int] = []

    def make():
        for number in range(batches):
            held.append(pa.total_allocated_bytes())
            ids = np.arange(number * rows, (number + 1) * rows)
            yield pa.record_batch([pa.array(ids), pa.array(values.random(rows))], schema=schema)

    delta = catalog.append("t", pa.RecordBatchReader.from_batches(schema, make()))
    assert delta.rows == rows * batches
    whole = rows * batches * 16
    assert max(held) - held[0] < whole / 2, "row groups were written while batches came"
    (file,) = delta.files
    assert pq.ParquetFile(catalog.store.open(file.path)).num_row_groups > 5


def test_an_error_of_a_stream_comes_through_and_nothing_is_left(catalog):
    class Broken(Exception):
        pass

    def make(error):
        yield from ROWS.to_batches()
        raise error

    with pytest.raises(Broken):
        catalog.append("t", [ROWS, pa.RecordBatchReader.from_batches(ROWS.schema, make(Broken()))])
    with pytest.raises(InputError, match="the appended table cannot be read: no more"):
        catalog.append("t", pa.RecordBatchReader.from_batches(ROWS.schema, make(pa.ArrowInvalid("no more"))))
    assert [stat.path for stat in catalog.store.list("t/data/")] == []
    assert catalog.partitions("t") == []


def test_duplicate_columns_of_a_stream_are_refused(catalog):
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(SchemaError, match="'id' appears twice"):
        catalog.append("t", twice)


def test_types_that_no_compaction_could_write_are_refused_by_name(catalog, tmp_path):
    """The parser of tables ended in Arrow's own errors; a file was taken, and blocked its partition."""
    mixed = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    for column in (mixed, pa.StructArray.from_arrays([mixed], ["u"])):
        table = pa.table({"id": [1, 2], "c": column})
        with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table)
        for append, rows in ((catalog.append, table), (catalog.append_files, tmp_path / "a.arrow")):
            with pytest.raises(SchemaError, match=r"column .c. is .*union.*values of several types cannot be"):
                append("t", rows)
    with pytest.raises(InputError, match=r"column 'c' is fixed_size_binary\[0\], which .*parquet files cannot hold"):
        catalog.append("t", pa.table({"id": [1], "c": pa.array([b""], pa.binary(0))}))


# Compressed text

CSV = b"id,v\n1,a\n2,b\n"
JSONL = b'{"id":1,"v":"a"}\n{"id":2,"v":"b"}\n'
COMPRESS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("reference", [False, True], ids=["copied", "referenced"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.ndjson", "A.CSV"])
@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.slow
def test_compressed_text_is_read_on_every_path(tmp_path, catalog, name, suffix, reference):
    path = tmp_path / f"{name}{suffix.upper() if name.isupper() else suffix}"
    path.write_bytes(COMPRESS[suffix](CSV if "csv" in name.lower() else JSONL))
    delta = catalog.append_files("t", [path], reference=reference)
    assert delta.rows == 2
    if not reference:
        assert delta.files[0].path.endswith(f"{os.path.splitext(name)[1].lower()}{suffix}")
    assert catalog.read("t").to_pylist() == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    assert catalog.read("t", columns=["v"]).num_rows == 2
    assert check(catalog, "t")[0].problems == ()
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert catalog.read("t").num_rows == 2


@pytest.mark.parametrize("operation_column", [None, "op"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_text_takes_the_types_that_earlier_files_of_the_call_have(tmp_path, catalog, suffix, operation_column):
    texts = {
        "a": {"op": "I", "id": 1, "at": "2026-01-01T00:00:00", "v": 1.5},
        "b": {"op": "I", "id": 2, "at": "2026-01-01T00:00:00.5", "v": 2},
        "c": {"op": "I", "id": 3, "at": "9999-01-01T00:00:00", "v": None},
    }
    for name, row in texts.items():
        cells = ",".join("" if value is None else str(value) for value in row.values())
        text = f"op,id,at,v\n{cells}\n" if suffix == "csv" else json.dumps(row) + "\n"
        (tmp_path / f"{name}.{suffix}").write_text(text)
    paths = [tmp_path / f"{name}.{suffix}" for name in texts]
    catalog.append_files("t", paths, operation_column=operation_column)
    rows = catalog.read("t", columns=["id", "at", "v"]).sort_by("id").to_pydict()
    second = datetime.timedelta(seconds=1)
    start = datetime.datetime(2026, 1, 1)
    assert rows["v"] == [1.5, 2.0, None]
    assert rows["at"] == [start, start + second / 2, datetime.datetime(9999, 1, 1)]


@pytest.mark.parametrize("digits", ["5", "1234567"])
@pytest.mark.parametrize("as_messages", [False, True])
def test_a_later_text_may_have_finer_times(tmp_path, catalog, digits, as_messages):
    """The parser took the whole seconds of the first file for all that the column can have."""
    for number, at in enumerate(("2026-01-01T00:00:00", f"2026-01-01T00:00:00.{digits}"), 1):
        row = {"id": number, "at": at}
        message = {"before": None, "after": {**row, "in": {"at": at}}, "op": "c"}
        (path := tmp_path / f"{number}.jsonl").write_text(json.dumps(message if as_messages else row) + "\n")
        catalog.append_files("t", path, format="debezium" if as_messages else None)
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    rows = catalog.read("t").sort_by("id")
    for column in [rows["at"], *([rows["in"].combine_chunks().field("at")] if as_messages else [])]:
        assert [str(value) for value in column.cast(pa.timestamp("ns")).cast(pa.int64())] == [
            "1767225600000000000",
            "1767225600" + digits.ljust(9, "0"),
        ]


def append_json(tmp_path, catalog, *files, as_messages=False, at_once=False):
    """Append files with one row each, or all of them in one call."""
    paths = []
    for number, row in enumerate(files, 1):
        row = {"id": number, **row}
        paths.append(tmp_path / f"{number}.jsonl")
        paths[-1].write_text(json.dumps({"before": None, "after": row, "op": "c"} if as_messages else row) + "\n")
    for given in [paths] if at_once else paths:
        catalog.append_files("t", given, format="debezium" if as_messages else None)
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    return catalog.read("t").sort_by("id")


@pytest.mark.parametrize("as_messages", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_field_that_a_later_text_has_inside_of_a_struct_is_kept(tmp_path, catalog, as_messages, at_once):
    """It was lost without a word: the parsed struct was cast to the type of the first file."""
    files = [
        {"s": {"x": 1}, "items": [{"x": {"y": 1}}]},
        {"s": {"x": 2, "new": "n"}, "items": [{"x": {"y": 2, "new": 0.5}}, None]},
        {"s": {"new": "m"}, "items": None},
    ]
    found = append_json(tmp_path, catalog, *files, as_messages=as_messages, at_once=at_once)
    assert found["s"].to_pylist() == [{"x": 1, "new": None}, {"x": 2, "new": "n"}, {"x": None, "new": "m"}]
    assert found["items"].to_pylist() == [[{"x": {"y": 1, "new": None}}], [{"x": {"y": 2, "new": 0.5}}, None], None]


@pytest.mark.parametrize("as_messages", [False, True])
@pytest.mark.parametrize(
    ("first", "later"),
    [([], [5]), ([None], [{"a": 1}]), ({"a": None, "b": 1}, {"a": "x", "b": 2}), ([{"a": []}], [{"a": ["x"]}])],
)
def test_values_find_their_type_inside_of_lists_and_structs_that_had_none(tmp_path, catalog, as_messages, first, later):
    """The second file was refused: it could not be converted to null."""
    found = append_json(tmp_path, catalog, {"v": first}, {"v": later}, as_messages=as_messages)
    assert found["v"].to_pylist() == [first, later]


@pytest.mark.parametrize("as_messages", [False, True])
@pytest.mark.parametrize(
    ("first", "read", "later"),
    [
        ({}, None, {"a": 1}),
        ([{}], [None], [{"a": 1}]),
        ({"a": {}}, {"a": None}, {"a": {"b": "x"}}),
        ({"a": [{"b": {}}]}, {"a": [{"b": None}]}, {"a": [{"b": {"c": 1.5}}]}),
    ],
)
def test_an_object_that_has_no_field_in_a_whole_file_reads_as_null(tmp_path, catalog, as_messages, first, read, later):
    """Appends took it, and each compaction failed: Parquet holds no struct without fields."""
    found = append_json(tmp_path, catalog, {"v": first}, as_messages=as_messages)
    assert found["v"].to_pylist() == [read]
    found = append_json(tmp_path, catalog, {"v": first}, {"v": later}, as_messages=as_messages)
    assert found["v"].to_pylist() == [read, later]


@pytest.mark.parametrize("operation", ["upsert", "delete"])
@pytest.mark.parametrize(
    "odd", [pa.array([(1, 2, 3)], pa.month_day_nano_interval()), pa.array([Decimal(100)], pa.decimal128(5, -2))]
)
def test_an_arrow_file_that_no_compaction_could_write_is_refused(tmp_path, catalog, operation, odd):
    """Appends took it, and each compaction into Parquet failed. Of a delete, only the keys are read."""
    rows = pa.table({"id": [1], "odd": odd})
    feather.write_feather(rows, path := tmp_path / "odd.feather")
    if operation == "delete":
        assert catalog.append_files("t", path, operation=operation).rows == 1
        return
    with pytest.raises(SchemaError, match=r"odd\.feather: column 'odd' is .*, which .*parquet files cannot hold"):
        catalog.append_files("t", path)
    assert catalog.read("t").num_rows == 0


@pytest.mark.parametrize("empty", [[], [None], {"a": None}, {"a": []}])
def test_a_csv_without_values_in_a_column_of_lists_without_values(tmp_path, catalog, empty):
    """Appends took it, and nobody could read it: CSV has no lists."""
    append_json(tmp_path, catalog, {"v": empty})
    (path := tmp_path / "2.csv").write_text("id,v\n7,\n8,\n")
    catalog.append_files("t", path)
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert catalog.read("t").to_pylist()[1:] == [{"id": 7, "v": None}, {"id": 8, "v": None}]


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize("depth", range(3))
def test_a_list_of_the_fixed_size_0_is_stored_as_a_list(tmp_path, catalog, as_file, depth):
    """Appends took it, and nobody could read the file into which it was compacted."""
    type_, values = pa.list_(pa.int64(), 0), [[], None]
    for _ in range(depth):
        type_, values = pa.struct([("a", type_)]), [{"a": value} for value in values]
    rows = pa.table({"id": [1, 2], "v": pa.array(values, type_)})
    if as_file:
        feather.write_feather(rows, path := tmp_path / "odd.feather")
        catalog.append_files("t", path)
    else:
        catalog.append("t", rows)
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert catalog.read("t").sort_by("id")["v"].to_pylist() == values


def test_a_parquet_file_that_no_compaction_could_write_is_refused(tmp_path, catalog):
    """Appends looked at Arrow and ORC files alone."""
    rows = pa.table({"id": [1], "odd": pa.array([[bytes(16)] * 2], pa.list_(pa.binary(16), 2)).cast(ODD)})
    pq.write_table(rows, path := tmp_path / "odd.parquet")
    with pytest.raises(SchemaError, match=r"odd\.parquet: column 'odd' is .*, which .*parquet files cannot hold"):
        catalog.append_files("t", path)
    with pytest.raises(InputError, match=r"column 'odd' is .*, which .*parquet files cannot hold"):
        catalog.append("t", rows)


@pytest.mark.parametrize("operation", ["upsert", "delete"])
@pytest.mark.parametrize("levels", [49, 50, 100])
def test_lists_that_are_nested_too_deeply_to_be_read_are_refused(catalog, operation, levels):
    """They were written, and nobody could read the file: pyarrow takes 100 levels, two for each list."""
    type_ = pa.int64()
    for _ in range(levels):
        type_ = pa.list_(type_)
    rows = pa.table({"id": [1], "deep": pa.array([[]], type_)})
    if levels < 50:
        catalog.append("t", rows, operation=operation)
    else:
        with pytest.raises(InputError, match=r"column 'deep' is list.*, which .*parquet files cannot hold"):
            catalog.append("t", rows, operation=operation)
    assert len(catalog.partitions("t")) == (levels < 50)
    assert catalog.read("t").num_rows == (levels < 50 and operation == "upsert")


def test_a_new_field_of_a_struct_in_a_text_is_news(tmp_path, catalog):
    """And a table whose schema is fixed refuses it."""
    append_json(tmp_path, catalog, {"s": {"x": 1}})
    (path := tmp_path / "2.jsonl").write_text('{"id": 2, "s": {"x": 1, "y": 2}}\n')
    with pytest.raises(SchemaError, match=r"s\.y"):
        catalog.append_files("t", path, schema_mode="fixed")
    assert catalog.append_files("t", path).new_columns == ("s.y",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            '"b": 5.5',
            "column 'b' is int64 in earlier rows or files, and 5.5 is not: declare a wider type when you",
        ),
        ('"b": "x"', r"column 'b' is int64 .*, and this text has other values .*from number to string"),
        ('"s": {"x": "y"}', r"column 's' is struct<x: int64> .*, and this text has other values"),
        ('"new": 1}\n{"id": 3, "new": "x"', "line 2: 'new' is a string, in earlier rows a number"),
        ('"b": {"a": 5', "cannot be read"),
    ],
)
def test_json_that_does_not_fit_names_the_column(tmp_path, catalog, line, said):
    """The parser's own words named a type alone, or nothing that a reader could do."""
    (path := tmp_path / "1.jsonl").write_text('{"id": 1, "a": 1, "b": 2, "c": "x", "s": {"x": 1}}\n')
    catalog.append_files("t", path)
    (path := tmp_path / "2.jsonl").write_text('{"id": 2, "a": 1, ' + line + "}\n")
    with pytest.raises(InputError, match=rf"2\.jsonl:? {said}"):
        catalog.append_files("t", path)


def test_a_line_null_is_no_row_of_nulls(tmp_path, catalog):
    """Kafka's tombstones look so. A null is a key like others."""
    (path := tmp_path / "a.jsonl").write_text('{"id": 1}\n null \n{"id": 2}\n')
    with pytest.raises(InputError, match=r"a\.jsonl: line 2 begins with null, but it must hold one JSON object"):
        catalog.append_files("t", path)
    path.write_text('{"id": 1}\n{"id": null}\n')
    assert catalog.append_files("t", path).null_keys == {"id": 1}


def test_csv_with_a_name_twice_is_refused(tmp_path, catalog):
    (path := tmp_path / "a.csv").write_text("id,x,x\n1,2,3\n")
    with pytest.raises(SchemaError, match=r"a\.csv: column 'x' appears twice"):
        catalog.append_files("t", path)


def test_csv_whose_first_line_is_a_row_is_refused(tmp_path, catalog):
    (path := tmp_path / "a.csv").write_text("I,1,x\n")
    for given in ({}, {"operation": "delete"}, {"operation_column": "op"}, {"format": "dms"}):
        with pytest.raises(
            SchemaError, match=r"a.csv: key column 'id' is missing \(columns: I, 1, x\): the first line"
        ):
            catalog.append_files("t", path, **given)
    path.write_text("id,x\n")
    with pytest.raises(InputError, match="operation column 'Op' is missing"):
        catalog.append_files("t", path, format="dms")
    assert catalog.append_files("t", path).rows == 0


def test_gzip_of_several_members_is_read_to_the_end(tmp_path, catalog):
    """As bgzip and `cat a.gz b.gz` write it."""
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(CSV) + gzip.compress(b"3,c\n"))
    assert catalog.append_files("t", [path]).rows == 3


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('id,n\n1,a\n2,"b\n3,c\n', 3),
        ('id,n\r\n1,"a\r\nb"\r\n2,"b\r\n3,c\r\n', 4),
        ('id,n\n1,a\n2,"b\n3,c\n4,"d"\n5,e\n', 3),
        ('id,n\n2,"b\n' + "3,c\n" * 99, 2),
        ('id\tn\n1\t"a"\n2\t"b,"\n3\t"c\n4\td', 4),
        ('id,"n\n1,"a",\n', 1),
        ('"id","n"\n1,"a\n""b"",\n"\n2,"c"d"\n3,"e"', None),
    ],
    ids=["to the end", "CRLF", "to the next quote", "beyond a block", "TSV", "in the header", "closed"],
)
def test_a_quote_that_is_not_closed_takes_no_rows_away(catalog, tmp_path, monkeypatch, text, line):
    monkeypatch.setattr("deltacompact.tabular.file_text.TEXT_BLOCK_BYTES", 100)
    (path := tmp_path / ("a.tsv" if "\t" in text else "a.csv")).write_text(text, newline="")
    if line is None:
        catalog.append_files("t", path)
        assert catalog.read("t")["n"].to_pylist() == ['a\n"b",\n', 'cd"', "e"]
    else:
        with pytest.raises(InputError, match=f"a.[ct]sv.*the quoted value that begins in line {line} is not closed"):
            catalog.append_files("t", path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz"])
@pytest.mark.parametrize("columns", [None, "id string, n string", "id string, n decimal(9, 2)"])
def test_a_null_at_the_end_of_a_text_is_null_without_a_line_break(catalog, tmp_path, name, columns):
    """pyarrow took it for a text in quotes, because the field before it has some."""
    catalog.create_table("u", primary_keys=["id"], columns=columns)
    text = '"id","n"\n"1",5\n"2",'.replace(",", "\t" if name == "a.tsv" else ",").encode()
    (path := tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    catalog.append_files("u", path)
    five, null = catalog.read("u").sort_by("id")["n"].to_pylist()
    assert (int(five), null) == (5, None)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("id\n1\n\n2\n", 3),
        ("\r\n\r\nid\r\n1\r\n\r\n", 5),
        ('id\n"1"\n"a\n\n\nb"\n\n', 7),
        ('\nid\n1\nnull\n"a\n\nb"', None),
    ],
    ids=["between", "CRLF", "after a long value", "none"],
)
def test_an_empty_line_that_may_be_a_null_is_not_passed_over(catalog, tmp_path, text, line):
    """A null is a key: a delete of it would be lost."""
    catalog.append("t", pa.table({"id": ["1", None, "2"]}))
    (path := tmp_path / "a.csv").write_text(text, newline="")
    if line is None:
        catalog.append_files("t", path, operation="delete")
        assert catalog.read("t")["id"].to_pylist() == ["2"]
    else:
        with pytest.raises(InputError, match=f"a.csv.*line {line} is empty, .* write null there, or take it out"):
            catalog.append_files("t", path, operation="delete")
        assert catalog.read("t").num_rows == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (CSV, "a.csv.gz"),
        (gzip.compress(CSV)[:-9], "a.csv.gz"),
        (gzip.compress(CSV)[:-8] + b"12345678", "a.csv.gz"),
        (b"", "header line"),
        (gzip.compress(b""), "header line"),
    ],
    ids=["not compressed", "cut off", "bad checksum", "empty", "nothing in it"],
)
def test_damaged_compressed_text_is_refused_by_name(tmp_path, catalog, content, said):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as raised:
        catalog.append_files("t", [path])
    assert "a.csv.gz" in str(raised.value)
    assert [stat.path for stat in catalog.store.list("t/data/")] == []


def test_only_text_is_compressed_as_a_whole():
    for name in ("a.parquet.gz", "a.gz", "a.orc.zst", "gz"):
        with pytest.raises(InputError, match="unknown extension"):
            formats.content_type_of(name)


# Folders, globs and prefixes


@pytest.fixture
def run(tmp_path, catalog, capfd):
    def call(*arguments, status=0):
        assert cli.run(["append", str(tmp_path / "lake"), "t", *map(str, arguments)]) == status
        return capfd.readouterr()

    return call


@pytest.fixture
def landing(tmp_path):
    """Files with one row each, and others that are none of ours."""
    folder = tmp_path / "landing"
    for number, name in enumerate(["b/2.csv", "a.csv", "b/1.csv.gz", "B.jsonl", "c d/é.csv"]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = b'{"id":%d}\n' % number if name.endswith("jsonl") else b"id\n%d\n" % number
        (folder / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    for name in (".hidden.csv", "_SUCCESS", "_temporary/0.csv", "notes.txt", "b/.crc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("id\n99\n")
    return folder


def names_of(catalog):
    (*_, delta) = catalog.state("t", Partition()).deltas
    return [file.name for file in delta.files]


def test_a_directory_is_taken_in_byte_order_and_what_is_skipped_is_said(run, catalog, landing):
    said = run(landing)
    names = [os.path.relpath(name, landing) for name in names_of(catalog)]
    assert names == ["B.jsonl", "a.csv", "b/1.csv.gz", "b/2.csv", "c d/é.csv"]
    for name in (".hidden.csv", "_SUCCESS", "_temporary/0.csv", "notes.txt", "b/.crc"):
        assert f"{landing / name}: its" in said.err
    assert sorted(catalog.read("t")["id"].to_pylist()) == [0, 1, 2, 3, 4]
    document = json.loads(run(landing, "--json").out)
    assert document["files"] == 5 and len(document["left_out"]) == 5


def test_a_glob_is_taken_in_byte_order(run, catalog, landing):
    run(f"{landing}/*/*.csv")
    assert [os.path.relpath(name, landing) for name in names_of(catalog)] == ["b/2.csv", "c d/é.csv"]
    run(f"{landing}/**/*.csv*")
    assert len(names_of(catalog)) == 4
    said = run(f"{landing}/*")
    assert len(names_of(catalog)) == 5 and "notes.txt" in said.err
    run(f"{landing}/.hidden.*")
    assert names_of(catalog) == [f"{landing}/.hidden.csv"], "what is typed is meant"


def test_a_file_whose_name_looks_like_a_glob_is_that_file(run, catalog, tmp_path):
    for name, number in (("a[1].csv", 1), ("a1.csv", 2)):
        (tmp_path / name).write_text(f"id\n{number}\n")
    run(tmp_path / "a[1].csv")
    assert catalog.read("t")["id"].to_pylist() == [1]


def test_a_folder_that_holds_the_catalog_too(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    catalog = deltacompact.open_catalog("lake")
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1]}))
    (tmp_path / "a.csv").write_text("id\n2\n")
    assert cli.run(["append", "lake", "t", "."]) == 0
    said = capfd.readouterr()
    assert "upsert of 1 row in 1 file" in said.out
    assert said.err == f"left out {tmp_path}/lake: it is the catalog\n"


def test_names_that_mean_no_file_are_errors(run, tmp_path, catalog):
    (tmp_path / "empty").mkdir()
    (tmp_path / "others").mkdir()
    (tmp_path / "others/notes.txt").write_text("x")
    assert run(tmp_path / "empty", status=2).err.endswith("empty holds no data file\n")
    assert "holds no data file (1 other skipped)" in run(tmp_path / "others", status=2).err
    assert "matches no data file" in run(tmp_path / "*.csv", status=2).err
    assert "does not exist" in run(tmp_path / "no.csv", status=2).err
    assert catalog.partitions("t") == []


def test_a_file_that_is_named_twice_is_taken_once_and_said(run, catalog, landing, tmp_path, monkeypatch):
    link = tmp_path / "link.csv"
    link.symlink_to(landing / "a.csv")
    monkeypatch.chdir(landing)
    said = run("a.csv", "./a.csv", landing / "a.csv", link, (landing / "a.csv").as_uri(), "*.csv")
    assert names_of(catalog) == ["a.csv"]
    assert said.err.count("it is the same file as a.csv") == 4
    assert said.err.count("left out a.csv: it is named twice") == 1
    with pytest.raises(InputError, match="are one file"):
        catalog.append_files("t", ["a.csv", link])
    with pytest.raises(InputError, match=r"a.csv is named twice"):
        catalog.append_files("t", ["a.csv", "a.csv"])


def test_a_directory_that_may_not_be_read_is_no_empty_one(landing, catalog, monkeypatch):
    def walk(directory, onerror):
        onerror(PermissionError(13, "Permission denied", f"{directory}/b"))
        yield directory, [], ["a.csv"]

    monkeypatch.setattr(os, "walk", walk)
    with pytest.raises(InputError, match=r"landing/b cannot be read: Permission denied"):
        sources(catalog.store, [str(landing)])


def test_what_is_no_regular_file_is_skipped_and_said(run, catalog, landing):
    os.mkfifo(landing / "pipe.csv")
    (landing / "dangling.csv").symlink_to(landing / "nowhere.csv")
    (landing / "linked").symlink_to(landing / "b")
    said = run(landing)
    assert len(names_of(catalog)) == 5
    for name in ("pipe.csv: it is not a regular file", "dangling.csv: it is not a regular file", "linked: "):
        assert name in said.err


def test_prefixes_and_globs_on_s3(s3_catalog_uri, capfd):
    client, bucket = boto3.client("s3"), s3_catalog_uri.split("/")[2]
    contents = {"in/b/2.csv": 0, "in/a.csv": 1, "in/b/1.csv.gz": 2, "in/_SUCCESS": 9, "in/c d/é.csv": 3, "inner.csv": 9}
    for key, number in contents.items():
        text = b"id\n%d\n" % number
        client.put_object(Bucket=bucket, Key=key, Body=gzip.compress(text) if key.endswith("gz") else text)
    client.put_object(Bucket=bucket, Key="in/b/", Body=b"")  # what consoles make of a folder
    catalog = open_catalog(s3_catalog_uri)
    catalog.create_table("t", primary_keys=["id"])
    where = f"s3://{bucket}/in"
    for given, expected in (
        ([f"{where}/"], ["a.csv", "b/1.csv.gz", "b/2.csv", "c d/é.csv"]),
        ([f"{where}/*/*.csv"], ["b/2.csv", "c d/é.csv"]),
        ([f"{where}/**/[12].csv*", f"{where}/b/"], ["b/1.csv.gz", "b/2.csv"]),
        ([f"{where}/a.csv"], ["a.csv"]),
    ):
        for option in ((), ("--reference",)):
            assert cli.run(["append", s3_catalog_uri, "t", *given, *option]) == 0
            assert [name.removeprefix(f"{where}/") for name in names_of(catalog)] == expected
    assert "_SUCCESS" in capfd.readouterr().err
    assert sorted(catalog.read("t")["id"].to_pylist()) == [0, 1, 2, 3]
    assert cli.run(["append", s3_catalog_uri, "t", f"s3://{bucket}/nothing/"]) == 2
    assert "holds no data file" in capfd.readouterr().err


def test_keys_that_differ_in_slashes_are_two_files(s3_catalog_uri):
    """The rows of one were appended twice, and those of the other never."""
    client, bucket = boto3.client("s3"), s3_catalog_uri.split("/")[2]
    catalog = open_catalog(s3_catalog_uri)
    catalog.create_table("t", primary_keys=["id"])
    for number, key in enumerate(("in/a.csv", "in//a.csv", "/in/a.csv")):
        try:
            client.put_object(Bucket=bucket, Key=key, Body=b"id\n%d\n" % number)
        except botocore.exceptions.ClientError:
            pytest.skip("this server has no such keys")
    for option in ((), ("--reference",)):
        for place, expected in (("in/", [0, 1]), ("/in/", [2]), ("in//a.csv", [1])):
            assert cli.run(["append", s3_catalog_uri, "t", f"s3://{bucket}/{place}", *option]) == 0
            assert sorted(catalog.read("t")["id"].to_pylist()) == expected
            for delta in catalog.state("t", Partition()).deltas:
                catalog.table("t").retract(delta.position)


def test_the_catalog_is_known_on_s3_however_it_is_written(s3_catalog_uri):
    """`S3://` was no name of it: files that were superseded were appended, and their rows came back."""
    client, bucket = boto3.client("s3"), s3_catalog_uri.split("/")[2]
    client.put_object(Bucket=bucket, Key="in/a.csv", Body=b"id\n1\n")
    catalog = open_catalog(s3_catalog_uri)
    catalog.create_table("t", primary_keys=["id"])
    catalog.append_files("t", [f"s3://{bucket}/in/a.csv"])
    for name in (f"s3://{bucket}/", f"S3://{bucket}/", f"S3://{bucket}/**/*.csv", f"s3://{bucket}/**"):
        found = sources(catalog.store, [name])
        assert [file.lower() for file in found.files] == [f"s3://{bucket}/in/a.csv"]
        assert (catalog.store.uri.rstrip("/"), "it is the catalog") in [(a.rstrip("/"), b) for a, b in found.left_out]
    with pytest.raises(InputError, match="holds no data file"):
        sources(catalog.store, [f"{s3_catalog_uri}/"])
    assert sources(catalog.store, [f"S3{s3_catalog_uri[2:]}/t/data/"]).files


def test_what_reads_for_spark_reads_compressed_text_and_refuses_changed_files(tmp_path, catalog):
    """Its executors read through the same door."""
    pytest.importorskip("pyspark")
    from deltacompact.spark.reading import FileSplit, piece_rows

    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(CSV))
    (file,) = catalog.append_files("t", [path], reference=True).files
    piece = FileSplit(Partition(), file, 0, 2, None)
    assert sum(batch.num_rows for batch in piece_rows(catalog, piece, file.schema)) == 2
    path.write_bytes(gzip.compress(CSV + b"3,c\n"))
    with pytest.raises(InputError, match="was changed since it was appended"):
        list(piece_rows(catalog, piece, file.schema))


def test_json_that_is_not_utf_8_is_refused(catalog, tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"id":1,"v":"\xff"}\n')
    with pytest.raises(InputError, match=r"a.json: column 'v': .*UTF8"):
        catalog.append_files("t", tmp_path / "a.json")
    assert not catalog.partitions("t")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.json", "messages.json"])
def test_a_row_may_be_longer_than_a_block_of_the_parser(catalog, tmp_path, monkeypatch, name):
    """It was refused: 'straddling object straddles two block boundaries (try to increase block size?)'."""
    monkeypatch.setattr("deltacompact.tabular.file_text.TEXT_BLOCK_BYTES", 50)
    rows = [{"id": number, "v": "x" * length} for number, length in enumerate([1, 3_000, 20, 700])]
    lines = [f"{row['id']},{row['v']}" for row in rows] if ".csv" in name else [json.dumps(row) for row in rows]
    if name == "messages.json":
        lines = [json.dumps({"before": None, "after": row, "op": "c"}) for row in rows]
    text = "\n".join([*(["id,v"] if ".csv" in name else []), *lines, ""]).encode()
    (path := tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    table = catalog.create_table("u", primary_keys=["id"])
    table.append_files(path, **({"format": "debezium"} if name == "messages.json" else {}))
    table.compact()
    assert table.read().sort_by("id").to_pylist() == rows

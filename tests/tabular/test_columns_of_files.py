"""A file brings the columns that it has. What it lacks is not made up from the table, or rows would lose their keys.

Every format is appended with each column missing, added, renamed or contradicting, onto a stream that knows them all.
"""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from deltacompact import DeltaStreamCatalog, SchemaError, Settings, compact, open_catalog
from deltacompact.base.errors import InputError
from deltacompact.tabular.file_text import FileText

LOCAL = Settings(executor="local")
ROWS = {"id": [1, 2, 3], "s": [7, 8, 9], "v": ["a", "b", "c"], "day": ["mon"] * 3}
KNOWN = {"id": [0], "s": [1], "v": ["x"], "day": ["mon"]}
FORMATS = [".parquet", ".feather", ".arrow", ".orc", ".csv", ".csv.gz", ".jsonl", ".json", ".ndjson.gz"]


def written(path: Path, rows: dict) -> Path:
    """The rows in the format of the file's extension."""
    table = pa.table(rows)
    match path.name.split(".")[1]:
        case "parquet":
            pq.write_table(table, path)
        case "feather" | "arrow":
            pa.feather.write_feather(table, path)
        case "orc":
            pa.orc.write_table(table, path)
        case "csv":
            sink = pa.BufferOutputStream()
            pa.csv.write_csv(table, sink)
            put(path, sink.getvalue().to_pybytes())
        case _:
            put(path, b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist()))
    return path


def put(path: Path, text: bytes) -> None:
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


@pytest.fixture(params=[False, True], ids=["deltas", "compacted"])
def catalog(tmp_path, request) -> DeltaStreamCatalog:
    """A table that knows all columns, compacted or not."""
    made = open_catalog(tmp_path / "lake")
    made.create_table("t", ["day"], ["id"], ["s"])
    made.append("t", pa.table(KNOWN), {"day": "mon"})
    if request.param:
        compact("t", delta_catalog_client=made, settings=LOCAL)
    return made


def append(catalog: DeltaStreamCatalog, path: Path, operation: str = "upsert", reference: bool = False) -> pa.Schema:
    """The columns that the log has of the file."""
    delta = catalog.append_files("t", path, {"day": "mon"}, operation, reference=reference)
    return delta.files[0].schema


def live(catalog: DeltaStreamCatalog) -> dict:
    return {row["id"]: row for row in catalog.read("t").to_pylist()}


def without(name: str) -> dict:
    return {column: values for column, values in ROWS.items() if column != name}


@pytest.mark.parametrize("reference", [False, True], ids=["copied", "referenced"])
@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.slow
def test_rows_without_the_key_column_are_refused_in_every_format(tmp_path, catalog, extension, reference):
    """Three rows without a key became one row with the key null."""
    renamed = {"ID" if column == "id" else column: values for column, values in ROWS.items()}
    for rows in (without("id"), renamed, {"v": ["a"]}):
        path = written(tmp_path / f"given{extension}", rows)
        with pytest.raises(SchemaError, match="key column 'id' is missing"):
            append(catalog, path, reference=reference)
    assert set(live(catalog)) == {0}


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.parametrize("missing", ["s", "v", "day"])
@pytest.mark.slow
def test_a_column_that_is_no_key_may_be_missing_and_is_not_made_up(tmp_path, catalog, extension, missing):
    schema = append(catalog, written(tmp_path / f"given{extension}", without(missing)))
    assert sorted(schema.names) == sorted(without(missing))
    expected = {"s": None, "v": None, "day": "mon"}[missing]
    assert {row[missing] for row in live(catalog).values() if row["id"]} == {expected}
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert set(live(catalog)) == {0, 1, 2, 3}


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.slow
def test_a_column_more_and_one_under_another_name_come_from_the_file(tmp_path, catalog, extension):
    rows = {**without("v"), "V": ["A", "B", "C"], "more": [1, 2, 3]}
    assert sorted(append(catalog, written(tmp_path / f"given{extension}", rows)).names) == sorted(rows)
    assert live(catalog)[2] == {"id": 2, "s": 8, "v": None, "day": "mon", "V": "B", "more": 2}


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.slow
def test_a_partition_column_that_contradicts_is_refused(tmp_path, catalog, extension):
    path = written(tmp_path / f"given{extension}", {**ROWS, "day": ["mon", "tue", "mon"]})
    with pytest.raises(SchemaError, match="'day' disagrees"):
        append(catalog, path)


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.slow
def test_a_delete_without_sort_columns_stays_one(tmp_path, catalog, extension):
    rows = {"id": [0, 9, 9]}
    assert append(catalog, written(tmp_path / f"given{extension}", rows), "delete").names == ["id"]
    assert live(catalog) == {}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("empty", ["id,day\n", "parquet"])
def test_a_partition_column_of_a_file_without_rows_blocks_nothing(tmp_path, empty, first):
    """No row has it, so the partition's value need not fit its type."""
    made = open_catalog(tmp_path / "lake")
    made.create_table("t", ["day"], ["id"])
    path = tmp_path / ("empty.parquet" if empty == "parquet" else "empty.csv")
    if empty == "parquet":
        pq.write_table(pa.schema([("id", pa.int64()), ("day", pa.int64())]).empty_table(), path)
    else:
        path.write_text(empty)
    steps = [lambda: made.append("t", pa.table({"id": [1]}), {"day": "mon"}), lambda: append(made, path)]
    for step in reversed(steps) if first else steps:
        step()
    assert set(live(made)) == {1}
    compact("t", delta_catalog_client=made, settings=LOCAL)
    assert set(live(made)) == {1}


@pytest.mark.parametrize("text", [b"", b"\n\n", b" " * 10_000])
def test_a_text_without_rows_brings_no_columns(tmp_path, catalog, text):
    (tmp_path / "given.jsonl").write_bytes(text)
    assert append(catalog, tmp_path / "given.jsonl").names == []
    assert set(live(catalog)) == {0}


def test_rows_after_many_blanks_are_not_lost(tmp_path, catalog):
    (tmp_path / "given.jsonl").write_bytes(b"\n" * 100_000 + b'{"id": 5, "s": 5}\n')
    append(catalog, tmp_path / "given.jsonl")
    assert set(live(catalog)) == {0, 5}


def test_a_key_that_only_some_objects_have_or_that_is_null_in_all_is_the_files_own(tmp_path, catalog):
    (tmp_path / "some.jsonl").write_text('{"v": "a"}\n{"id": 5, "v": "b"}\n{"id": null, "v": "c"}\n')
    assert sorted(append(catalog, tmp_path / "some.jsonl").names) == ["id", "v"]
    assert {key: row["v"] for key, row in live(catalog).items()} == {0: "x", 5: "b", None: "c"}
    (tmp_path / "all.jsonl").write_text('{"id": null, "v": "d"}\n')
    assert append(catalog, tmp_path / "all.jsonl").field("id").type == pa.int64()
    assert live(catalog)[None]["v"] == "d"


@pytest.mark.parametrize("text", [b"null\n", b"5\n", b'"x"\n', b"null\n" + b'{"id": 1}\n', b"[1]\n"])
def test_lines_that_are_no_objects_are_refused_and_do_not_end_the_process(tmp_path, catalog, text):
    (tmp_path / "given.jsonl").write_bytes(text)
    with pytest.raises(InputError, match=r"given\.jsonl.*one JSON object a line"):
        append(catalog, tmp_path / "given.jsonl")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path, catalog):
    (tmp_path / "given.csv").write_bytes(b"\xef\xbb\xbfid,s\n5,5\n")
    append(catalog, tmp_path / "given.csv")
    assert set(live(catalog)) == {0, 5}


@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n"], ids=repr)
@pytest.mark.parametrize("blank", ["", "\r\n \n", "\n" * 5_000], ids=len)
@pytest.mark.parametrize("name", ["b", "b" * 10_000], ids=len)
def test_the_header_is_found_without_reading_on(line_break, blank, name):
    """Without a line feed, the text was searched from its beginning again for each 4 KiB."""
    data = f"{blank}a,{name}{line_break}".encode() + b"1,2\n" * 100_000
    source = Source(data)
    text = FileText(pa.PythonFile(source, "r"), "x.tsv")
    assert text.header() == f"a,{name}".encode()
    assert text.delimiter() == ","
    assert source.bytes <= 2 * (len(blank) + len(name) + 12_000)


class Source(io.BytesIO):
    bytes = 0

    def read(self, size=-1):
        data = super().read(size)
        self.bytes += len(data)
        return data

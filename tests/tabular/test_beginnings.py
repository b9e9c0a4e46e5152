"""A file whose name says one format, and whose bytes say another."""

import bz2
import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltacompact.base.errors import InputError
from deltacompact.tabular.damage import naming

TEXT = b"id,name\n1,a\n"
MESSAGE = b'{"op": "c", "after": {"id": 1}}\n'


@pytest.fixture
def refusal(catalog, tmp_path):
    """What an append of these bytes under this name says."""

    def refused(name, content):
        catalog.create_table("t")
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError) as raised:
            catalog.append_files("t", tmp_path / name)
        return str(raised.value).rpartition(f"{name}: ")[2]

    return refused


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", gzip.compress(TEXT, mtime=0), "it is compressed by gzip: name it .csv.gz"),
        ("a.csv", gzip.compress(TEXT, mtime=10), "it is compressed by gzip: name it .csv.gz"),
        ("a.jsonl", bz2.compress(TEXT), "it is compressed by bz2: name it .jsonl.bz2"),
        ("a.parquet", gzip.compress(TEXT, mtime=0), "it is compressed by gzip: decompress it"),
        ("a.csv.gz", TEXT, "it is not compressed by gzip: name it .csv"),
        ("a.csv", "id,näme\n1,a\n".encode("utf-16"), "it is UTF-16: save it as UTF-8"),
        ("a.csv", b"PK\x03\x04\x00\n,,", "it is a zip archive or a spreadsheet: unpack it, or save it as CSV"),
        ("a.csv", b"Obj\x01,\n,,", "it is an Avro file: name it .avro"),
        ("a.feather", TEXT, "it is no Arrow file"),
        ("a.arrow", gzip.compress(TEXT, mtime=0), "it is compressed by gzip: decompress it"),
    ],
)
def test_the_message_says_what_the_file_is(refusal, name, content, told):
    assert refusal(name, content) == told


def test_a_parquet_file_by_another_name(refusal):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1]}), sink)
    assert refusal("a.csv", sink.getvalue().to_pybytes()) == "it is a Parquet file: name it .parquet"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.json", gzip.compress(MESSAGE, mtime=0), "it is compressed by gzip: name it .json.gz"),
        ("a.json.gz", MESSAGE, "it is not compressed by gzip: name it .json"),
        ("a.json", b"PAR1\x15\x04\x00\xac\n", "it is a Parquet file: name it .parquet"),
        ("a.json", MESSAGE.decode().encode("utf-16"), "it is UTF-16: save it as UTF-8"),
        (
            "a.json",
            b"\xef\xbb\xbf \n[" + MESSAGE + b"]",
            "it holds a JSON array, but it must hold one JSON object a line: ",
        ),
    ],
)
def test_files_of_messages_are_told_so_too(catalog, tmp_path, name, content, told):
    table = catalog.create_table("t", primary_keys=["id"])
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"/{name}: {told}"):
        table.append_files(tmp_path / name, format="debezium")


def test_text_of_a_known_column_that_is_no_utf8(catalog, tmp_path):
    catalog.create_table("t", columns="id long, name string")
    (tmp_path / "a.csv").write_bytes("id,name\n1,café\n".encode("latin-1"))
    with pytest.raises(InputError, match="column 'name' has text that is not UTF-8: save the file"):
        catalog.append_files("t", tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (
            "a.csv",
            "id,name\n1,café\n".encode("latin-1"),
            "column 'name' has text that is not UTF-8: save the file as UTF-8",
        ),
        ("a.csv", "id,größe\n1,a\n".encode("latin-1"), "a column's name is not UTF-8: save the file as UTF-8"),
        ("a.json", '{"größe": 1}\n'.encode("latin-1"), "a column's name is not UTF-8: save the file as UTF-8"),
        (
            "a.csv",
            b"id;name\n1;a\n",
            "its header has ';' and no ',', which divides fields: write commas, or tabs in a ",
        ),
        (
            "a.tsv",
            b"id|name\n1|a\n",
            "its header has '|' and no '\\t', which divides fields: write commas, or tabs in ",
        ),
    ],
)
def test_text_that_would_be_misread_for_ever(refusal, name, content, told):
    assert refusal(name, content).startswith(told)


def test_a_column_that_the_table_has_may_have_any_name_and_bytes(catalog, tmp_path):
    catalog.create_table("t")
    catalog.append("t", pa.table({"a;b": [b"x"]}))
    (tmp_path / "a.csv").write_bytes("a;b\ncafé\n".encode("latin-1"))
    catalog.append_files("t", tmp_path / "a.csv")
    assert catalog.read("t")["a;b"].to_pylist() == [b"x", "café".encode("latin-1")]


@pytest.mark.parametrize("said", ["/landing/a.csv: permission to read is denied", "file:///landing/a.csv is empty"])
def test_a_message_names_its_file_once(said):
    with pytest.raises(InputError) as raised, naming("file:///landing/a.csv"):
        raise InputError(said)
    assert str(raised.value) == said

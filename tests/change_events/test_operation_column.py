"""The operation column of frames and files: which values mean what, and what is refused."""

from __future__ import annotations

import bz2
import json

import fastavro
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from deltacompact import ContentType, DeltaStreamCatalog, InputError, Settings, cli, compact, open_catalog
from deltacompact.iceberg_modes.upsert.options import UpsertOptions
from deltacompact.storage.memory import MemoryStore


@pytest.fixture
def catalog():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", pa.table({"id": [1, 2, 3]}))
    return catalog


def ids(catalog):
    return sorted(catalog.read("t")["id"].to_pylist())


@pytest.mark.parametrize("value", UpsertOptions().delete_values)
def test_what_deletes_in_an_iceberg_table_deletes_here(catalog, value):
    catalog.append("t", pa.table({"op": [value, "u"], "id": [1, 4]}), operation_column="op")
    assert ids(catalog) == [2, 3, 4]


@pytest.mark.parametrize(
    ("values", "given"),
    [
        (["X", "I"], {"delete_values": ["X"]}),
        (["X", "I"], {"delete_values": "X"}),
        (["I", "D"], {"upsert_values": ["D"], "delete_values": ["I"]}),
        (["I", "D"], {"delete_values": ["I"], "upsert_values": ("D",)}),
        ([3, 1], {"upsert_values": [1, 2], "delete_values": [3]}),
        ([3, 1], {"upsert_values": ["1", "2"], "delete_values": ["3"]}),  # as a command line gives them
        ([True, False], {"upsert_values": [False], "delete_values": [True]}),
        (pd.Categorical(["D", "I"]), {}),
        (["C", "D"], {"delete_values": ["C"], "upsert_values": ["D"]}),
    ],
)
def test_values(catalog, values, given):
    if given and list(values) == ["I", "D"]:
        values = list(values)
    catalog.append("t", pd.DataFrame({"op": values, "id": [1, 4]}), operation_column="op", **given)
    assert ids(catalog) == [2, 3, 4]


def test_frames_of_polars(catalog):
    catalog.append("t", pl.DataFrame({"op": ["D", "I"], "id": [1, 4]}), operation_column="op")
    assert ids(catalog) == [2, 3, 4]
    assert catalog.read("t").column_names == ["id"]


@pytest.mark.parametrize(
    ("frame", "given", "said"),
    [
        ({"op": ["I", "X"], "id": [1, 2]}, {}, "the appended table, row 2: operation 'X' is neither an upsert (I, U,"),
        ({"op": ["I", None], "id": [1, 2]}, {}, "row 2: operation None is neither"),
        ({"op": [1], "id": [1]}, {}, "operation column 'op' is int64, and I, U, C,"),
        ({"id": [1]}, {}, "operation column 'op' is missing (columns: id): name the column"),
        ({"op": ["I"]}, {}, "key column 'id' is missing (columns: none)"),
        ({"op": ["I"], " id ": [1]}, {}, "key column 'id' is missing (columns: ' id ')"),
        ({"op": ["D"], "v": [1]}, {}, "key column 'id' is missing"),
        ({"op": ["I"], "id": [1]}, {"operation_column": "id"}, "operation column 'id' is a key of table 't'"),
        ({"op": ["I"], "id": [1]}, {"operation": "delete"}, "operation 'delete': each row says its own"),
        ({"op": ["I"], "id": [1]}, {"format": "dms"}, "operation_column and format exclude each other"),
        ({"op": ["I"], "id": [1]}, {"upsert_values": ["A"], "delete_values": ["A"]}, "operation 'A' is both in"),
        ({"op": [2, 1], "id": [1, 2]}, {"upsert_values": ["1"], "delete_values": [2, 1]}, "row 2: operation 1 is both"),
        ({"op": ["I"], "id": ["x"]}, {}, "key column 'id' is string, a string, but in the table it is an integer"),
    ],
)
def test_what_is_refused_commits_nothing(catalog, frame, given, said):
    objects = {stat.path for stat in catalog.store.list("")}
    with pytest.raises(InputError) as error:
        catalog.append("t", pa.table(frame), **{"operation_column": "op", **given})
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert {stat.path for stat in catalog.store.list("")} == objects


def test_rows_of_later_tables_and_batches_are_counted_on(catalog):
    batches = pa.table({"op": ["I", "I", "X"], "id": [1, 2, 3]}).to_reader(max_chunksize=1)
    with pytest.raises(InputError, match=r"^the appended table, row 3: operation 'X'"):
        catalog.append("t", batches, operation_column="op")
    with pytest.raises(InputError, match=r"^appended table 2, row 1: operation 'X'"):
        catalog.append(
            "t", [pa.table({"op": ["I"], "id": [1]}), pa.table({"op": ["X"], "id": [1]})], operation_column="op"
        )


def test_options_that_miss_each_other(catalog):
    with pytest.raises(InputError, match="name the operation_column that has them"):
        catalog.append("t", pa.table({"id": [1]}), delete_values=["D"])
    with pytest.raises(InputError, match="format 'kafka' is none of debezium, maxwell, dms"):
        catalog.append("t", pa.table({"id": [1]}), format="kafka")
    catalog.create_table("young")
    with pytest.raises(InputError, match=r"table 'young' has no keys yet.*--primary-key"):
        catalog.append("young", pa.table({"op": ["I"], "id": [1]}), operation_column="op")


def test_a_destination_takes_no_change_events(catalog):
    catalog.create_table("other", primary_keys=["id"])
    catalog.declare_source("other", "t")
    with pytest.raises(InputError, match="destination"):
        catalog.append("other", pa.table({"op": ["I"], "id": [1]}), operation_column="op")


DMS = "Op,id,name,ts\nI,101,Smith,1\nU,101,Smyth,2\nI,102,Bob,3\nD,102,Bob,4\n"


def test_dms_files_on_the_command_line(tmp_path, capsys):
    (tmp_path / "a.csv").write_text(DMS)
    (tmp_path / "b.tsv.bz2").write_bytes(bz2.compress(DMS.replace(",", "\t").encode()))
    lake = str(tmp_path / "lake")
    assert cli.run(["create", lake, "t", "--primary-key", "id", "--sort-key", "ts"]) == 0
    for name in ("a.csv", "b.tsv.bz2"):
        capsys.readouterr()
        assert cli.run(["append", lake, "t", str(tmp_path / name), "--format", "dms", "--token", name]) == 0
        assert capsys.readouterr().out.startswith("upsert of 1 row and delete of 1 row in 2 files at position ")
        assert open_catalog(lake).read("t").to_pylist() == [{"id": 101, "name": "Smyth", "ts": 2}]
    assert cli.run(["append", lake, "t", str(tmp_path / "a.csv"), "--format", "dms", "--token", "a.csv", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["committed"], document["partitions"][0]["committed"]) == (False, False)
    assert [delta["operation"] for delta in document["partitions"][0]["deltas"]] == ["delete", "upsert"]
    (tmp_path / "full.csv").write_text("id,name,ts\n103,Eve,5\n")
    capsys.readouterr()
    assert cli.run(["append", lake, "t", str(tmp_path / "full.csv"), "--format", "dms"]) == 2
    assert "full.csv: operation column 'Op' is missing (columns: id, name, ts)" in capsys.readouterr().err
    assert cli.run(["append", lake, "t", str(tmp_path / "a.csv"), "--format", "dms", "--reference"]) == 2


def test_a_full_load_of_dms_comes_before_the_changes(tmp_path):
    """By their names it would come after them."""
    (tmp_path / "dms" / "2024").mkdir(parents=True)
    (tmp_path / "dms" / "LOAD00000001.csv").write_text("Op,id,v\nI,1,a\nI,2,b\nI,3,c\n")
    (tmp_path / "dms" / "LOAD00000002.csv").write_text("Op,id,v\nI,4,d\n")
    (tmp_path / "dms" / "2024" / "20240101-000000000.csv").write_text("Op,id,v\nD,1,a\nU,2,B\nU,3,x\n")
    (tmp_path / "dms" / "2024" / "20240101-000000001.csv").write_text("Op,id,v\nU,3,C\n")
    lake = str(tmp_path / "lake")
    assert cli.run(["create", lake, "t", "--primary-key", "id"]) == 0
    assert cli.run(["append", lake, "t", str(tmp_path / "dms"), "--format", "dms"]) == 0
    held = {row["id"]: row["v"] for row in open_catalog(lake).read("t").to_pylist()}
    assert held == {2: "B", 3: "C", 4: "d"}


def test_operations_and_partitions_on_the_command_line(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text('{"what": 1, "day": "1", "id": 1}\n{"what": 2, "day": "2", "id": 1}\n')
    lake = str(tmp_path / "lake")
    assert cli.run(["create", lake, "t", "--primary-key", "id", "--partition-key", "day"]) == 0
    capsys.readouterr()
    told = ["--operation-column", "what", "--upsert-values", "1,3", "--delete-values", "2", "--partition-by", "day"]
    assert cli.run(["append", lake, "t", str(tmp_path / "a.jsonl"), *told, "--token", "x"]) == 0
    assert capsys.readouterr().out == "upsert of 1 row and delete of 1 row in 2 files of 2 partitions\n"
    assert cli.run(["append", lake, "t", str(tmp_path / "a.jsonl"), *told, "--token", "x"]) == 0
    assert capsys.readouterr().out.startswith("skipped: token 'x' known since position ")
    assert cli.run(["append", lake, "t", str(tmp_path / "a.jsonl"), *told[:-1], "id"]) == 2
    assert "'id' is no partition key (the table's partition keys: day)" in capsys.readouterr().err


def test_tab_separated_text(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    (tmp_path / "a.tsv").write_text('id\tname\n1\t"a,\tb"\n2\t\n')
    delta = catalog.append_files("t", tmp_path / "a.tsv")
    assert delta.files[0].path.endswith(".tsv")
    assert catalog.append_files("t", tmp_path / "a.tsv", reference=True).rows == 2
    assert catalog.read("t").to_pylist() == [{"id": 1, "name": "a,\tb"}, {"id": 2, "name": None}]
    assert cli.run(["export", str(tmp_path / "lake"), "t", str(tmp_path / "out.tsv")]) == 0
    assert (tmp_path / "out.tsv").read_text() == '"id"\t"name"\n1\t"a,\tb"\n2\t\n'


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("id,v\n1,a\n2,b\n", [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]),
        ('\n"id","v"\r\n1,"a\t"\r\n', [{"id": 1, "v": "a\t"}]),
        (f"id,{'v' * 9_000}\n1,a\n", [{"id": 1, "v" * 9_000: "a"}]),
        ("id\ta,b\n1\tc,d\n", [{"id": 1, "a,b": "c,d"}]),
        ('id\n"1,5"\n', [{"id": "1,5"}]),
    ],
)
def test_commas_in_a_file_that_is_called_tsv(tmp_path, text, rows):
    """Versions before read .tsv files with commas, and committed them so: they stay readable."""
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    (tmp_path / "a.tsv").write_text(text)
    catalog.append_files("t", tmp_path / "a.tsv", content_type=ContentType.CSV)
    assert catalog.read("t").to_pylist() == rows


def test_a_key_that_is_the_partition():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day"], ["day"])
    catalog.append("t", pa.table({"day": ["a", "b"], "x": [1, 2]}))
    catalog.append(
        "t", pa.table({"op": ["I", "D", "D"], "day": ["a", "a", "b"], "x": [3, 4, 5]}), operation_column="op"
    )
    assert catalog.read("t").num_rows == 0
    compact("t", delta_catalog_client=catalog, settings=Settings(executor="local"))
    assert catalog.read("t").num_rows == 0


def avro(path, rows):
    fields = [{"name": name, "type": ["null", "int" if name == "id" else "string"]} for name in rows[0]]
    with path.open("wb") as out:
        fastavro.writer(out, {"type": "record", "name": "row", "fields": fields}, rows)


@pytest.mark.parametrize("is_avro", [False, True])
@pytest.mark.parametrize("first", [None, "9"])
def test_sort_keys_of_events_that_are_texts_are_in_the_order_of_what_they_say(tmp_path, catalog, is_avro, first):
    """As texts "9999999" is above "10000001": the older row won, and a delete did nothing."""
    catalog.create_table("events", primary_keys=["id"], sort_keys=["__scn"])
    for number, (op, scn) in enumerate([("c", first), ("u", "9999999"), ("u", "10000001"), ("d", "20000000")]):
        rows = [{"__op": op, "id": 1, "v": scn, "__scn": scn}]
        if is_avro:
            avro(path := tmp_path / f"{number}.avro", rows)
            appended = catalog.append_files("events", path, operation_column="__op")
        else:
            appended = catalog.append("events", pa.Table.from_pylist(rows, avro_like(rows)), operation_column="__op")
        assert not appended.compared_as_texts
        assert catalog.read("events")["v"].to_pylist() == ([] if op == "d" else [scn])


def avro_like(rows):
    return pa.schema([(name, pa.int32() if name == "id" else pa.string()) for name in rows[0]])


@pytest.mark.parametrize("texts", [["10", "9"], ["2026-11-29T10:00:00Z", "2026-11-29T10:00:00.5Z"], [None, None]])
def test_a_column_of_texts_keeps_the_type_that_its_frame_says(catalog, texts):
    catalog.create_table("events", primary_keys=["id"], sort_keys=["rank"])
    rows = {"op": ["c", "c"], "id": [1, 1], "rank": pa.array(texts, pa.string())}
    catalog.append("events", pa.table(rows), operation_column="op")
    assert catalog.read("events")["rank"].type == pa.string()
    assert catalog.read("events")["rank"].to_pylist() == [max(texts, key=lambda text: text or "")]


def test_sort_keys_of_events_that_stay_texts_are_said(catalog):
    catalog.create_table("events", primary_keys=["id"], sort_keys=["at"])
    rows = {"op": ["c"], "id": [1], "at": ["1.10"]}
    assert catalog.append("events", pa.table(rows), operation_column="op").compared_as_texts == ("at",)


def test_sort_keys_whose_type_another_partition_has_are_no_texts(tmp_path):
    """The last partition has no type. The rows are read again, and only then compared as numbers."""
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", ["day"], ["id"], ["at"])
    catalog.append("t", pa.table({"id": [1], "at": pa.array(["9.5"]).cast(pa.decimal128(12, 2))}), {"day": "mon"})
    catalog.append("t", pa.table({"id": [1], "at": pa.nulls(1)}), {"day": "tue"})
    (path := tmp_path / "a.jsonl").write_text(json.dumps({"op": "u", "day": "mon", "id": 1, "at": "10.5"}))
    assert catalog.append_files("t", path, operation_column="op").compared_as_texts == ()
    assert sorted(map(str, catalog.read("t")["at"].to_pylist())) == ["10.50", "None"]

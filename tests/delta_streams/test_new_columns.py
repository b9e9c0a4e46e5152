"""A wrong file changes a schema for ever, so new columns and null keys are said, or refused.

upsert of 2 rows in 1 file at position 1795308844334
1 new column: regoin
1 row with null in key column 'id'
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from deltacompact import DeltaStreamCatalog, SchemaError, Settings, compact, open_catalog
from deltacompact.base.errors import ConflictError, InputError
from deltacompact.base.events import ColumnsAdded
from deltacompact.base.model import SchemaMode
from deltacompact.storage.memory import MemoryStore

LOCAL = Settings(executor="local")
GOOD = pa.table({"id": [1], "region": ["eu"], "s": [{"x": 1}]})
TYPO = pa.table({"id": [2], "regoin": ["eu"], "s": [{"x": 1, "y": 2}]})


def lake(**declared) -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"], **declared)
    return catalog


def written(folder: Path, table: pa.Table, name: str = "given.parquet") -> Path:
    pq.write_table(table, folder / name)
    return folder / name


@pytest.mark.parametrize("compacted", [False, True], ids=["deltas", "compacted"])
def test_new_columns_are_named_in_the_answer(compacted):
    catalog = lake()
    assert catalog.append("t", GOOD).new_columns == (), "the first columns of a stream are no news"
    if compacted:
        compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert catalog.append("t", GOOD).new_columns == ()
    delta = DeltaStreamCatalog(catalog.store).append("t", TYPO)
    assert delta.committed and delta.new_columns == ("regoin", "s.y")
    assert catalog.append("t", TYPO).new_columns == ()


def test_columns_of_deletes_are_no_columns_of_the_table():
    catalog = lake()
    catalog.append("t", GOOD)
    assert catalog.append("t", TYPO, operation="delete").new_columns == ()


def test_a_column_that_deletes_had_with_another_type_may_come_with_upserts():
    catalog = lake()
    catalog.append("t", GOOD)
    catalog.append("t", pa.table({"id": [9], "reason": [b"gone"]}), operation="delete")
    delta = catalog.append("t", pa.table({"id": [2], "reason": [7]}))
    assert delta.new_columns == ("reason",)
    assert catalog.read("t")["reason"].to_pylist() == [None, 7]


def test_the_command_line_tells_of_new_columns_and_null_keys_in_text_and_json(tmp_path, run):
    run("create", "t", "--primary-key", "id")
    run("append", "t", written(tmp_path, GOOD))
    odd = written(tmp_path, pa.table({"id": [None, 3, None], "regoin": ["a", "b", "c"]}))
    text = run("append", "t", odd)
    assert "1 new column: regoin" in text and "2 rows with null in key column 'id'" in text
    document = json.loads(run("append", "t", odd, "--json"))
    assert document["new_columns"] == [] and document["null_keys"] == {"id": 2}
    said = run("compact", "t")
    assert "4 rows with null in key column 'id'" in said


def test_compaction_tells_of_new_columns_in_its_answer_and_by_an_event():
    catalog, events = lake(), []
    catalog.append("t", GOOD)
    compact("t", delta_catalog_client=catalog, settings=LOCAL, event_sinks=[events.append])
    assert not [event for event in events if isinstance(event, ColumnsAdded)]
    catalog.append("t", TYPO)
    (done,) = compact("t", delta_catalog_client=catalog, settings=LOCAL, event_sinks=[events.append]).sessions
    assert done.new_columns == ("regoin",)
    assert [event.columns for event in events if isinstance(event, ColumnsAdded)] == [("regoin",)]


@pytest.mark.parametrize("extension", ["parquet", "csv", "jsonl", "feather", "orc"])
def test_null_keys_are_counted_in_every_format(tmp_path, extension):

    table, path = pa.table({"id": [1, None, None], "a": ["x", "y", None]}), tmp_path / f"given.{extension}"
    match extension:
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        case "csv":
            path.write_text("id,a\n1,x\n,y\n,\n")
        case _:
            write = {"parquet": pq.write_table, "feather": pa.feather.write_feather, "orc": pa.orc.write_table}
            write[extension](table, path)
    catalog = lake()
    assert catalog.append_files("t", path).null_keys == {"id": 2}
    assert catalog.append_files("t", path, reference=True).null_keys == {"id": 2}
    assert catalog.append("t", table).null_keys == {"id": 2}
    assert catalog.append("t", table.slice(0, 1)).null_keys == {}


@pytest.mark.parametrize("compacted", [False, True], ids=["deltas", "compacted"])
def test_a_fixed_schema_refuses_new_and_wider_columns_and_leaves_nothing(compacted):
    catalog = lake(schema_mode="fixed")
    catalog.append("t", GOOD)
    if compacted:
        compact("t", delta_catalog_client=catalog, settings=LOCAL)
    files = len([*catalog.store.list("t/data/")])
    wider = pa.table({"id": [1], "s": pa.array([{"x": 1}], pa.struct([("x", pa.float64())]))})
    for each in (catalog, DeltaStreamCatalog(catalog.store)):
        with pytest.raises(SchemaError, match=r"the appended table: column 'regoin' is new .*table 't' is fix"):
            each.append("t", TYPO)
        with pytest.raises(SchemaError, match="double"):
            each.append("t", wider)
    assert len([*catalog.store.list("t/data/")]) == files
    catalog.append("t", pa.table({"id": [5]}))  # a column less is no new one
    assert catalog.append("t", TYPO, schema_mode="merge").new_columns == ("regoin", "s.y")
    catalog.append("t", TYPO)


def test_a_fixed_schema_refuses_a_wider_integer():
    catalog = lake()
    catalog.append("t", pa.table({"id": [1], "v": pa.array([1], pa.int32())}))
    with pytest.raises(SchemaError, match="column 'v' would become wider than int32"):
        catalog.append("t", pa.table({"id": [1], "v": pa.array([1], pa.int64())}), schema_mode=SchemaMode.FIXED)
    catalog.append("t", pa.table({"id": [1], "v": pa.array([1], pa.int16())}), schema_mode="fixed")


def test_declared_columns_are_no_news():
    """A sort column that no file has had yet is declared; a partition column, too."""
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day"], ["id"], ["lsn"], schema_mode="fixed")
    catalog.append("t", pa.table({"id": [1]}), {"day": "mon"})
    delta = catalog.append("t", pa.table({"id": [1], "lsn": [5], "day": ["mon"]}), {"day": "mon"})
    assert delta.new_columns == ()


def test_the_first_file_of_a_partition_is_compared_with_another_partition_where_the_schema_is_fixed():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", ["day"], ["id"], schema_mode="fixed")
    catalog.append("t", GOOD, {"day": "mon"})
    for each in (catalog, DeltaStreamCatalog(catalog.store)):
        with pytest.raises(SchemaError, match="'regoin' is new"):
            each.append("t", TYPO, {"day": "tue"})
        assert len(each.partitions("t")) == 1, "a refusal begins no stream"
    assert catalog.append("t", GOOD, {"day": "tue"}).new_columns == ()


UNNAMED = {
    "": "column 2 has no name",
    "  ": "column 2 has no name",
    "__index_level_0__": "'__index_level_0__' is an index of pandas",
    "Unnamed: 0": "'Unnamed: 0' is an index of pandas",
}


@pytest.mark.parametrize("name", UNNAMED)
def test_a_column_that_nobody_has_named_is_refused_with_the_remedy(tmp_path, name):
    catalog, table = lake(), pa.table([[1], [2]], names=["id", name])
    for begun in (False, True):
        for append in (
            lambda: catalog.append("t", table),
            lambda: catalog.append_files("t", written(tmp_path, table)),
            lambda: catalog.restate("t", table),
        ):
            assert begun or not catalog.partitions("t"), "a refusal begins no stream"
            with pytest.raises(SchemaError, match=UNNAMED[name]) as raised:
                append()
            assert "name" in str(raised.value)
        assert len([*catalog.store.list("t/data/")]) == int(begun)
        catalog.append("t", pa.table({"id": [1]})) if not begun else None


def test_an_index_that_pandas_wrote_is_refused_in_csv_and_parquet(tmp_path):
    frame, catalog = pd.DataFrame({"id": [1, 2]}, index=["a", "b"]), lake()
    frame.to_csv(tmp_path / "a.csv")
    frame.to_parquet(tmp_path / "a.parquet")
    for name, said in (("a.csv", "column 1 has no name"), ("a.parquet", "write the file with index=False")):
        with pytest.raises(SchemaError, match=rf"{name}: .*{said}"):
            catalog.append_files("t", tmp_path / name)


def test_a_column_without_a_name_that_the_table_has_already_stays(monkeypatch):
    """Release 0.1 took it; the producer must not break."""
    from deltacompact.delta_streams.appending import stream_fit

    catalog, table = DeltaStreamCatalog(MemoryStore()), pa.table({"id": [1], "Unnamed: 0": [0]})
    catalog.create_table("t", ["day"], ["id"])
    with pytest.raises(SchemaError, match="'Unnamed: 0' is an index"):
        catalog.append("t", table, {"day": "mon"})
    with monkeypatch.context() as patch:
        patch.setattr(stream_fit, "check_names", lambda *_: None)
        catalog.append("t", table, {"day": "mon"})
    catalog.append("t", table, {"day": "mon"})
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    catalog.append("t", table, {"day": "mon"})
    catalog.append("t", table, {"day": "tue"})  # a new partition of it


def test_the_schema_mode_is_in_the_tables_document_and_may_change(tmp_path):
    catalog = open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    document = (tmp_path / "lake/t/table.json").read_text()
    assert "schema_mode" not in document
    catalog.declare_schema_mode("t", "fixed")
    assert open_catalog(tmp_path / "lake").table("t").schema_mode is SchemaMode.FIXED
    catalog.create_table("t", primary_keys=["id"])  # says nothing of the mode
    with pytest.raises(ConflictError):
        catalog.create_table("t", primary_keys=["id"], schema_mode="merge")
    catalog.declare_schema_mode("t", "merge")
    assert (tmp_path / "lake/t/table.json").read_text() == document
    for wrong in ("fix", 7):
        with pytest.raises(InputError, match="it must be 'merge' or 'fixed'"):
            catalog.append("t", GOOD, schema_mode=wrong)


def test_create_changes_the_schema_mode_of_a_table_that_exists(tmp_path, run):
    run("create", "t", "--primary-key", "id")
    run("append", "t", written(tmp_path, GOOD))
    typo = written(tmp_path, TYPO)
    assert "its schema mode is fixed now" in run("create", "t", "--primary-key", "id", "--schema-mode", "fixed")
    assert "nothing was changed" in run("create", "t", "--primary-key", "id")
    assert "'regoin' is new" in run("append", "t", typo, status=2)
    assert json.loads(run("show", "t", "--json"))["schema_mode"] == "fixed"
    assert "2 new columns: regoin, s.y" in run("append", "t", typo, "--schema-mode", "merge")

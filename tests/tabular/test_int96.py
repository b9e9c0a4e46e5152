"""Timestamps of 12 bytes: years that nanoseconds do not reach stay what they are, and no digit is cut."""

from __future__ import annotations

import datetime
import io
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from remote_store import RemoteStore
from tables import compacted_files

from deltacompact import DeltaStreamCatalog, InputError, SchemaError, Settings, compact
from deltacompact.base.data_file import DataFile
from deltacompact.base.model import ContentType
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import far_values, files, inspecting, int96, parquet_read
from deltacompact.tabular.far_files import with_far_values

NEVER, FIRST, TODAY = datetime.datetime(9999, 12, 31), datetime.datetime(1, 1, 1), datetime.datetime(2026, 11, 22)
US, NS = pa.timestamp("us"), pa.timestamp("ns")
ROWS = 5


def of(values: pa.Array, **others: pa.Array) -> pa.Table:
    return pa.table({"id": range(len(values)), "at": values, **others})


def stored(store: Any, rows: pa.Table, name: str = "x.parquet") -> str:
    sink = io.BytesIO()
    pq.write_table(rows, sink, use_deprecated_int96_timestamps=True, row_group_size=2)
    store.put(name, sink.getvalue())
    return name


def inspected(store: Any, rows: pa.Table) -> DataFile:
    return inspecting.inspect(store, stored(store, rows), ContentType.PARQUET, decoded=True)


def read(store: Any, file: DataFile, rows: tuple[int, int] | None = None) -> pa.Table:
    return pa.concat_tables(table for _, table in files.read(store, file, None, rows))


FITTING = {
    "years of four digits": pa.array([NEVER, TODAY, None, FIRST], US),
    "nanoseconds": pa.array([1001, None, -1, 10**18 + 7], NS),
    "neither": pa.array([TODAY, None], US),
    "in a list": pa.array([[NEVER], None, [None, TODAY]], pa.list_(US)),
    "in a map": pa.array([[("a", 1001)], None, []], pa.map_(pa.string(), NS)),
    "in a struct": pa.array([{"a": FIRST, "b": 1}, None], pa.struct([("a", US), ("b", pa.int32())])),
}


@pytest.mark.parametrize("make", [MemoryStore, RemoteStore])
@pytest.mark.parametrize("values", FITTING.values(), ids=FITTING)
def test_every_value_is_read_as_it_was_written(values, make):
    store = make()
    file = inspected(store, of(values))
    rows = read(store, file)
    assert rows["at"].to_pylist() == values.to_pylist()
    assert not file.decodes  # other engines wrap, so no compacted file has them
    assert (
        with_far_values(store, file).far
        == with_far_values(store, replace(file, far=None)).far
        == far_values.of_table(rows)
    )


def test_no_unit_holds_both():
    rows = of(pa.array([None, TODAY], NS), fine=pa.array([1001, 1], NS), until=pa.array([FIRST, NEVER], US))
    with pytest.raises(InputError, match=r"x\.parquet: column 'fine' has nanoseconds, and column 'until' has "):
        inspected(MemoryStore(), rows)


def test_a_file_that_the_log_has_is_inspected_without_its_rows(monkeypatch):
    """A check read every such column of each file twice, with --quick, too."""
    store = MemoryStore()
    file = inspected(store, of(pa.array([NEVER, TODAY], US)))
    for module in (parquet_read, int96):
        monkeypatch.setattr(module, "batches", None)
    again = inspecting.inspect(store, file.path, ContentType.PARQUET, logged=file)
    assert (again.schema, again.far, again.rows) == (file.schema, file.far, file.rows)


def test_a_file_by_spark_is_inspected_without_its_rows(monkeypatch):
    """Spark writes such timestamps by default, in microseconds. Each column of a table on S3 was fetched twice."""
    store, ours = MemoryStore(), b"parquet-cpp-arrow version 26"
    rows = of(pa.array([NEVER, TODAY], US)).replace_schema_metadata({"org.apache.spark.version": "4.1.0"})
    name = stored(store, rows)
    by_pyarrow = store.get(name)
    assert by_pyarrow.count(ours) == 1
    with monkeypatch.context() as patch:
        patch.setattr(int96, "batches", None)
        with pytest.raises(TypeError):  # rows that Spark wrote first, and somebody else again
            inspecting.inspect(store, name, ContentType.PARQUET)
        store.put(name, by_pyarrow.replace(ours, b"parquet-mr version 1.16.0   "))
        assert inspecting.inspect(store, name, ContentType.PARQUET).schema.field("at").type == US


def test_what_stands_beside_times_does_not_count():
    """NaN is not equal to NaN: a unit was refused, or nanoseconds were recorded for nothing."""
    beside = [{"at": TODAY, "x": float("nan")}, None, {"at": None, "x": 1.0}, {"at": TODAY, "x": float("nan")}]
    rows = of(pa.array(beside, pa.struct([("at", US), ("x", pa.float64())])))
    assert inspected(MemoryStore(), rows).schema.field("at").type.field("at").type == US
    file = inspected(MemoryStore(), rows.append_column("until", pa.array([NEVER] * 4, US)))
    assert file.schema.field("until").type == US


def test_a_file_of_an_older_build_is_read_as_recorded_or_refused():
    """It recorded nanoseconds for all: digests and values of such a file must not change, and none may wrap."""
    store = MemoryStore()
    values = pa.array([TODAY, TODAY, NEVER, TODAY], US)
    file = inspected(store, of(values))
    old = replace(file, schema=pa.schema([("id", pa.int64()), ("at", NS)]), far=())
    assert read(store, old, (0, 2))["at"].equals(pa.chunked_array([values[:2].cast(NS)]))
    assert read(store, replace(old, schema=pa.schema([("id", pa.int64())])))["id"].to_pylist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match=r"x\.parquet cannot be read: column 'at' is timestamp\[ns\].*9999-12-31"):
        read(store, old, (1, 4))
    fine = of(pa.array([1001, 7], NS))
    assert read(store, inspected(store, fine)).equals(fine)


def test_an_older_builds_table_has_a_way_out(tmp_path, monkeypatch):
    catalog, settings = DeltaStreamCatalog(MemoryStore()), Settings(executor="local", local_threads=1)
    table, path = catalog.create_table("t", primary_keys=["k"]), tmp_path / "x.parquet"
    with monkeypatch.context() as older:
        older.setattr(int96, "unit_of", lambda *_: "ns")
        for value in (TODAY, NEVER):
            rows = pa.table({"k": [value.year], "at": pa.array([value], US)})
            pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
            compact("t", delta_catalog_client=catalog, settings=settings)
            catalog.append_files("t", [path])
    with pytest.raises(InputError, match=r"does not hold 9999-12-31: restate .* with coerce_int96_timestamp_unit='us'"):
        compact("t", delta_catalog_client=catalog, settings=settings)
    table.restate(pq.read_table(path, coerce_int96_timestamp_unit="us"))
    compact("t", delta_catalog_client=catalog, settings=settings)
    assert catalog.read("t")["at"].to_pylist() == [NEVER]


def test_a_sentinel_is_the_greatest_sort_key_and_outlives_a_compaction(tmp_path):
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"], sort_keys=["at"])
    for values in ([NEVER], [TODAY]):
        path = tmp_path / f"{values[0]:%Y}.parquet"
        pq.write_table(pa.table({"k": [1], "at": pa.array(values, US)}), path, use_deprecated_int96_timestamps=True)
        catalog.append_files("t", [path])
    for _ in range(2):
        assert catalog.read("t")["at"].to_pylist() == [NEVER]
        compact("t", delta_catalog_client=catalog, settings=Settings(executor="local", local_threads=1))
    (file,) = compacted_files(catalog)
    assert file.schema.field("at").type == US


def test_a_table_in_nanoseconds_refuses_a_sentinel(tmp_path):
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    catalog.append("t", pa.table({"k": [1], "at": pa.array([1], NS)}))
    for moment, why in ((TODAY, None), (NEVER, r"column 'at' has the value 9999-12-31")):
        path = tmp_path / f"{moment:%Y}.parquet"
        pq.write_table(pa.table({"k": [2], "at": pa.array([moment], US)}), path, use_deprecated_int96_timestamps=True)
        if why is None:
            catalog.append_files("t", [path])
        else:
            with pytest.raises(SchemaError, match=why):
                catalog.append_files("t", [path])
    assert catalog.read("t").schema.field("at").type == NS


def test_json_and_uuids_have_the_types_in_which_they_are_stored():
    """Some programs, DuckDB for instance, say of a column that its texts are JSON, or that its 16 bytes are UUIDs."""
    uuids, texts = pa.array([bytes(16)], pa.binary(16)), pa.array(["{}"])
    named = {"u": pa.ExtensionArray.from_storage(pa.uuid(), uuids), "j": texts.cast(pa.json_())}
    for moments in ({}, {"at": pa.array([TODAY], US)}):
        sink, store = io.BytesIO(), MemoryStore()
        rows = pa.table({"id": [1], **named, **moments})
        pq.write_table(rows, sink, use_deprecated_int96_timestamps=True, store_schema=False)
        store.put("x.parquet", sink.getvalue())
        file = inspecting.inspect(store, "x.parquet", ContentType.PARQUET, decoded=True)
        assert [file.schema.field(name).type for name in named] == [pa.binary(16), pa.string()]
        assert read(store, file)["j"].to_pylist() == ["{}"]

"""Live rows in DuckDB, Polars and pyarrow's datasets, of both kinds of tables, deltas that wait included.

What the other library asks for is all that is read: a scan that counts says which columns it was asked for.
"""

from __future__ import annotations

import json
import re
import sys

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from iceberg_lake import Lake

import deltacompact
from deltacompact.base.errors import InputError
from deltacompact.layout.reads import read_from_document
from deltacompact.reading.engines import dataset_of, lazy_frame_of, relation_of, scanning
from deltacompact.reading.recorded import VARIABLE

ROWS = pa.table({"id": [1, 2, 3, 4], "status": ["new", "sent", "new", None], "total": [1.5, 2.5, 3.5, 4.5]})


@pytest.fixture(params=["streams", "iceberg"])
def orders(request, tmp_path):
    """The rows 2, 3 and 4: 1 was deleted, and that is not compacted yet."""
    if request.param == "streams":
        catalog = deltacompact.open_catalog(tmp_path / "lake")
        table = catalog.create_table("orders", primary_keys=["id"])
        table.append(ROWS.slice(0, 2))
        table.compact()
        table.append(ROWS.slice(2))
        table.append(pa.table({"id": [1]}), operation="delete")
        return table
    lake = Lake(tmp_path / "iceberg", "engines")
    lake.create("ns.orders", ROWS.schema)
    lake.append("ns.orders", ROWS)
    lake.delete_by_key("ns.orders", {"id": [1]})
    return deltacompact.open_catalog(lake.catalog).table("ns.orders")


def test_the_rows_are_those_of_read(orders):
    expected = sorted(orders.read().to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in expected] == [2, 3, 4]
    assert orders.to_polars().sort("id").collect().to_dicts() == expected
    assert orders.to_duckdb().order("id").fetchall() == [tuple(row.values()) for row in expected]
    assert orders.dataset().to_table().sort_by("id").to_pylist() == expected
    assert orders.dataset().count_rows() == 3 and orders.dataset().head(2).num_rows == 2


def test_compacted_files_are_read_together_where_a_column_had_no_value_at_first(tmp_path):
    table = deltacompact.open_catalog(tmp_path).create_table("t", primary_keys=["id"])
    for first, value, part in ((0, None, None), (10, "new", 1.5)):
        rows = pa.table({"id": range(first, first + 10), "v": [value] * 10, "s": [{"a": [part]}] * 10})
        table.append(rows)
        table.compact(rows_per_compacted_file=10)
    files = table.compacted_files()
    assert len(files) == 2
    expected = sorted(table.read().to_pylist(), key=str)
    assert sorted(ds.dataset(files).to_table().to_pylist(), key=str) == expected
    assert sorted(pl.read_parquet(files).to_dicts(), key=str) == expected
    assert sorted(duckdb.read_parquet(files).to_arrow_table().to_pylist(), key=str) == expected


def test_each_asks_for_filters_and_columns(orders):
    assert orders.to_polars().filter(pl.col("total") > 3).select("id").sort("id").collect()["id"].to_list() == [3, 4]
    assert orders.to_polars().select(pl.len()).collect().item() == 3
    assert orders.to_polars().head(1).collect().height == 1
    assert orders.to_duckdb().filter("total > 3 AND status IS NULL").project("id").fetchall() == [(4,)]
    live = orders.dataset()
    assert live.filter(pc.field("id") > 2).to_table(filter=pc.field("total") < 4, columns=["id"]).to_pylist() == [
        {"id": 3}
    ]
    connection = duckdb.connect()
    connection.register("live", live)
    assert connection.sql("SELECT status, count(*) FROM live GROUP BY status ORDER BY status").fetchall() == [
        ("new", 1),
        ("sent", 1),
        (None, 1),
    ]


def test_duckdb_sql_knows_a_relation_and_a_dataset_by_their_variables(orders):
    live, rows = orders.to_duckdb(), orders.dataset()  # noqa: F841  (DuckDB looks for them)
    for name in ("live", "rows"):
        assert duckdb.sql(f"SELECT sum(total) FROM {name} WHERE id > 2").fetchall() == [(8.0,)]
    joined = duckdb.sql("SELECT live.id FROM live JOIN rows USING (id) WHERE rows.status IS NULL")
    assert joined.fetchall() == duckdb.sql("SELECT id FROM live WHERE status IS NULL").fetchall() == [(4,)]


def test_a_selection_holds_for_all_that_read_through_it(orders):
    assert orders.to_polars(filter=[("id", ">", 2)], columns=["id"]).collect()["id"].sort().to_list() == [3, 4]
    assert sorted(orders.to_duckdb(columns=["id", "total"]).filter("total > 3").fetchall()) == [(3, 3.5), (4, 4.5)]


class Counting:
    """A scan of ROWS that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str] | None, bool]] = []

    def __call__(self, *, columns=None, filter=None):
        self.asked.append((columns, filter is not None))
        rows = ROWS if filter is None else ROWS.filter(filter)
        return (rows if columns is None else rows.select(columns)).to_reader()


def test_no_more_columns_are_read_than_are_asked_for():
    counting = Counting()
    relation = relation_of(counting)
    counting.asked.clear()
    assert relation.filter("id > 2").project("total").fetchall() == [(3.5,), (4.5,)]
    ((columns, filtered),) = counting.asked
    assert set(columns) <= {"id", "total"} and filtered
    frame = lazy_frame_of(counting)
    counting.asked.clear()
    frame.filter(pl.col("total") > 2).select("id").collect()
    assert counting.asked == [(["id", "total"], False)]
    counting.asked.clear()
    dataset_of(counting).count_rows()
    assert (["id"], False) in counting.asked


def test_a_table_without_columns_is_refused_by_duckdb_alone(tmp_path):
    table = deltacompact.open_catalog(tmp_path / "lake").create_table("t", primary_keys=["id"])
    assert table.to_polars().collect().shape == (0, 0) and table.dataset().to_table().num_rows == 0
    with pytest.raises(InputError, match="no rows yet, so it has no columns"):
        table.to_duckdb()


@pytest.mark.parametrize("way", ["read", "dataset", "to_duckdb", "to_polars"])
@pytest.mark.parametrize("wanted", [[("total", 3)], "id > 2", 7], ids=repr)
def test_a_malformed_filter_is_refused_as_by_read(orders, way, wanted):
    with pytest.raises(InputError, match=f"^filter {re.escape(repr(wanted))} is neither"):
        getattr(orders, way)(filter=wanted)


def test_a_filter_may_be_a_function_of_the_columns(orders):
    live = orders.dataset(filter=lambda columns: pc.field("id") > pa.scalar(2, columns.field("id").type))
    assert sorted(live.to_table()["id"].to_pylist()) == [3, 4]
    assert live.to_table(filter=pc.field("total") < 4)["id"].to_pylist() == [3]


def test_a_filter_of_the_table_and_one_of_the_engine_both_count():
    counting = Counting()
    scan = scanning(lambda **asked: counting(**asked), {"filter": [("id", ">", 1)]})
    assert scan(columns=["id"], filter=pc.field("total") < 4).read_all()["id"].to_pylist() == [2, 3]


def test_live_rows_have_no_fragments(orders):
    with pytest.raises(NotImplementedError, match="use scanner, to_table, to_batches or head"):
        orders.dataset().get_fragments()


@pytest.mark.parametrize("package", ["polars", "duckdb"])
def test_a_library_that_is_not_installed_is_told_in_one_line(orders, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(deltacompact.InputError, match=f"^{package} is not installed: pip install {package}$"):
        getattr(orders, f"to_{package}")()


def test_reads_are_recorded_where_the_environment_says_so_and_tell_advice_what_is_asked(
    orders, tmp_path, monkeypatch, caplog
):
    log = tmp_path / "reads.jsonl"
    orders.read(filter=[("total", ">", 9)])  # nobody asked for records
    monkeypatch.setenv(VARIABLE, str(log))
    orders.read(filter=[("status", "==", "an-unlikely-literal")], columns=["id"])
    orders.read(filter=pc.field("total") > 3)
    orders.to_polars().filter(pl.col("total") > 3).select("id").collect()
    orders.to_duckdb().filter("id > 2").project("id").fetchall()
    orders.dataset().schema  # noqa: B018, no read: no row is taken
    next(iter(orders.scan()))  # a reader that stops
    lines = log.read_bytes().splitlines()
    table = "ns.orders" if "ns.orders" in repr(orders) else "orders"
    found = [read_from_document(json.loads(line)) for line in lines]
    assert [(read.table, read.columns) for read in found] == [
        (table, columns) for columns in (("status",), ("total",), ("total",), ("id",), ())
    ]
    counts = [(read.files_opened, read.files_skipped, read.rows) for read in found[:4]]
    # Of the streams, the base has the rows 1 and 2, and its footer tells. The two deltas are opened for their keys.
    streams = [(3, 0, 0), (3, 0, 2), (3, 0, 3), (3, 0, 2)]
    assert counts == (streams if table == "orders" else [(0, 1, 0), (1, 0, 3), (1, 0, 3), (1, 0, 3)])
    assert b"unlikely" not in log.read_bytes()
    assert orders.advise(scan_reports=[*lines, b'{"at": 1, "read": {"table": 7}}']).columns == ("total", "id", "status")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "no folder" / "reads.jsonl"))
    assert orders.read().num_rows == 3 and "was not recorded" in caplog.text
    with pytest.raises(InputError, match="no read in 1 scan report has a predicate on a column of table"):
        orders.advise(scan_reports=lines[-1:])

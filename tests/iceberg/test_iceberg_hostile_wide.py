"""Tables of thousands of columns or partitions: what is done for each must not grow with their number."""

from __future__ import annotations

import pytest
from iceberg_lake import Lake
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from deltacompact.iceberg.table.pyiceberg_door import IcebergTable, plain
from deltacompact.index import live_bitmaps
from deltacompact.tabular import field_ids

T = "ns.t"
COLUMNS = 300


def wide(lake: Lake) -> None:
    types = (LongType(), StringType())
    lake.create(T, Schema(*(NestedField(number + 1, f"c{number}", types[number % 2]) for number in range(COLUMNS))))
    for start in range(2):
        lake.append(T, [{"c0": start, "c1": "a"}])


def counting(monkeypatch, module, name: str) -> list[None]:
    """Calls of a function of a module, as they are made."""
    calls: list[None] = []
    function = getattr(module, name)

    def counted(*arguments):
        calls.append(None)
        return function(*arguments)

    monkeypatch.setattr(module, name, counted)
    return calls


@pytest.mark.slow
def test_columns_are_matched_in_one_pass_over_them(lake, monkeypatch):
    wide(lake)
    calls = counting(monkeypatch, field_ids, "field_id")
    lake.rewrite(T, rewrite_all=True)
    assert len(calls) < 100 * COLUMNS  # some passes for each file; looking for each column among all would be 300 x
    assert [(row["c0"], row["c1"], row["c299"]) for row in lake.rows(T)] == [(0, "a", None), (1, "a", None)]


def test_a_tables_columns_are_converted_at_once(lake, monkeypatch):
    wide(lake)
    with lake.catalog.load_table(T).update_schema() as change:
        change.delete_column("c7")
    with lake.catalog.load_table(T).update_schema() as change:
        change.add_column("c7", LongType())
    IcebergTable.load(lake.catalog, T)  # the first one in a process asks what PyIceberg does with some types
    calls = counting(monkeypatch, plain, "schema_to_pyarrow")
    columns = IcebergTable.load(lake.catalog, T).metadata.columns
    assert len(calls) == 3  # today's schema, for its columns and as a whole, and the column that was dropped
    assert (len(columns), columns[8].is_dropped, columns[COLUMNS + 1].field.name) == (COLUMNS + 1, True, "c7")


def test_an_output_reads_only_the_live_bitmaps_of_its_own_files(lake, monkeypatch):
    lake.create(T, Schema(NestedField(1, "id", LongType())))
    for number in range(12):
        lake.append(T, [{"id": number}])
    lake.delete_by_key(T, {"id": [3]})
    calls = counting(monkeypatch, live_bitmaps._kernels, "crc32")
    lake.rewrite(T, rewrite_all=True, max_file_group_input_files=1)
    assert len(calls) < 4 * 12  # written, and read once; each output reading all would be 12 x 11
    assert [row["id"] for row in lake.rows(T)] == sorted({*range(12)} - {3}, key=repr)

"""Values that rows have although their file does not: by row number or constant, in columns that it lacks or has."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.base.data_file import DataFile, Fill
from deltacompact.base.limits import ReadLimits
from deltacompact.base.model import ContentType
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import field_ids, files
from deltacompact.tabular.field_ids import FIELD_ID


def column(number, name, type_):
    return pa.field(name, type_, metadata={FIELD_ID: str(number)})


ID, ROW_ID, COUNTRY = column(1, "id", pa.int64()), column(8, "_row_id", pa.int64()), column(9, "country", pa.string())
NUMBERED = Fill(ROW_ID, pa.scalar(100), step=1, of_nulls=True)
CONSTANT = Fill(COUNTRY, pa.scalar("de"))


def stored(rows, columns, group_rows, *fills):
    """A file of row groups with so many rows, and its store."""
    store = MemoryStore()
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(rows, pa.schema(columns))
    pq.write_table(table, sink, row_group_size=group_rows)
    store.put("a.parquet", sink.getvalue().to_pybytes())
    size = len(store.get("a.parquet"))
    file = DataFile(UNNUMBERED, "a.parquet", ContentType.PARQUET, len(rows), size, table.schema)
    return store, replace(file, fills=fills)


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 99)), min_size=1, max_size=30),
    st.integers(1, 7),
    st.integers(1, 5),
    st.data(),
)
def test_filled_rows_of_any_part_of_a_file(given_ids, group_rows, batch_rows, data):
    """A row number counts from the beginning of the file, whatever part is read and in what batches."""
    rows = [{"id": number, "_row_id": row_id} for number, row_id in enumerate(given_ids)]
    columns = [ID, ROW_ID] if data.draw(st.booleans()) else [ID]
    store, file = stored(rows, columns, group_rows, NUMBERED, CONSTANT)
    wanted = data.draw(st.permutations([ID, ROW_ID, COUNTRY]))[: data.draw(st.integers(1, 3))]
    file = field_ids.matched(file, pa.schema(wanted))
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    limits = ReadLimits(batch_rows_max=batch_rows, run_bytes=64)
    found = []
    for first, table in files.read(store, file, None, (start, stop), limits):
        assert first == start + len(found)
        found += table.to_pylist()
    row_ids = given_ids if ROW_ID in columns else [None] * len(rows)
    values = [
        {"id": number, "_row_id": 100 + number if row_ids[number] is None else row_ids[number], "country": "de"}
        for number in range(start, stop)
    ]
    assert found == [{field.name: row[field.name] for field in wanted} for row in values]


def test_fills_follow_ids_and_not_names():
    """A dropped column's fill has today's name of another column."""
    store, file = stored([{"id": 1}], [ID], 5, CONSTANT)
    today = pa.schema([ID, column(10, "country", pa.string())])
    assert field_ids.matched(file, today).schema.names == ["id"]
    renamed = field_ids.matched(field_ids.matched(file, today), pa.schema([column(9, "land", pa.string())]))
    ((_, table),) = files.read(store, renamed)
    assert table.to_pylist() == [{"land": "de"}]


@pytest.mark.parametrize(("fills", "agrees"), [((), True), ((NUMBERED,), False), ((CONSTANT,), True)])
def test_a_file_with_fills_is_not_copied(fills, agrees):
    """Fills of columns that are not asked for do not matter."""
    _, file = stored([{"id": 1, "_row_id": 5}], [ID, ROW_ID], 5, *fills)
    columns = pa.schema([ID, ROW_ID])
    assert field_ids.agree(field_ids.matched(file, columns), columns) is agrees

"""Rows into files of a folder: all of them or none."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltacompact.base.errors import InputError
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import export

SCHEMA = pa.schema([("id", pa.int64())])


def tables(count, dies=False):
    for number in range(count):
        yield pa.table({"id": [number] * 10}, SCHEMA)
    if dies:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("count", "files"), [(0, 1), (1, 1), (4, 2), (5, 3)])
def test_a_folder_gets_files_of_a_size_beside_what_it_has(tmp_path, monkeypatch, count, files):
    monkeypatch.setattr(export, "_FILE_BYTES", 160)
    (tmp_path / "other").write_text("stays")
    for target in (tmp_path, f"{tmp_path / 'new'}/"):
        assert export.exported(MemoryStore(), str(target), SCHEMA, tables(count)) == 10 * count
    for folder in (tmp_path, tmp_path / "new"):
        found = sorted(folder.glob("*.parquet"))
        assert len(found) == files and (tmp_path / "other").exists()
        assert pa.concat_tables(map(pq.read_table, found))["id"].to_pylist()[::10] == list(range(count))


def test_of_rows_that_end_in_the_middle_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_FILE_BYTES", 160)
    with pytest.raises(KeyboardInterrupt):
        export.exported(MemoryStore(), str(tmp_path), SCHEMA, tables(5, dies=True))
    assert list(tmp_path.iterdir()) == []


def test_a_column_that_the_format_cannot_hold_is_named(tmp_path):
    rows = pa.table({"id": [1], "address": [{"city": "Bonn"}]})
    with pytest.raises(InputError, match=r"^column 'address' is struct<city: string>, which \.csv files cannot hold$"):
        export.exported(MemoryStore(), str(tmp_path / "a.csv"), rows.schema, [rows])

"""A data file that was removed and added again under its path: deletes by position that are older leave its rows."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from budgets import examples
from every_mode import KEEP_ALL_ROWS, chosen
from hand_made_tables import data, positions, state
from hypothesis import given, settings
from hypothesis import strategies as st
from iceberg_lake import POSITIONS, Lake
from version_3 import live_rows

from deltacompact.iceberg.deletes.matching import DeleteIndex
from deltacompact.iceberg.live_rows import LiveReader
from deltacompact.iceberg.scan import BranchScan, scanned
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.modes import mode_named
from deltacompact.storage.opening import open_store

T = "ns.t"
ROWS = 4
sequences = st.integers(1, 6)
days = st.sampled_from([None, 3, 4])
named_rows = st.sets(st.tuples(st.sampled_from("abc"), st.integers(0, ROWS - 1)), min_size=1, max_size=6)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.dictionaries(st.sampled_from("abc"), st.tuples(sequences, days), min_size=1),
    st.lists(st.tuples(sequences, days, named_rows, st.booleans()), max_size=6),
)
def test_a_position_delete_hits_only_files_of_its_partition_that_are_not_newer(files, deletes):
    """The oracle is one sentence of the spec ("Scan Planning"). Any delete may name any path, and have no bounds."""
    with tempfile.TemporaryDirectory() as folder:
        entries = [data(path, sequence, day, rows=ROWS) for path, (sequence, day) in files.items()]
        for number, (sequence, day, rows, has_bounds) in enumerate(deletes):
            path = Path(folder, f"{number}.parquet")
            columns = map(list, zip(*sorted(rows), strict=True))
            pq.write_table(pa.table(list(columns), schema=POSITIONS), path)
            of = [of for of, _ in rows] if has_bounds else ()
            entry = positions(str(path), sequence, day, of, len(rows))
            entries.append(replace(entry, file=replace(entry.file, file_bytes=path.stat().st_size)))
        table = state(*entries)
        index = DeleteIndex(table)
        live = LiveReader(open_store(folder), table.metadata).files([index.task(entry) for entry in table.data])
    assert {file.task.entry.file.path: set(np.flatnonzero(~file.lives()).tolist()) for file in live} == {
        path: {
            row
            for delete_sequence, delete_day, rows, _ in deletes
            for of, row in rows
            if of == path and delete_day == day and sequence <= delete_sequence
        }
        for path, (sequence, day) in files.items()
    }


@pytest.mark.parametrize("mode", KEEP_ALL_ROWS)
def test_its_rows_survive_deletes_of_the_former_file_that_a_neighbour_brings(tmp_path, mode):
    """PyIceberg loses them, so a simple reader of the spec is asked."""
    lake = Lake(tmp_path / "lake")
    lake.create(T, pa.schema([("id", pa.int64())]))
    for start in (0, 10, 20):
        lake.append(T, [{"id": start + row} for row in range(ROWS)])
    a, b, c = (entry.file for entry in sorted(lake.state(T).data, key=lambda entry: entry.sequence))
    lake.delete_by_position(T, {a.path: [0, 1], c.path: [0]})
    lake.commit(IcebergTable.load(lake.catalog, T), [], gone={a.path})
    lake.commit(IcebergTable.load(lake.catalog, T), [a], operation="append")
    lake.delete_by_position(T, {a.path: [3], b.path: [3]})
    lake.delete_by_key(T, {"id": [1, 21]})
    expected = [0, 2, 10, 11, 12, 22, 23]
    assert _ids(lake) == expected
    lake.prepared(T, mode=mode_named(mode), **chosen(mode)).run()
    assert sorted(row.values["id"] for row in live_rows(lake, T)) == _ids(lake) == expected


def _ids(lake):
    _, tables = scanned(IcebergTable.load(lake.catalog, T), BranchScan())
    return sorted(number for table in tables for number in table["id"].to_pylist())

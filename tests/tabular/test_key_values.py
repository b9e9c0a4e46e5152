"""The log keeps the ranges of the keys of text files, because no footer tells them; forecasts find them there."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given

import deltacompact
from deltacompact.base.data_file import DataFile
from deltacompact.base.model import ContentType, Partition
from deltacompact.base.numbers import DeltaFileNumber
from deltacompact.storage.local import LocalStore
from deltacompact.table.documents import SchemaTable, file_from_json, file_to_json
from deltacompact.tabular import key_values
from deltacompact.tabular.key_ranges import KeyedGroup, keyed_groups

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def described(ids: list[int | None], names: list[str | None]) -> DataFile:
    table = pa.table({"id": ids, "name": names}, SCHEMA)
    ranges = key_values.of_table(table, ["id", "name", "not there"])
    return DataFile(DeltaFileNumber(0), "a.csv", ContentType.CSV, len(ids), 9, SCHEMA, ranges=ranges)


FILES = st.lists(
    st.lists(st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=70)), max_size=5).map(
        lambda rows: described([lower for lower, _ in rows], [other for _, other in rows])
    ),
    min_size=1,
    max_size=4,
)


@given(FILES)
def test_ranges_survive_the_log_and_a_union_has_all_of_them(files: list[DataFile]) -> None:
    for file in files:
        assert file_from_json(file_to_json(file, schemas := SchemaTable()), schemas).ranges == file.ranges
    for name, low, high in key_values.union(files):
        of_files = [range_ for file in files for range_ in file.ranges if range_[0] == name]
        assert len(of_files) == len(files)
        assert all(low <= lower and other <= high for _, lower, other in of_files)


def test_a_csv_table_tells_its_keys_at_append_and_after_a_compaction(tmp_path: Path) -> None:
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    for number, ids in enumerate(["7\n3\n", "9\n5\n"]):
        (tmp_path / f"{number}.csv").write_text("id\n" + ids)
        catalog.append_files("t", [tmp_path / f"{number}.csv"])
    (partition,) = catalog.partitions("t")
    files = [file for delta in catalog.state("t", partition).deltas for file in delta.files]
    assert [keyed_groups(LocalStore(tmp_path / "lake"), file, ["id"]) for file in files] == [
        (KeyedGroup(2, file.decoded_bytes or 0, {"id": of_file}),)
        for file, of_file in zip(files, [(3, 7), (5, 9)], strict=True)
    ]
    deltacompact.compact("t", delta_catalog_client=catalog, compacted_file_content_type="csv")
    compacted = catalog.state("t", Partition()).compacted
    assert compacted is not None
    assert [file.ranges for file in compacted.files] == [(("id", 3, 9),)]

"""The log tells of each compacted file how large it is when decoded. Plans of memory need that for years.

100,000 rows of 21 B            2,100,000
1,000 of them updated, 12 x     about as many, not 12,000 rows more
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import deltacompact
from deltacompact import DeltaStreamCatalog, Settings
from deltacompact.base.model import Partition
from deltacompact.storage.memory import MemoryStore

LOCAL = Settings(executor="local", local_threads=1)
ROWS = 100_000


def rows(ids):
    return pa.table(
        {"id": ids, "v": np.random.default_rng(1).random(len(ids)), "s": [f"{number:06d}" for number in ids]}
    )


def test_compactions_of_a_year_do_not_make_files_look_larger():
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    catalog.append("t", rows(np.arange(ROWS)))
    generator = np.random.default_rng(2)
    for _ in range(12):
        deltacompact.compact("t", delta_catalog_client=catalog, settings=LOCAL)
        catalog.append("t", rows(generator.choice(ROWS, ROWS // 100, replace=False)))
    deltacompact.compact("t", delta_catalog_client=catalog, settings=LOCAL)
    files = catalog.state("t", Partition()).compacted.files
    whole = catalog.read("t")
    assert whole.num_rows == ROWS
    assert 0.95 * whole.nbytes <= sum(file.decoded_bytes for file in files) <= 1.1 * whole.nbytes


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_the_log_tells_of_the_largest_row_group_too(suffix, tmp_path):
    """Appended, copied beside others that are encoded anew, and appended by reference: one of 60,000 rows."""
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    table, path = rows(np.arange(ROWS)), tmp_path / f"one{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path, row_group_size=60_000)
    else:
        feather.write_feather(table, path, chunksize=60_000)
    catalog.append_files("t", [path])
    catalog.append("t", rows(np.arange(ROWS, ROWS + 10)))
    one, other = [file for delta in catalog.state("t", Partition()).deltas for file in delta.files]
    assert one.group_bytes == pytest.approx(0.6 * table.nbytes, rel=0.1)
    assert other.group_bytes == other.decoded_bytes
    if suffix == ".parquet":
        assert 22 <= one.widest_row_bytes < one.group_bytes, "its pages tell"
    else:
        assert one.widest_row_bytes is None, "nobody looked inside"
    assert 8 + 8 + 6 <= other.widest_row_bytes < 100
    deltacompact.compact("t", delta_catalog_client=catalog, settings=LOCAL)
    (compacted,) = catalog.state("t", Partition()).compacted.files
    group_bytes = max(chunk_rows(tmp_path / "lake" / compacted.path)) / compacted.rows * compacted.decoded_bytes
    assert compacted.group_bytes == pytest.approx(group_bytes, rel=0.1)
    encoded = suffix != ".parquet"
    assert compacted.widest_row_bytes < 100 if encoded else compacted.widest_row_bytes == one.widest_row_bytes


def test_the_log_tells_of_the_widest_row_and_copied_row_groups_keep_it(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"])
    blobs = [b"x" * (70_000 if number == 7 else 10) for number in range(ROWS)]
    catalog.append("t", pa.table({"id": np.arange(ROWS), "b": blobs}))
    for start in (ROWS, ROWS + 10):
        catalog.append("t", pa.table({"id": np.arange(start, start + 10), "b": [b"y" * 100] * 10}))
        deltacompact.compact("t", delta_catalog_client=catalog, settings=LOCAL)
        (compacted,) = catalog.state("t", Partition()).compacted.files
        assert 70_000 < compacted.widest_row_bytes < 70_100


def chunk_rows(path):
    metadata = pq.read_metadata(path)
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def test_an_output_of_a_share_of_its_sources_counts_this_share():
    """Each of several outputs took a few rows of every delta, and counted all of them."""
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["id"])
    for part in range(4):
        catalog.append("t", rows(np.arange(part, ROWS, 4)))
    deltacompact.compact("t", delta_catalog_client=catalog, settings=LOCAL, rows_per_compacted_file=ROWS // 8)
    files = catalog.state("t", Partition()).compacted.files
    assert len(files) >= 8
    assert sum(file.decoded_bytes for file in files) <= 1.1 * catalog.read("t").nbytes

"""A check compares every entry of the index with the row that it points to, in bounded memory."""

import pyarrow as pa
import pytest

import deltacompact
from deltacompact import _kernels
from deltacompact.maintenance import check as checking
from deltacompact.storage.memory import MemoryStore

LOCAL = deltacompact.Settings(executor="local", local_threads=1)


@pytest.fixture
def table():
    orders = deltacompact.DeltaStreamCatalog(MemoryStore()).create_table("orders", primary_keys=["id"])
    orders.append(pa.table({"id": range(1000), "v": range(1000)}))
    orders.compact(settings=LOCAL, hash_bucket_count=5, rows_per_compacted_file=300)
    orders.append(pa.table({"id": range(7)}), operation="delete")
    orders.append(pa.table({"id": range(2000, 3000), "v": range(1000)}))
    orders.compact(settings=LOCAL, rows_per_compacted_file=300)
    return orders


def test_rows_are_divided_by_bucket_a_chunk_at_a_time(table, monkeypatch):
    """The entries of all rows were held twice: 6.4 GB for 100 million rows."""
    group, sizes = _kernels.group_entries, list[int]()

    def grouped(parts, count, **how):
        sizes.append(sum(map(len, parts)))
        return group(parts, count, **how)

    monkeypatch.setattr(_kernels, "group_entries", grouped)
    monkeypatch.setattr(checking, "_CHUNK", 300)
    (found,) = table.check()
    assert found.problems == () and found.index_entries >= 1993
    assert len(sizes) > 1 and sum(sizes) == 1993


def test_a_row_that_is_not_the_one_of_its_entry_is_found(table, monkeypatch):
    live_tables_of_each = checking.live_tables_of_each

    def swapped(*where):
        for tables in live_tables_of_each(*where):
            yield ((rows, keys.set_column(0, "id", [keys["id"].to_pylist()[::-1]])) for rows, keys in tables)

    monkeypatch.setattr(checking, "live_tables_of_each", swapped)
    monkeypatch.setattr(checking, "_CHUNK", 300)
    (found,) = table.check()
    assert "entries and the digests of the rows they point to differ" in found.problems[0]
    assert table.check(quick=True)[0].problems == ()

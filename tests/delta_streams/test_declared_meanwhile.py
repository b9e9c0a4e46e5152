"""Several writers declare facts of one table at the same time: each fact stays, and a dropped table stays dropped."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from deltacompact import DeltaStreamCatalog, NotFoundError, open_catalog
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore


class SlowStore(MemoryStore):
    """Somebody else works between the read of table.json and its replacement."""

    def __init__(self):
        super().__init__()
        self.meanwhile = None

    def get_tagged(self, path):
        found = super().get_tagged(path)
        if path == "t/table.json" and self.meanwhile is not None:
            work, self.meanwhile = self.meanwhile, None
            work()
        return found


@pytest.fixture
def both():
    """Two processes' catalogs of one store, with a table."""
    store = SlowStore()
    first, second = DeltaStreamCatalog(store), DeltaStreamCatalog(store)
    first.create_table("t", primary_keys=["id"])
    return first, second


def test_a_publication_declared_meanwhile_is_kept(both):
    """It was lost: compactions stopped publishing, and vacuum deleted files that the published table names."""
    first, second = both
    first.store.meanwhile = lambda: second.declare_publication("t", "delta:///out")
    first.declare_cluster_by("t", "v")
    found = DeltaStreamCatalog(first.store).table("t")
    assert (found.publication, found.cluster_by) == ("delta:///out", "v")
    assert first.table("t").publication == "delta:///out"


def test_a_table_that_is_dropped_meanwhile_stays_dropped(both):
    first, second = both
    first.store.meanwhile = lambda: second.drop_table("t")
    with pytest.raises(NotFoundError):
        first.declare_readers("t", "vectors")
    assert DeltaStreamCatalog(first.store).tables() == []


def test_of_many_writers_to_a_folder_none_is_lost(tmp_path):
    catalog = open_catalog(tmp_path)
    catalog.create_table("t", primary_keys=["id"])
    facts = [
        *(("declare_readers", readers) for readers in ("vectors", "files") * 10),
        *(("declare_cluster_by", f"v{number}") for number in range(20)),
    ]
    with ThreadPoolExecutor(2) as threads:

        def declare_all(said):
            other = DeltaStreamCatalog(LocalStore(tmp_path))
            for name, value in said:
                getattr(other, name)("t", value)
                found = open_catalog(tmp_path).table("t")
                assert value in (found.cluster_by, found.readers)

        list(threads.map(declare_all, (facts[:20], facts[20:])))
    found = open_catalog(tmp_path).table("t")
    assert (found.readers, found.cluster_by) == ("files", "v19")

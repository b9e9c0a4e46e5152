"""A store that overwrites what a conditional put must not is refused before anything of a table is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import boto3
import pyarrow as pa
import pytest
from faulty_s3 import faulty_s3

import deltacompact
from deltacompact import InputError
from deltacompact.storage import s3 as s3_store
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import PROBE, refuse_overwriting
from deltacompact.storage.opening import open_store
from deltacompact.storage.s3_access import S3Settings
from deltacompact.storage.traffic import listening


class Overwriting(MemoryStore):
    """Ignores the condition. `says` is what it answers to the second put."""

    def __init__(self, says: bool) -> None:
        super().__init__()
        self.says = says

    def put_if_absent(self, path: str, data: bytes) -> bool:
        there = path in self._objects
        self.put(path, data)
        return self.says if there else True


@pytest.mark.parametrize("says", [True, False])
def test_a_store_that_overwrites_is_refused(says: bool) -> None:
    with pytest.raises(InputError, match="ignores If-None-Match"):
        refuse_overwriting(Overwriting(says))


def test_a_store_that_refuses_is_proven_by_one_put_from_then_on() -> None:
    store, puts = MemoryStore(), []
    put = store.put_if_absent
    store.put_if_absent = lambda path, data: puts.append(path) or put(path, data)  # type: ignore[func-returns-value,method-assign,assignment]
    refuse_overwriting(store)
    assert puts == [PROBE, PROBE]
    refuse_overwriting(store)
    assert puts == [PROBE] * 3
    assert list(store.folders()) == []


@pytest.fixture
def in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def forget() -> None:
        monkeypatch.setattr(s3_store, "_PROBED", set())

    forget()
    return forget


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """The requests of this process, as "PutObject table.json"."""
    told: list[str] = []
    with listening(lambda request: told.append(f"{request.operation} {request.key.rpartition('/')[2]}")):
        yield told


def test_s3_is_probed_once_a_process_before_the_first_conditional_put(
    s3_catalog_uri: str, in_a_new_process: Callable[[], None], asked: list[str]
) -> None:
    catalog = deltacompact.open_catalog(s3_catalog_uri)
    catalog.create_table("t", primary_keys=["k"])
    puts, get, is_dropped = f"PutObject {PROBE}", f"GetObject {PROBE}", "HeadObject dropped.json"
    assert asked == [is_dropped, puts, puts, get, "PutObject table.json", is_dropped]
    asked.clear()
    for key in range(3):
        catalog.append("t", pa.table({"k": [key]}))
    assert not [what for what in asked if PROBE in what]
    in_a_new_process()
    later = deltacompact.open_catalog(s3_catalog_uri)
    later.append("t", pa.table({"k": [3]}))
    assert len([what for what in asked if PROBE in what]) == 1
    assert later.tables() == ["t"] and later.read("t").num_rows == 4


def test_readers_of_s3_do_not_probe(
    s3_catalog_uri: str, in_a_new_process: Callable[[], None], asked: list[str]
) -> None:
    catalog = deltacompact.open_catalog(s3_catalog_uri)
    catalog.create_table("t", primary_keys=["k"])
    catalog.append("t", pa.table({"k": [1]}))
    catalog.store.delete([PROBE])
    in_a_new_process()
    asked.clear()
    reader = deltacompact.open_catalog(s3_catalog_uri)
    assert reader.read("t").num_rows == 1
    assert asked and not [what for what in asked if PROBE in what]


@pytest.mark.processes
def test_an_s3_that_ignores_the_condition_is_refused_at_the_first_write(
    moto_endpoint: str, in_a_new_process: Callable[[], None]
) -> None:
    boto3.client("s3", endpoint_url=moto_endpoint).create_bucket(Bucket="overwrites")
    with faulty_s3(moto_endpoint) as s3:
        s3.fault = lambda request: "overwrite"
        store = open_store("s3://overwrites/tables", S3Settings(endpoint_url=s3.url))
        catalog = deltacompact.DeltaStreamCatalog(store)
        for _ in range(2):
            with pytest.raises(InputError, match="ignores If-None-Match"):
                catalog.create_table("t", primary_keys=["k"])
        assert [stat.path for stat in store.list("")] == [PROBE]
        s3.fault = lambda request: None
        catalog.create_table("t", primary_keys=["k"])
        assert catalog.tables() == ["t"]

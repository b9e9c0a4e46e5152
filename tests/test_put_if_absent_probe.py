"""A store that overwrites what a conditional put must not is refused before anything of a table is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import deltacompact
from deltacompact import InputError
from deltacompact.storage import s3 as s3_store
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import PROBE, refuse_overwriting
from deltacompact.storage.opening import open_store


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


def requests_of(store: Any) -> list[str]:
    asked: list[str] = []
    store._client.meta.events.register(
        "before-call.s3", lambda model, params, **_: asked.append(f"{model.name} {params['url_path']}")
    )
    return asked


def test_s3_is_probed_once_a_process_before_the_first_conditional_put(
    s3_catalog_uri: str, in_a_new_process: Callable[[], None]
) -> None:
    catalog = deltacompact.open_catalog(s3_catalog_uri)
    asked = requests_of(catalog.store)
    catalog.create_table("t", primary_keys=["k"])
    assert [what.split("/")[-1] for what in asked] == [PROBE, PROBE, PROBE, "table.json"]
    asked.clear()
    for key in range(3):
        catalog.append("t", pa.table({"k": [key]}))
    assert not [what for what in asked if PROBE in what]
    in_a_new_process()
    later = deltacompact.open_catalog(s3_catalog_uri)
    asked = requests_of(later.store)
    later.append("t", pa.table({"k": [3]}))
    assert len([what for what in asked if PROBE in what]) == 1
    assert later.tables() == ["t"] and later.read("t").num_rows == 4


def test_readers_of_s3_do_not_probe(s3_catalog_uri: str, in_a_new_process: Callable[[], None]) -> None:
    catalog = deltacompact.open_catalog(s3_catalog_uri)
    catalog.create_table("t", primary_keys=["k"])
    catalog.append("t", pa.table({"k": [1]}))
    catalog.store.delete([PROBE])
    in_a_new_process()
    reader = deltacompact.open_catalog(s3_catalog_uri)
    asked = requests_of(reader.store)
    assert reader.read("t").num_rows == 1
    assert asked and not [what for what in asked if PROBE in what]


def test_an_s3_that_ignores_the_condition_is_refused_at_the_first_write(
    s3_catalog_uri: str, in_a_new_process: Callable[[], None]
) -> None:
    store: Any = open_store(s3_catalog_uri)

    def drop(params: dict[str, Any], **_: Any) -> None:
        params["headers"].pop("If-None-Match", None)

    store._client.meta.events.register("before-call.s3.PutObject", drop)
    catalog = deltacompact.DeltaStreamCatalog(store)
    for _ in range(2):
        with pytest.raises(InputError, match="ignores If-None-Match"):
            catalog.create_table("t", primary_keys=["k"])
    assert [stat.path for stat in store.list("")] == [PROBE]
    store._client.meta.events.unregister("before-call.s3.PutObject", drop)
    catalog.create_table("t", primary_keys=["k"])
    assert catalog.tables() == ["t"]

"""A table whose session dies before each change of the store in turn."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from stores import CHANGES, Crash, FailsAt, InterceptedStore, copy_of
from tables import problems

from deltacompact import DeltaStreamCatalog, SessionResult, Settings, compact
from deltacompact.storage.memory import MemoryStore

THREE_ROUNDS: dict[str, Any] = {
    "hash_bucket_count": 3,
    "rows_per_compacted_file": 3,
    "settings": Settings(executor="local", rows_per_round=4),
}
Rows = list[dict[str, Any]]


def table_with_a_base_and_deltas() -> MemoryStore:
    return copy_of(prepared())


@functools.cache
def prepared() -> MemoryStore:
    """Five compacted rows in one bucket, then five files: three rounds and a rehash are to be done."""
    store = MemoryStore()
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", primary_keys=["k"], sort_keys=[("s", "descending")])
    upsert(catalog, 1, [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)])
    compact("t", delta_catalog_client=catalog, hash_bucket_count=1, settings=Settings(executor="local"))
    upsert(catalog, 2, [(1, 4), (6, 5)], [(2, 6)])
    delete(catalog, 3, [(3, None), (4, 1)])
    upsert(catalog, 4, [(3, 9), (4, 2), (7, 5)], [(6, 4)])
    return store


def upsert(catalog: DeltaStreamCatalog, position: int, *files: list[tuple[int, int]]) -> None:
    tables = [pa.table({"k": [k for k, _ in f], "s": [s for _, s in f], "at": [position] * len(f)}) for f in files]
    catalog.append("t", tables, stream_position=position)


def delete(catalog: DeltaStreamCatalog, position: int, rows: list[tuple[int, int | None]]) -> None:
    table = pa.table({"k": [k for k, _ in rows], "s": pa.array([s for _, s in rows], pa.int64())})
    catalog.append("t", table, operation="delete", stream_position=position)


def live_rows(store: MemoryStore) -> Rows:
    rows = DeltaStreamCatalog(store).read("t").to_pylist()
    return sorted(rows, key=lambda row: row["k"])


def run(store: Any, arguments: dict[str, Any]) -> SessionResult:
    (session,) = compact("t", delta_catalog_client=DeltaStreamCatalog(store), **arguments).sessions
    return session


def each_crash(arguments: dict[str, Any]) -> Iterator[tuple[MemoryStore, str]]:
    """A store for each change that a session makes, which died just before that change."""
    for store, crash in crashes_of(tuple(arguments.items())):
        yield copy_of(store), crash


@functools.cache
def crashes_of(arguments: tuple[tuple[str, Any], ...]) -> list[tuple[MemoryStore, str]]:
    """Several tests begin with the same deaths: a session dies only once before each change."""
    crashes: list[tuple[MemoryStore, str]] = []
    while True:
        store, crashing = table_with_a_base_and_deltas(), FailsAt(len(crashes), kinds=CHANGES, error=Crash)
        try:
            run(InterceptedStore(store, crashing), dict(arguments))
        except Crash:
            assert crashing.failed is not None
            crashes.append((store, f"change {len(crashes)}: {crashing.failed}"))
        else:
            assert len(crashes) >= 10, "changes of one session"
            return crashes


def assert_sound(store: MemoryStore) -> None:
    assert problems(DeltaStreamCatalog(store)) == []

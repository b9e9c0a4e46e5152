"""Compacts and reads a toy table, for the tests of the ports."""

from __future__ import annotations

from typing import Any

from toy_catalog import ToyCatalog

from deltacompact import Settings
from deltacompact.base.model import Table
from deltacompact.base.settings import Options
from deltacompact.base.table_keys import TableKeys
from deltacompact.executors.executor import Executor
from deltacompact.executors.local import LocalExecutor
from deltacompact.planning.terms import SessionTerms
from deltacompact.reading.live_rows import live_parts, schema_of
from deltacompact.session.attempts import resume_or_begin
from deltacompact.session.driver import CompactionSession, PublishedSession
from deltacompact.session.planned import plan_session
from deltacompact.table.ports import PartitionSnapshot

KEYS = TableKeys.of(["k"])
HERE = LocalExecutor(Settings(executor="local", local_threads=1))


def terms(keys: TableKeys = KEYS, **arguments: Any) -> SessionTerms:
    chosen = {"rows_per_compacted_file": 4, "hash_bucket_count": 3, **arguments}
    return SessionTerms(keys, (), Options(**chosen))


def snapshot(toy: ToyCatalog) -> PartitionSnapshot:
    found = toy.fetch()
    assert isinstance(found, PartitionSnapshot)
    return found


def run(toy: ToyCatalog, executor: Executor = HERE, **arguments: Any) -> tuple[CompactionSession, PublishedSession]:
    chosen = terms(toy.keys, **arguments)
    own = plan_session(toy.ports, snapshot(toy), chosen, executor.capacity)
    return resume_or_begin(toy.ports, own, chosen, executor, lambda event: None)


def rows(toy: ToyCatalog) -> list[dict[str, Any]]:
    """The live rows of the newest version, with its deltas folded."""
    found = toy.snapshot(*toy.newest())
    table = Table("toy", (), toy.keys)
    parts = live_parts(toy.store, found, table, schema_of(found)).parts
    return [row for part in parts for batch in part.tables() for row in batch.to_pylist()]


def live(toy: ToyCatalog) -> dict[int, str]:
    """The value of each key. Every key must have exactly one live row."""
    found = rows(toy)
    assert len({row["k"] for row in found}) == len(found)
    return {row["k"]: row["v"] for row in found}

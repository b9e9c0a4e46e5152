"""The engine compacts a table of a catalog that it has never heard of: see toy_catalog.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from stores import Crash, FailsAt, InterceptedStore, unmeasured  # noqa: F401
from toy_catalog import ToyCatalog

from deltacompact import ConflictError, Settings
from deltacompact.base.model import Table, TableKeys
from deltacompact.base.settings import Options
from deltacompact.executors.executor import Executor
from deltacompact.executors.local import LocalExecutor
from deltacompact.reading.live_rows import live_batches
from deltacompact.session import attempts
from deltacompact.session.attempts import Terms
from deltacompact.session.driver import Published, Session
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore
from deltacompact.table.ports import Snapshot

KEYS = TableKeys.of(["k"])
HERE = LocalExecutor(Settings(executor="local", local_threads=1))


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table({"k": [k for k, _ in pairs], "v": [v for _, v in pairs]})


def terms(**arguments: Any) -> Terms:
    return Terms(KEYS, (), Options(rows_per_compacted_file=4, hash_bucket_count=3, **arguments))


def snapshot(toy: ToyCatalog) -> Snapshot:
    found = toy.fetch()
    assert isinstance(found, Snapshot)
    return found


def run(toy: ToyCatalog, executor: Executor = HERE, **arguments: Any) -> tuple[Session, Published]:
    return attempts.run(toy.ports, snapshot(toy), terms(**arguments), executor, lambda event: None)


def live(toy: ToyCatalog) -> dict[int, str]:
    """The rows of the newest version, with an empty delta on top of it, which a snapshot needs."""
    toy.append(10**6, rows().slice(0, 0).cast(pa.schema([("k", pa.int64()), ("v", pa.string())])))
    table = Table("toy", (), KEYS)
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    found = [row for batch in live_batches(toy.store, snapshot(toy), table, schema) for row in batch.to_pylist()]
    assert len({row["k"] for row in found}) == len(found)
    return {row["k"]: row["v"] for row in found}


def filled(store: Any) -> ToyCatalog:
    toy = ToyCatalog(store, KEYS)
    toy.append(1, rows(*[(k, "a") for k in range(10)]))
    toy.append(2, rows(*[(k, "b") for k in range(5, 15)]))
    toy.append(3, pa.table({"k": [0, 7]}), "delete")
    return toy


EXPECTED = {**{k: "a" for k in range(1, 5)}, **{k: "b" for k in range(5, 15) if k != 7}}


def test_several_rounds_and_then_an_incremental_run() -> None:
    toy = filled(MemoryStore())
    session, _ = run(toy, rows_per_round=8)
    assert len(session.plan.rounds) == 3
    toy.append(4, rows((1, "c"), (99, "c")))
    session, published = run(toy)
    assert session.plan.changes_only and published.outputs.kept
    assert live(toy) == {**EXPECTED, 1: "c", 99: "c"}


def test_a_session_that_was_killed_anywhere_is_resumed() -> None:
    resumed = set()
    for at in range(1000):
        store = MemoryStore()
        filled(store)
        try:
            run(ToyCatalog(InterceptedStore(store, FailsAt(at, error=Crash)), KEYS), rows_per_round=8)
        except Crash:
            toy = ToyCatalog(store, KEYS)
            if isinstance(toy.fetch(), Snapshot):
                resumed.add(run(toy, rows_per_round=8)[0].rounds_resumed)
            assert live(toy) == EXPECTED
        else:
            break
    assert resumed == {0, 1, 2, 3}


def test_files_with_few_dead_rows_get_deletion_vectors() -> None:
    toy = filled(MemoryStore())
    run(toy)
    toy.append(4, pa.table({"k": [2]}), "delete")
    _, published = run(toy, rewrite_dead_fraction=0.9)
    assert [file.deletions.dead_rows for file in published.compacted.files if file.deletions] == [1]
    assert live(toy) == {k: v for k, v in EXPECTED.items() if k != 2}


def test_of_two_sessions_one_is_in_conflict() -> None:
    toy = filled(MemoryStore())
    late = attempts.plan_session(toy.ports, snapshot(toy), terms(), HERE.capacity)
    run(toy, rewrite_dead_fraction=0.5)
    with pytest.raises(ConflictError, match="another compaction came first"):
        Session(toy.ports, late, HERE, lambda event: None).run()
    assert live(toy) == EXPECTED


def test_the_same_on_ray(tmp_path: Path, ray_cluster: str) -> None:
    from deltacompact.executors.ray import RayExecutor

    toy = filled(LocalStore(tmp_path))
    executor = RayExecutor(Settings(executor="ray", ray_address=ray_cluster))
    run(toy, executor, rows_per_round=8)
    toy.append(4, rows((1, "c")))
    run(toy, executor)
    assert live(toy) == {**EXPECTED, 1: "c"}

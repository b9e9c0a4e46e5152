"""The engine compacts a table of a catalog that it has never heard of: see toy_catalog.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from stores import CHANGES, Crash, FailsAt, InterceptedStore
from toy_catalog import ToyCatalog
from toy_runs import HERE, KEYS, live, run, snapshot, terms

from deltacompact import ConflictError, InputError, Settings
from deltacompact.session.driver import CompactionSession
from deltacompact.session.planned import plan_session
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.opening import open_object, open_store
from deltacompact.storage.s3 import S3Store
from deltacompact.storage.throttle import Pace, PacedStore, paced
from deltacompact.table.documents import SchemaTable, file_from_json, file_to_json
from deltacompact.table.ports import PartitionSnapshot
from deltacompact.tabular import writing
from deltacompact.tabular.row_groups import WriteOptions


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table({"k": [k for k, _ in pairs], "v": [v for _, v in pairs]})


def filled(store: Any) -> ToyCatalog:
    """Three deltas. The last row of the second and of the third is dead already, and means nothing."""
    toy = ToyCatalog(store, KEYS)
    toy.append(1, rows(*[(k, "a") for k in range(10)]))
    toy.append(2, rows(*[(k, "b") for k in range(5, 15)], (1, "dead")), dead=[10])
    toy.append(3, pa.table({"k": [0, 7, 9]}), "delete", dead=[2])
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


@pytest.mark.slow
def test_a_session_that_was_killed_anywhere_is_resumed() -> None:
    resumed = set()
    for at in range(1000):
        store = MemoryStore()
        filled(store)
        try:
            run(ToyCatalog(InterceptedStore(store, FailsAt(at, kinds=CHANGES, error=Crash)), KEYS), rows_per_round=8)
        except Crash:
            toy = ToyCatalog(store, KEYS)
            if isinstance(toy.fetch(), PartitionSnapshot):
                resumed.add(run(toy, rows_per_round=8)[0].rounds_resumed)
            assert live(toy) == EXPECTED
        else:
            assert resumed == {0, 1, 2, 3}
            return
    raise AssertionError("the session never came to its end")


def test_files_with_few_dead_rows_get_deletion_vectors() -> None:
    toy = filled(MemoryStore())
    run(toy)
    toy.append(4, pa.table({"k": [2]}), "delete")
    _, published = run(toy, rewrite_dead_fraction=0.9)
    assert [file.deletions.dead_rows for file in published.compacted.files if file.deletions] == [1]
    assert live(toy) == {k: v for k, v in EXPECTED.items() if k != 2}


def test_of_two_sessions_one_is_in_conflict() -> None:
    toy = filled(MemoryStore())
    late = plan_session(toy.ports, snapshot(toy), terms(), HERE.capacity)
    run(toy, rewrite_dead_fraction=0.5)
    with pytest.raises(ConflictError, match="another compaction came first"):
        CompactionSession(toy.ports, late, HERE, lambda event: None).execute()
    assert live(toy) == EXPECTED


def test_an_output_that_is_gone_is_not_resumed() -> None:
    store = MemoryStore()
    filled(store)

    def before_the_switch(kind: str, path: str, act: Any) -> Any:
        if (kind, path) == ("put_if_absent", "toy/0001.json"):
            raise Crash
        return act()

    with pytest.raises(Crash):
        run(ToyCatalog(InterceptedStore(store, before_the_switch), KEYS))
    deltas = {file.path for delta in snapshot(ToyCatalog(store, KEYS)).deltas for file in delta.files}
    outputs = [stat.path for stat in store.list("toy/data/") if stat.path.endswith(".parquet")]
    (output, *_) = set(outputs) - deltas
    store.delete([output])
    toy = ToyCatalog(store, KEYS)
    run(toy)
    assert live(toy) == EXPECTED


def test_a_bucket_is_opened_once_with_the_access_of_the_root(s3_catalog_uri: str) -> None:
    root = open_store(s3_catalog_uri)
    assert isinstance(root, S3Store)
    bucket = root.bucket
    opened = {id(open_object(root, f"s3://{bucket}/a/{name}.parquet")[0]) for name in range(10)}
    assert len(opened) == 1
    store, name = open_object(root, f"s3://{bucket}/a/b c%20?.parquet")
    assert isinstance(store, S3Store) and store.access == root.access
    assert (store.uri, name) == (f"s3://{bucket}/", "a/b c%20?.parquet")
    assert open_object(root, f"S3://{bucket}/a/b.parquet")[0] is store
    slow, _ = open_object(paced(root, Pace(requests_per_s=1e6)), f"s3://{bucket}/a/b.parquet")
    assert isinstance(slow, PacedStore)


def test_whether_a_file_is_managed_is_written_where_its_path_does_not_say_it() -> None:
    store = MemoryStore()
    here = writing.write_table(store, "a.parquet", rows((1, "a")), WriteOptions())
    for path, managed in [("a.parquet", True), ("s3://b/a.parquet", False)]:
        document = file_to_json(replace(here, path=path, managed=managed), SchemaTable())
        assert "managed" not in document
        document = file_to_json(replace(here, path=path, managed=not managed), schemas := SchemaTable())
        assert document["managed"] is not managed
        assert file_from_json(document, schemas).managed is not managed


@pytest.mark.parametrize("path", ["gs://bucket/a.parquet", "s3:///a.parquet", "file://host/a.parquet"])
def test_a_uri_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(InputError):
        open_object(MemoryStore(), path)


def test_the_same_on_ray(tmp_path: Path, ray_cluster: str) -> None:
    from deltacompact.executors.ray import RayExecutor

    store = LocalStore(tmp_path / "catalog")
    toy = filled(store)
    executor = RayExecutor(Settings(executor="ray", ray_address=ray_cluster))
    run(toy, executor, rows_per_round=8)
    toy.append(4, rows((1, "c"), (2, "dead"), (50, "dead")), dead=[1, 2])
    _, published = run(toy, executor)
    assert published.counts.upserts == 1 and live(toy) == {**EXPECTED, 1: "c"}
    late = plan_session(toy.ports, snapshot_after(toy, 5), terms(), executor.capacity)
    run(toy, executor)
    with pytest.raises(ConflictError, match="another compaction came first"):
        CompactionSession(toy.ports, late, executor, lambda event: None).execute()


def snapshot_after(toy: ToyCatalog, position: int) -> PartitionSnapshot:
    toy.append(position, rows((3, "d")))
    return snapshot(toy)

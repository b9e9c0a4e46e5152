"""Outputs are recorded in batches: few requests for many files, a crash loses a batch, and attempts share the slots."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from stores import Crash, InterceptedStore, copy_of

from deltacompact import DeltaStreamCatalog, Settings, compact
from deltacompact.base.errors import StoreError
from deltacompact.executors.executor import SubmittedTask
from deltacompact.executors.local import LocalExecutor
from deltacompact.session import compacted_files, output_tasks
from deltacompact.storage.memory import MemoryStore

OUTPUTS = 200


@pytest.fixture(scope="module")
def filled() -> MemoryStore:
    store = MemoryStore()
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", (), ["id"])
    catalog.append("t", pa.table({"id": list(range(OUTPUTS))}))
    return store


def run(store: Any, threads: int = 1) -> Any:
    settings = Settings(executor="local", local_threads=threads)
    (session,) = compact(
        "t", delta_catalog_client=DeltaStreamCatalog(store), settings=settings, rows_per_compacted_file=1
    ).sessions
    return session


def batches(store: MemoryStore) -> list[int]:
    """The number of outputs in each batch."""
    records = [stat.path for stat in store.list("t/sessions/") if "/outputs-" in stat.path]
    return [len(json.loads(store.get(path))["outputs"]) for path in records]


def rows_of(store: MemoryStore) -> list[int]:
    return sorted(DeltaStreamCatalog(store).read("t")["id"].to_pylist())


def test_a_task_may_write_several_outputs(filled: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_tasks, "outputs_per_task", lambda _outputs, _slots: 7)
    store = copy_of(filled)
    assert run(store).files_new == OUTPUTS and rows_of(store) == list(range(OUTPUTS))
    assert sum(batches(store)) == OUTPUTS


def test_two_hundred_outputs_take_few_requests_for_records(filled: MemoryStore) -> None:
    store, requests = copy_of(filled), Counter[tuple[str, bool]]()

    def count(kind: str, path: str, act: Callable[[], Any]) -> Any:
        requests[kind, "/sessions/" in path] += 1
        return act()

    session = run(InterceptedStore(store, count))
    assert session.files_new == OUTPUTS and rows_of(store) == list(range(OUTPUTS))
    of_records = sum(number for (_, is_record), number in requests.items() if is_record)
    assert of_records <= 20, requests
    assert sum(batches(store)) == OUTPUTS


@pytest.mark.slow
def test_a_crash_loses_at_most_a_batch(filled: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted_files, "BATCH_TASK_S", 0.0)  # a batch for each output
    for written in (1, 57, 199):
        store, outputs = copy_of(filled), 0

        def dies(kind: str, path: str, act: Callable[[], Any], written: int = written) -> Any:
            nonlocal outputs
            done = act()
            if kind == "put_if_absent" and "/outputs-" in path:
                outputs += 1
                if outputs == written:
                    raise Crash
            return done

        with pytest.raises(Crash):
            run(InterceptedStore(store, dies))
        before = len(list(store.list("t/data/")))
        session = run(store)
        assert session.rounds_resumed == 1
        assert len(list(store.list("t/data/"))) - before == OUTPUTS - written
        assert batches(store) == [1] * OUTPUTS and rows_of(store) == list(range(OUTPUTS))


@pytest.mark.slow
def test_the_loser_of_a_slot_adopts_what_is_in_it(filled: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another attempt records its outputs while ours works: each output is recorded once, and ours publishes them."""
    monkeypatch.setattr(compacted_files, "BATCH_TASK_S", 0.0)
    store = copy_of(filled)
    other = copy_of(filled)
    run(other)
    theirs = [stat.path for stat in other.list("t/sessions/") if "/outputs-" in stat.path]
    taken: list[str] = []

    def meets(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if kind == "put_if_absent" and path in theirs[:OUTPUTS:3] and path not in taken:
            taken.append(path)
            record = json.loads(other.get(path))
            store.put(path, other.get(path))
            for output in record["outputs"]:
                store.put(output["file"]["path"], other.get(output["file"]["path"]))
        return act()

    run(InterceptedStore(store, meets))
    assert taken and rows_of(store) == list(range(OUTPUTS))
    paths = [
        output["file"]["path"]
        for stat in store.list("t/sessions/")
        if "/outputs-" in stat.path
        for output in json.loads(store.get(stat.path))["outputs"]
    ]
    assert len(paths) == OUTPUTS, "no output is recorded twice"
    catalog = DeltaStreamCatalog(store)
    compacted = catalog.state("t", catalog.partitions("t")[0]).compacted
    assert compacted is not None and {file.path for file in compacted.files} == set(paths)


class Submitted:
    """The tasks of outputs that sessions on two threads submitted. They end once `released` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.futures: list[Future[Any]] = []
        self.released = threading.Event()
        submit, write = LocalExecutor.submit, output_tasks.materialize_each

        def waits(*inputs: Any) -> Any:
            assert self.released.wait(60)
            return write(*inputs)

        def noted(executor: LocalExecutor, task: Callable[..., Any], *inputs: Any, **options: Any) -> SubmittedTask:
            submitted = submit(executor, task, *inputs, **options)
            if task is waits:
                self.futures.append(submitted.stats.task.future)
            return submitted

        monkeypatch.setattr(output_tasks, "outputs_per_task", lambda _outputs, _slots: 1)
        monkeypatch.setattr(output_tasks, "materialize_each", waits)
        monkeypatch.setattr(LocalExecutor, "submit", noted)

    def begun(self) -> int:
        return sum(not future.cancelled() for future in self.futures[:OUTPUTS])


def test_no_output_is_begun_once_writing_the_index_has_failed(
    filled: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of both were submitted together, and nobody waits for the outputs any more."""
    submitted, store = Submitted(monkeypatch), copy_of(filled)

    def fails(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if path.endswith(".manifest.json") and kind != "get":
            raise StoreError("the disk is full")
        return act()

    with pytest.raises(StoreError):
        run(InterceptedStore(store, fails), threads=2)
    submitted.released.set()
    assert len(submitted.futures) == OUTPUTS and submitted.begun() <= 2


def test_no_output_is_begun_twice_where_another_attempt_recorded_the_last_round(
    filled: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = copy_of(filled), copy_of(filled)
    run(other)
    submitted = Submitted(monkeypatch)

    def meets(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if kind == "put_if_absent" and path.endswith("/round-00001.json"):
            for stat in (stat for folder in ("index", "sessions") for stat in other.list(f"t/{folder}/")):
                if "/outputs-" not in stat.path and not stat.path.endswith("/published.json"):
                    store.put(stat.path, other.get(stat.path))
        return act()

    def releases(*inputs: Any) -> Any:
        submitted.released.set()  # the tasks of the first submission have been cancelled by now
        return missing_outputs(*inputs)

    missing_outputs = compacted_files.missing_outputs
    monkeypatch.setattr(compacted_files, "missing_outputs", releases)
    session = run(InterceptedStore(store, meets), threads=2)
    assert session.files_new == OUTPUTS and rows_of(store) == list(range(OUTPUTS))
    assert len(submitted.futures) == 2 * OUTPUTS and submitted.begun() <= 2


@pytest.mark.parametrize("slots", [1, 3])
def test_a_text_of_many_outputs_is_decoded_once_in_each_slot(tmp_path: Path, slots: int) -> None:
    """A text is decoded whole. Its outputs go to as few tasks as keep all slots busy, and each decodes it once."""
    store, opened = MemoryStore(), Counter[tuple[str, bool]]()
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", (), ["id"])
    file = tmp_path / "large.csv"
    file.write_text("id,v\n" + "".join(f"{row},{row % 7}\n" for row in range(OUTPUTS)))
    catalog.append_files("t", [file])

    def count(kind: str, path: str, act: Callable[[], Any]) -> Any:
        opened[kind, path.endswith(".csv")] += 1
        return act()

    settings = Settings(executor="local", local_threads=slots)
    counted = DeltaStreamCatalog(InterceptedStore(store, count))
    (session,) = compact("t", delta_catalog_client=counted, settings=settings, rows_per_compacted_file=10).sessions
    assert session.files_new == OUTPUTS // 10
    assert opened["open", True] == 1 + slots, opened  # once by the task that hashes the keys
    assert rows_of(store) == list(range(OUTPUTS))

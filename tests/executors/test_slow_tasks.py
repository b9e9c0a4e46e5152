"""A slow task runs a second time near the end of its stage, and the first result counts: the decision, then Ray."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltacompact import DeltaStreamCatalog, Settings, compact
from deltacompact.base.limits import Limits
from deltacompact.executors.executor import SubmittedTask, TaskStats
from deltacompact.executors.runs import Runs
from deltacompact.maintenance.check import check
from deltacompact.planning.slow_tasks import TIMES_EXPECTED, Timed, to_repeat
from deltacompact.storage.local import LocalStore

pytestmark = pytest.mark.processes

EVEN = [Timed(number, 1e6, 2.0 + number / 10) for number in range(6)]


# The decision


def test_only_a_task_that_is_far_behind_its_stage_is_repeated() -> None:
    assert to_repeat(EVEN, [Timed(6, 1e6, 3.0), Timed(7, 1e6, 30.0)], 3, 1.0) == [7]
    assert to_repeat(EVEN, [Timed(6, 1e6, 30.0), Timed(7, 1e6, 60.0)], 1, 1.0) == [7], "the most overdue, on one slot"
    assert to_repeat(EVEN, [Timed(7, 1e6, 30.0)], 0, 1.0) == []
    assert to_repeat(EVEN, [Timed(7, 1e6, 30.0)], 3, 31.0) == []


def test_a_large_task_gets_the_time_of_its_size_and_a_small_one_that_of_the_others() -> None:
    assert to_repeat(EVEN, [Timed(7, 8e6, 30.0)], 3, 1.0) == []
    assert to_repeat(EVEN, [Timed(7, 1e3, 4.0)], 3, 1.0) == []
    assert to_repeat(EVEN, [Timed(7, 1e3, 6.0)], 3, 1.0) == [7]


def test_nothing_is_repeated_before_the_stage_has_taught_what_a_task_takes() -> None:
    late = [Timed(number, 1e6, 100.0) for number in range(10, 17)]
    assert to_repeat(EVEN, late, 9, 1.0) == []
    assert to_repeat(EVEN[:2], late[:1], 9, 1.0) == []


timed = st.builds(Timed, st.just(0), st.floats(0, 1e9), st.floats(0, 1e5))


@given(st.lists(timed, max_size=40), st.lists(timed, max_size=40), st.integers(-1, 50), st.floats(0, 100))
def test_repeats_are_slow_and_fit_the_idle_slots(
    done: list[Timed], running: list[Timed], idle_slots: int, seconds_min: float
) -> None:
    running = [Timed(number, task.size, task.seconds) for number, task in enumerate(running)]
    chosen = to_repeat(done, running, idle_slots, seconds_min)
    assert len(chosen) == len(set(chosen)) <= max(0, idle_slots)
    assert not chosen or len(done) >= len(running)
    for number in chosen:
        task = running[number]
        assert task.seconds >= seconds_min
        alike = [other.seconds for other in done if other.size <= task.size]
        assert task.seconds >= TIMES_EXPECTED * min([other.seconds for other in done]) * (1 if alike else 0)


@given(st.lists(timed, min_size=3, max_size=30), st.floats(0, 1e5), st.floats(0, 1e9), st.floats(1.0, 10.0))
def test_a_task_that_runs_longer_is_not_chosen_less(
    done: list[Timed], seconds: float, size: float, factor: float
) -> None:
    before = to_repeat(done, [Timed(0, size, seconds)], 1, 1.0)
    after = to_repeat(done, [Timed(0, size, seconds * factor)], 1, 1.0)
    assert before in ([], after)


# The runs of a stage


def stage(count: int) -> list[SubmittedTask]:
    """Tasks whose handles are text: "3" is the first run of task 3, "3 again" the second."""
    return [
        SubmittedTask(
            [f"value {n}"], f"{n}", 1.0, lambda node, n=n: SubmittedTask([f"value {n} again"], f"{n} again", 1.0)
        )
        for n in range(count)
    ]


def test_the_first_result_counts_and_the_other_run_is_forgotten() -> None:
    for winner, loser in (("5", "5 again"), ("5 again", "5")):
        tasks = stage(6)
        runs = Runs(tasks, 6, 0.0)
        for number in range(5):
            ended = runs.end(f"{number}")
            assert ended is not None and ended[2] == []
            runs.take(number, ended[1], TaskStats(1.0, 0), 1.0)
        assert runs.slow(10.0, lambda: 5, 2.0) == [5]
        runs.repeat(5)
        assert runs.slow(20.0, lambda: 5, 2.0) == [], "there is one repetition at most"
        assert sorted(runs.waiting) == ["5", "5 again"]
        ended = runs.end(winner)
        assert ended is not None
        number, run, (other,) = ended
        assert (number, other.stats) == (5, loser)
        runs.take(number, run, TaskStats(1.0, 0), 21.0)
        assert tasks[5].values == ["value 5" + (" again" if "again" in winner else "")]
        assert runs.waiting == [] and runs.end(loser) is None


def test_a_second_run_goes_to_the_fastest_node_of_the_stage() -> None:
    asked: list[str | None] = []

    def again(node: str | None) -> SubmittedTask:
        asked.append(node)
        return SubmittedTask(["value"], f"again {len(asked)}", 1.0)

    for took, chosen in (
        ({"a": [9.0, 2.0, 2.1], "b": [2.5, 2.6]}, "a"),  # one task of a was slow, a is not
        ({"a": [9.5], "b": [2.0, 2.2]}, "b"),
        ({None: [2.0, 2.0]}, None),
    ):
        ended = [(node, seconds) for node, all_seconds in took.items() for seconds in all_seconds]
        tasks = [SubmittedTask([f"value {n}"], f"{n}", 1.0, again) for n in range(len(ended) + 1)]
        runs = Runs(tasks, len(tasks), 0.0)
        for number, (node, seconds) in enumerate(ended):
            run = runs.end(f"{number}")
            assert run is not None
            runs.take(number, run[1], TaskStats(seconds, 0, node), seconds)
        runs.repeat(len(ended))
        assert asked.pop() == chosen


def test_a_task_that_waits_in_the_queue_has_not_begun() -> None:
    tasks = stage(5)
    runs = Runs(tasks, 4, 0.0)
    for number, now_s in enumerate((100.0, 100.0, 100.0, 101.0)):
        ended = runs.end(f"{number}")
        assert ended is not None
        runs.take(number, ended[1], TaskStats(1.0, 0), now_s)
    assert runs.slow(101.5, lambda: 3, 1.0) == [], "it began when the first one ended"
    assert runs.slow(103.0, lambda: 3, 1.0) == [4]


def test_a_task_without_a_size_runs_once() -> None:
    tasks = [SubmittedTask([], f"{n}") for n in range(4)]
    runs = Runs(tasks, 4, 0.0)
    for number in range(3):
        ended = runs.end(f"{number}")
        assert ended is not None
        runs.take(number, ended[1], TaskStats(0.1, 0), 1.0)
    assert runs.slow(1000.0, lambda: 3, 1.0) == []


# On Ray

QUICK = Limits(slow_task_s=1.0)


@pytest.fixture(autouse=True, scope="module")
def by_value() -> Any:
    """Workers cannot import this module, so its classes and functions travel with the tasks."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def hangs_once(folder: Path, number: int, hangs: int, error: bool = False) -> tuple[int, str]:
    """Task `hangs` hangs for a minute the first time it runs; with `error`, it then fails."""
    mark = folder / f"{number}"
    first = not mark.exists()
    mark.touch()
    if number == hangs and first:
        for _ in range(40 if error else 600):
            time.sleep(0.1)
        if error:
            raise ValueError("the first run")
    if number == hangs and error:
        time.sleep(3)
    return number, "first" if first else "again"


@pytest.mark.parametrize("hangs", [0, 5])
def test_a_task_that_hangs_is_overtaken_by_its_second_run(tmp_path: Path, ray_cluster: str, hangs: int) -> None:
    from deltacompact.executors.ray import RayExecutor

    executor = RayExecutor(Settings(executor="ray", ray_address=ray_cluster, limits=QUICK))
    began = time.monotonic()
    tasks = [executor.submit(hangs_once, tmp_path, number, hangs, spread=True, size=1.0) for number in range(6)]
    assert sorted(number for number, _ in executor.finish(tasks)) == list(range(6))
    assert time.monotonic() - began < 30
    values = [executor.get(task.values[0]) for task in tasks]
    assert values == [(number, "again" if number == hangs else "first") for number in range(6)]


def test_a_run_that_fails_waits_for_the_other(tmp_path: Path, ray_cluster: str) -> None:
    from deltacompact.executors.ray import RayExecutor

    executor = RayExecutor(Settings(executor="ray", ray_address=ray_cluster, limits=QUICK))
    tasks = [executor.submit(hangs_once, tmp_path, number, 3, True, spread=True, size=1.0) for number in range(6)]
    assert len(list(executor.finish(tasks))) == 6
    assert executor.get(tasks[3].values[0]) == (3, "again")


class HangsOnce(LocalStore):
    """A disk on which one read and one write hang for a minute, the first time."""

    def __init__(self, root: Path, marks: Path) -> None:
        super().__init__(root)
        self.marks = marks

    def __reduce__(self) -> Any:
        return HangsOnce, (self.root, self.marks)

    def _hang(self, kind: str) -> None:
        try:
            (self.marks / kind).touch(exist_ok=False)
        except FileExistsError:
            return
        for _ in range(600):
            time.sleep(0.1)

    def open(self, path: str) -> pa.NativeFile:
        if "/data/" in path and "hash_bucket" in task_name():
            self._hang("read")
        return super().open(path)

    def writer(self, path: str) -> Any:
        if path.endswith(".parquet") and "materialize" in task_name():
            self._hang("write")
        return super().writer(path)


def task_name() -> str:
    import ray

    return str(ray.get_runtime_context().get_task_name()) if ray.is_initialized() else ""


def test_a_compaction_on_a_node_that_hangs_ends_in_time_with_the_same_rows(tmp_path: Path, ray_cluster: str) -> None:
    (tmp_path / "marks").mkdir()
    catalog = DeltaStreamCatalog(HangsOnce(tmp_path / "lake", tmp_path / "marks"))
    catalog.create_table("t", (), ["id"])
    rows = 80_000
    for delta in range(8):
        catalog.append("t", [pa.table({"id": np.arange(rows) + delta * 1000, "at": np.full(rows, delta)})])
    limits = Limits(slow_task_s=1.0, task_rows_min=rows)
    settings = Settings(executor="ray", ray_address=ray_cluster, limits=limits)
    began = time.monotonic()
    (session,) = compact("t", delta_catalog_client=catalog, settings=settings, rows_per_compacted_file=10_000).sessions
    took = time.monotonic() - began
    assert {mark.name for mark in (tmp_path / "marks").iterdir()} == {"read", "write"}
    assert took < 45
    assert session.live == rows + 7_000
    table = catalog.read("t")
    assert dict(zip(table["id"].to_pylist(), table["at"].to_pylist(), strict=True)) == {
        key: min(7, key // 1000) for key in range(rows + 7_000)
    }
    assert [result.problems for result in check(catalog, "t")] == [()]

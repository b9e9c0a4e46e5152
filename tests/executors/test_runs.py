"""Waiting for the runs of a stage, on a cluster that ends as many as a test wants at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from deltacompact.base.errors import StoreError
from deltacompact.executors.executor import SubmittedTask, TaskStats
from deltacompact.executors.runs import ended


class Cluster:
    """Runs end in order, as many as are asked for. `fails` has the handles of those that end with an error."""

    def __init__(self, fails: Sequence[str] = ()) -> None:
        self.named = 0
        self.cancelled: list[str] = []
        self._fails = fails

    def now_s(self) -> float:
        return 0.0

    def wait(self, handles: Sequence[str], count: int, timeout_s: float) -> Sequence[str]:
        self.named += len(handles)
        return handles[:count]

    def get(self, handle: str) -> Any:
        if handle in self._fails:
            raise StoreError(handle)
        return TaskStats(1.0, 0)

    def idle_slots(self) -> int:
        return 0

    def cancel(self, handles: Sequence[str]) -> None:
        self.cancelled += handles


def stage(count: int) -> list[SubmittedTask]:
    return [SubmittedTask([f"value {number}"], f"{number}") for number in range(count)]


def test_every_task_ends_once_and_a_small_stage_one_by_one() -> None:
    cluster = Cluster()
    assert [number for number, _ in ended(stage(9), 4, cluster, 5.0)] == list(range(9))
    assert cluster.named == 9 + 8 + 7 + 6 + 5 + 4 + 3 + 2 + 1


def test_a_large_stage_names_its_tasks_some_hundred_times_not_thousands() -> None:
    cluster, count = Cluster(), 20_000
    assert sorted(number for number, _ in ended(stage(count), 100, cluster, 5.0)) == list(range(count))
    assert cluster.named < 110 * count
    assert cluster.cancelled == []


def test_the_first_error_cancels_what_runs() -> None:
    cluster = Cluster(fails=["2"])
    with pytest.raises(StoreError):
        list(ended(stage(5), 5, cluster, 5.0))
    assert cluster.cancelled == ["3", "4"]

"""Many processes put into one log at once: hundreds of lost slots in a row, but everybody gets through.

    30 writers, no pauses     every slot has 30 puts, 29 are lost
    30 writers that wait      a few puts for each commit, and gaps in which a compaction's seal lands

Time is the simulation's: each operation takes about 20 ms, and nobody sleeps.
"""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from simulation import Simulation, at_the_log

from deltacompact import DeltaStreamCatalog


@pytest.fixture(params=[1, 2])
def latency_s(request, monkeypatch):
    """How long each operation takes, and how long the processes wait, by chance with a seed."""
    chance = random.Random(request.param)
    monkeypatch.setattr(random, "uniform", chance.uniform)
    return lambda: chance.uniform(0.01, 0.03)


class Storm:
    """Writers that commit a row each, again and again. Their puts into the log are counted."""

    def __init__(self, writers: int, commits: int) -> None:
        self.simulation = Simulation(remote=True)
        self.simulation.catalog().create_table("t", primary_keys=["k"])
        self.simulation.catalog().append("t", row(-1, 0))
        self.committed: Counter[int] = Counter()
        self.puts = 0
        for writer in range(writers):
            self.simulation.start(self._appending(writer, commits), f"w{writer}", self._counted)

    def _appending(self, writer: int, commits: int):
        def work(catalog: DeltaStreamCatalog) -> None:
            for number in range(commits):
                catalog.append("t", row(writer, number), token=(f"w{writer}", number))
                self.committed[writer] += 1

        return work

    def _counted(self, kind: str, path: str) -> bool:
        self.puts += kind == "put_if_absent" and "/stream/" in path
        return kind == "writer" or at_the_log(kind, path)


def row(writer: int, number: int) -> pa.Table:
    return pa.table({"k": [writer], "v": [number]})


@pytest.mark.slow
def test_hundreds_of_lost_slots_cost_a_few_puts_for_each_commit(latency_s):
    storm = Storm(30, commits=3)
    storm.simulation.run(latency_s, until=lambda: False)
    assert sum(storm.committed.values()) == 90
    assert storm.puts < 5 * 90
    found = storm.simulation.catalog().read("t").sort_by("k").to_pylist()
    assert found == [{"k": writer, "v": 2 if writer >= 0 else 0} for writer in range(-1, 30)]

"""The real driver on the simulated cluster of `python -m benchmarks driver`: what it publishes adds up."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.driver.cluster import Inputs, Nodes, Trouble, Work
from benchmarks.driver.measuring import Measured, run
from benchmarks.driver.table import TABLE, Shape, append
from deltacompact.base.model import Partition
from deltacompact.catalog.delta_streams import DeltaStreamCatalog
from deltacompact.storage.local import LocalStore

SHAPE = Shape(2_000, 64, 100, file_rows=1_000_000, file_bytes=100 << 20)


def compacted(folder: Path, shape: Shape, trouble: Trouble) -> tuple[DeltaStreamCatalog, Measured]:
    store = LocalStore(folder)
    append(store, shape)
    catalog = DeltaStreamCatalog(store)
    return catalog, run(catalog, shape, trouble, charged=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "trouble",
    [Trouble(), Trouble(straggler_share=0.02, lost_every_s=20.0, back_after_s=30.0)],
    ids=["quiet", "stragglers and lost nodes"],
)
def test_a_session_of_2000_files_on_100_slots_comes_through(tmp_path: Path, trouble: Trouble) -> None:
    catalog, measured = compacted(tmp_path, SHAPE, trouble)
    assert measured.error is None
    assert (measured.nodes_lost > 0) is (trouble.lost_every_s > 0)
    assert (measured.tasks_repeated > 0) is (trouble.lost_every_s > 0)
    assert 0.1 < measured.efficiency < 1.0
    compacted_delta = catalog.state(TABLE, Partition()).compacted
    assert compacted_delta is not None
    rows = SHAPE.files * SHAPE.file_rows
    assert compacted_delta.rows == rows - rows // 10, "a tenth of the rows of each file is superseded"
    assert measured.handed_bytes < 20e6, "what all tasks need is handed over once"
    assert measured.written < 60, "records of outputs are put once in half a second of the cluster"
    assert len({file.number for file in compacted_delta.files}) == len(compacted_delta.files)


def cluster(slots: list[int], trouble: Trouble) -> Nodes:
    return Nodes(slots, Trouble(0.0, lost_every_s=trouble.lost_every_s, back_after_s=trouble.back_after_s), 1)


def test_works_begin_in_order_as_slots_and_inputs_allow() -> None:
    nodes = cluster([2], Trouble())
    first = [Work(1.0, None, []) for _ in range(4)]
    last = Work(1.0, None, [Inputs(first)])
    for work in [*first, last]:
        nodes.begin(work)
    ended = [(work, nodes.now_s) for work in nodes.ends(10.0)]
    assert ended == [*zip(first, [1.0, 1.0, 2.0, 2.0], strict=True), (last, 3.0)]
    assert nodes.busy_s == 5.0


def test_values_on_a_lost_node_are_made_again_for_those_who_wait() -> None:
    nodes = cluster([1, 1], Trouble(lost_every_s=5.0))
    sent = [Work(1.0, node, []) for node in (0, 1)]
    long = Work(20.0, None, [])
    last = Work(1.0, None, [Inputs([*sent, long])])
    for work in [*sent, long, last]:
        work.kept = 1
        nodes.begin(work)
    ended = list(nodes.ends(60.0))
    assert sorted(map(ended.count, [*sent, long, last])) == [1, 1, 1, 1], "a work that runs again ends once"
    assert ended[-1] is last
    assert nodes.nodes_lost == 1, "the last node is not lost"
    assert nodes.works_repeated == 1

"""What a task claims of a Ray cluster: as little as keeps the limits, and never more than a node has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deltacompact.executors.claims import RayNode, TaskClaim

GIB = 1 << 30


def nodes_of(count, cpus, memory=40 * GIB):
    return [RayNode(f"n{number}", cpus, memory) for number in range(count)]


def test_the_examples_of_the_story():
    four = nodes_of(4, 16)
    claims = [
        TaskClaim.of(four, None, None),
        TaskClaim.of(four, 40, None),
        TaskClaim.of(four, None, 10 * GIB),
        TaskClaim.of(four, 3, None),
    ]
    assert [(claim.cpus, claim.memory_bytes) for claim in claims] == [(1, None), (2, None), (1, 10 * GIB), (16, None)]
    assert [claim.slots for claim in claims] == [(16,) * 4, (8,) * 4, (4,) * 4, (1,) * 3]
    assert [claim.everywhere for claim in claims] == [True, True, True, False]


def test_the_capacity_says_whether_the_store_is_near():
    """A plan for Ray allowed 104 MiB for fetches and uploads, whatever the store."""
    claim = TaskClaim.of(nodes_of(2, 3), None, None)
    assert [claim.capacity(GIB, is_near=is_near).is_near for is_near in (True, False)] == [True, False]


def test_cpus_of_two_nodes_that_no_task_could_use_are_not_counted():
    claim = TaskClaim.of(nodes_of(2, 3), 3, None)
    assert (claim.cpus, claim.slots) == (2, (1, 1))


def test_a_task_takes_the_memory_of_its_own_node_not_of_all():
    assert TaskClaim.of(nodes_of(4, 16, 40 * GIB), 4, None).task_bytes == 28 * GIB


def test_a_task_that_wants_more_than_there_is_claims_what_there_is():
    claim = TaskClaim.of([RayNode("small", 8, GIB), RayNode("large", 4, 2 * GIB)], None, 3 * GIB)
    assert (claim.memory_bytes, claim.nodes, claim.slots, claim.task_bytes) == (2 * GIB, ("large",), (1,), 3 * GIB)


def test_a_node_that_does_not_say_its_memory_runs_tasks():
    assert TaskClaim.of([RayNode("to come", 8)], None, 3 * GIB) == TaskClaim(1, None, ("to come",), (8,), 3 * GIB, True)


node = st.builds(RayNode, st.uuids().map(str), st.integers(1, 64), st.integers(1, 64).map(lambda gib: gib * GIB))


@given(
    st.lists(node, min_size=1, max_size=8),
    st.none() | st.integers(1, 200),
    st.none() | st.integers(1, 64 * GIB),
)
def test_a_task_fits_a_node_and_no_more_tasks_run_than_may(nodes, tasks_max, task_bytes):
    claim = TaskClaim.of(nodes, tasks_max, task_bytes)
    running = [known for name in claim.nodes for known in nodes if known.id == name]
    assert len(running) == len(claim.slots) >= 1
    for found, slots in zip(running, claim.slots, strict=True):
        assert 1 <= slots * claim.cpus <= found.cpus
        assert slots * (claim.memory_bytes or 0) <= found.memory_bytes
    fit = [
        min(found.cpus // claim.cpus, found.memory_bytes // claim.memory_bytes if claim.memory_bytes else found.cpus)
        for found in (nodes if claim.everywhere else running)
    ]
    assert sum(fit) == sum(claim.slots) <= (tasks_max or sum(fit))
    if tasks_max is None and task_bytes is None:
        assert sum(claim.slots) == sum(found.cpus for found in nodes)

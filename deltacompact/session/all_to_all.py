"""The all-to-all of tasks and parcels: every task of one stage sends data to every task of the next.

    layout: 4 receivers, 2 nodes         parcel 0 is for receivers 0 and 1, parcel 1 for receivers 2 and 3
    scatter   hash bucket tasks 0‥8      each returns a parcel for each node
    gather    dedupe task 3              takes parcel 1 of every hash bucket task, and runs on node 1
    in files  every assign task          takes the list of all files that the survivors tasks wrote

The layout is computed once, before either stage. The steps decide what a parcel holds (steps/shuffle.py). This module
keeps no parcel: once the caller drops the list of senders, the object store may free their parcels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from deltacompact.executors.executor import Executor, Handle, SubmittedTask
from deltacompact.steps.shuffle import All, ParcelLayout

Inputs = tuple[Any, ...]
"""The inputs of one task, without its parcels."""


def scatter(
    executor: Executor,
    receivers: ParcelLayout,
    step: Callable[..., Any],
    senders: Iterable[Inputs],
    nodes: ParcelLayout | None = None,
    sizes: Sequence[float] | None = None,
    in_files: bool = False,
) -> list[SubmittedTask]:
    """Submit a task for each sender. It returns a parcel for each node of the receivers, or (`in_files`) its file.

    `nodes` has the node of each sender; without it, the senders are spread over the cluster. `sizes` has the size of
    each sender, if slow ones may run twice.
    """
    return [
        executor.submit(
            step,
            *inputs,
            returns=1 if in_files else receivers.parcel_count,
            spread=nodes is None,
            node=None if nodes is None else nodes.parcel_of(number),
            size=None if sizes is None else sizes[number],
        )
        for number, inputs in enumerate(senders)
    ]


def gather(
    executor: Executor,
    layout: ParcelLayout,
    step: Callable[..., Any],
    receivers: Iterable[Inputs],
    sent: Sequence[SubmittedTask],
    returns: int = 1,
    sizes: Sequence[float] | None = None,
    files: Handle | None = None,
) -> list[SubmittedTask]:
    """Submit a task for each receiver: it runs on its node, and takes that node's parcel from every sender.

    With `files`, it takes this value instead, which names the files of all senders. `sizes` as in `scatter`.
    """
    tasks = []
    for number, inputs in enumerate(receivers):
        node, size = layout.parcel_of(number), None if sizes is None else sizes[number]
        parcels = (sender.values[node] for sender in sent)  # not a list: it would outlive the call
        handed = parcels if files is None else (files,)
        tasks.append(executor.submit(step, *inputs, *handed, returns=returns, node=node, size=size))
    return tasks


def files_of(executor: Executor, sent: Sequence[SubmittedTask]) -> All[Any]:
    """The names of the files of all senders. The senders must have ended."""
    return All(tuple(executor.get(sender.values[0]) for sender in sent))

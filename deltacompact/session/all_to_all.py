"""The all-to-all of tasks and parcels: every task of one stage sends data to every task of the next.

    layout: 4 receivers, 2 nodes         parcel 0 is for receivers 0 and 1, parcel 1 for receivers 2 and 3
    scatter   hash bucket tasks 0‥8      each returns a parcel for each node
    gather    dedupe task 3              takes parcel 1 of every hash bucket task, and runs on node 1
    relay     hash bucket tasks 0‥8      each returns a parcel for several nodes, where there are many nodes
              relay 4                    takes that of tasks 0‥3 and returns one for each of these nodes
    in files  every assign task          takes the list of all files that the survivors tasks wrote

The layout is computed once, before either stage. The steps decide what a parcel holds (steps/shuffle.py). This module
keeps no parcel: once the caller drops the list of senders, the object store may free their parcels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deltacompact.base.limits import Limits
from deltacompact.executors.executor import Executor, Handle, SubmittedTask
from deltacompact.planning.sizing.driver_time import relayed_senders
from deltacompact.steps.shuffle import All, ParcelLayout, relay

Inputs = tuple[Any, ...]
"""The inputs of one task, without its parcels."""


class Sent(Protocol):
    """What has a parcel for each node: a task, or a batch of tasks whose parcels went through relays."""

    values: list[Handle]


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
    sent: Sequence[Sent],
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


@dataclass(slots=True)
class Batch:
    """Some senders, how many of them have not ended, and their relays. `values`: what these return, by node."""

    senders: Sequence[SubmittedTask]
    left: int
    relays: list[SubmittedTask]
    values: list[Handle]


class Relays:
    """Relays between senders whose parcels are for several nodes, and the receivers on each node, if there are any.

    Tell it when a sender has `ended`: as soon as all of a batch have, its relays are submitted and its parcels dropped,
    so the object store frees them while other senders still work. Receivers gather what is `sent`: by batches of
    senders, or by the senders themselves where their parcels are for one node each.
    """

    def __init__(
        self,
        executor: Executor,
        layout: ParcelLayout,
        several: ParcelLayout,
        sent: Sequence[SubmittedTask],
        limits: Limits,
    ) -> None:
        """`layout`: of the receivers; `several`: of the senders."""
        self._executor = executor
        self._each = each = relayed_senders(len(sent), executor.capacity.slots, layout.parcel_count, limits)
        self._starts = layout.inside(several)
        batches = (sent[first : first + each] for first in range(0, len(sent), each) if several != layout)
        self._batches = [Batch(senders, len(senders), [], []) for senders in batches]
        self.sent: Sequence[Sent] = self._batches or sent

    @property
    def tasks(self) -> list[SubmittedTask]:
        return [relay for batch in self._batches for relay in batch.relays]

    def ended(self, number: int, _seconds: float) -> None:
        """The sender of this number has ended."""
        if not self._batches:
            return
        batch = self._batches[number // self._each]
        batch.left -= 1
        if batch.left:
            return
        for parcel, starts in enumerate(self._starts):
            parcels = (sender.values[parcel] for sender in batch.senders)
            batch.relays.append(self._executor.submit(relay, starts, *parcels, returns=len(starts) - 1, spread=True))
        batch.values = [value for relay in batch.relays for value in relay.values]
        for sender in batch.senders:
            sender.values = []


def files_of(executor: Executor, sent: Sequence[SubmittedTask]) -> All[Any]:
    """The names of the files of all senders. The senders must have ended."""
    return All(tuple(executor.get(sender.values[0]) for sender in sent))

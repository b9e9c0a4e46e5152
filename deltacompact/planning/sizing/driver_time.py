"""The driver's seconds for tasks and what they hand over, and the number of tasks that these seconds allow.

a task with 4 objects of its own and 20 arguments      1.9 ms of the driver
313 nodes, a parcel for each                           a sender hands over 313 objects
313 nodes, with relays                                 a sender and a relay hand over 18 each
"""

from __future__ import annotations

import math

from deltacompact.base.limits import Limits

DRIVER_TASK_S = 0.0008
DRIVER_OBJECT_S = 0.00022
DRIVER_ARGUMENT_S = 0.00001
"""The driver's time for each task, for each object that a task returns, and for each object that it gets as argument.

Measured: 1,000 no-op tasks take 0.7 to 0.9 s, an object 0.18 to 0.26 ms, submitting 300 tasks with the same 300
objects as arguments 0.9 s.
"""

STAGE_ROW_S = 2e-7
"""Core-seconds for a row in a stage before materialize, roughly: hashing takes 1.5e-7, folding 2.4e-7."""

RELAYED_SENDERS = 4
"""Relays on a quarter of the slots already use the whole network between the nodes."""


def driver_s(objects: int, arguments: int, tasks: int = 1) -> float:
    """The driver's seconds for tasks that return so many objects in all, and get so many as arguments."""
    return tasks * DRIVER_TASK_S + objects * DRIVER_OBJECT_S + arguments * DRIVER_ARGUMENT_S


def parcels_each(nodes: int, limits: Limits) -> int:
    """How many parcels a task hands over for a stage on so many nodes: one for each node.

    On many nodes it hands over about the square root of that: each is for several nodes, and relays divide it. Then a
    sender and a relay hand over 18 objects each where the sender alone would hand over 313.
    """
    return nodes if nodes < limits.relay_nodes_min else math.ceil(math.sqrt(nodes))


def relayed_senders(senders: int, slots: int, nodes: int, limits: Limits) -> int:
    """The number of senders whose parcels a relay takes. 1: there are no relays, receivers take the parcels themselves.

    A relay takes as much as RELAYED_SENDERS senders hand over, or more where these come in several waves.
    """
    parcels = parcels_each(nodes, limits)
    return 1 if parcels == nodes else parcels * max(RELAYED_SENDERS, senders // slots)


def sender_s(nodes: int, receivers: int, limits: Limits) -> float:
    """The driver's seconds for one more task that sends to so many receivers on so many nodes: with its share of the
    relays, and of what receivers take from these."""
    parcels = parcels_each(nodes, limits)
    if parcels == nodes:
        return driver_s(nodes, receivers)
    each = parcels * RELAYED_SENDERS
    return driver_s(parcels, math.ceil(receivers / each)) + driver_s(nodes // parcels, each) / RELAYED_SENDERS


def stage_tasks(rows: int, tasks_max: int, task_s: float) -> int:
    """The number of tasks of a stage. Each task costs the driver `task_s` seconds.

    n tasks work for rows x STAGE_ROW_S / n seconds, the driver for n x task_s seconds. The sum is least if both are
    equal. On a small cluster, this n is above `tasks_max`, which is a few waves, to balance the load. On a large
    cluster it is less than one wave.
    """
    return max(1, min(tasks_max, int(math.sqrt(rows * STAGE_ROW_S / task_s))))

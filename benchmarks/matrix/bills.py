"""What a cluster costs, by the prices that sessions are planned with.

8 x r6in.4xlarge + 1 x r6in.xlarge, on demand   8 x 1.395 + 0.349 = $11.51 an hour
"""

from __future__ import annotations

from dataclasses import dataclass

from sessions.planning.prices import NodeType


@dataclass(frozen=True, slots=True)
class Bill:
    """What an hour costs: workers on demand or on spot; the head, if there is one, is always on demand."""

    on_demand_usd_per_h: float
    spot_usd_per_h: float


def bill_of(vcpus: int, worker: NodeType, head: NodeType | None) -> Bill:
    """The bill of so many vCPUs of workers. A part of a node costs its share."""
    nodes = vcpus / worker.vcpus
    fixed = head.on_demand_usd_per_h if head else 0.0
    return Bill(fixed + nodes * worker.on_demand_usd_per_h, fixed + nodes * worker.spot_usd_per_h)

"""Node types and what they cost: a dated table, and the offers that a planner chooses from.

this machine       2 CPUs, 24 GiB, nothing an hour      in process, 0.3 s to start; or with its own Ray, 15 s
8 x r6in.4xlarge   spot, and 1 head on demand           8 x 0.558 + 0.349 = $4.81 an hour, 240 s to start
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltacompact.planning import work
from deltacompact.planning.sizing.index_sizes import FIGURE_MEMORY_BYTES
from deltacompact.planning.sizing.task_memory import GIB

DEFAULT = Path(__file__).parent / "prices.toml"
X86 = "x86_64"
"""The architecture of the images."""
LOCAL = "local"
"""The node type of this machine."""

START_S = {**work.START_S, "ray_cluster": 240.0, "kuberay": 90.0}
"""Seconds until the first task may run. For EC2 nodes and pods: as their vendors say, with pulling the image."""


@dataclass(frozen=True, slots=True)
class NodeType:
    """A type of node. Prices are dollars for an hour."""

    name: str
    vcpus: int
    memory_bytes: int
    on_demand_usd_per_h: float = 0.0
    spot_usd_per_h: float = 0.0
    architecture: str = X86

    @property
    def fits(self) -> bool:
        """Whether a worker may be one."""
        return self.architecture == X86 and self.memory_bytes >= self.vcpus * FIGURE_MEMORY_BYTES


@dataclass(frozen=True, slots=True)
class RequestPrices:
    """Dollars for a million requests to S3: writes and listings, reads. Deletes cost nothing."""

    write_usd_per_million: float = 5.0
    read_usd_per_million: float = 0.4


@dataclass(frozen=True, slots=True)
class Prices:
    """The table. `date` is when the prices were looked up."""

    version: int
    date: str
    region: str
    head: str
    nodes: dict[str, NodeType]
    requests: RequestPrices = RequestPrices()

    def node(self, name: str) -> NodeType:
        """Raises ValueError for a node type without a price."""
        if name not in self.nodes:
            raise ValueError(f"no price for {name!r} (there are {', '.join(self.nodes)})")
        return self.nodes[name]


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to run sessions: up to `nodes_max` nodes of one type, by one launcher, with one executor.

    `usd_per_h` is for one worker; a cluster's head costs `head_usd_per_h` in addition.
    """

    launcher: str
    executor: str
    node: NodeType
    nodes_max: int
    start_s: float
    usd_per_h: float = 0.0
    head_usd_per_h: float = 0.0

    @property
    def here(self) -> bool:
        return self.node.name == LOCAL

    @property
    def pool(self) -> str:
        """The pool whose rates sessions on this offer share."""
        return f"{self.executor}/{self.node.name}"

    def usd(self, nodes: int, seconds: float) -> float:
        return (nodes * self.usd_per_h + self.head_usd_per_h) * seconds / 3600


def read_prices(path: Path = DEFAULT) -> Prices:
    """The prices in a file. Raises ValueError naming the file if a field is missing or not a number."""
    try:
        document = tomllib.loads(path.read_text())
        share = _price(document["spot_share"])
        nodes = {}
        for name, node in document["nodes"].items():
            on_demand = _price(node["on_demand_usd_per_h"])
            spot = _price(node.get("spot_usd_per_h", on_demand * share))
            memory, architecture = int(node["memory_gib"]) * GIB, str(node.get("architecture", X86))
            nodes[name] = NodeType(name, int(node["vcpus"]), memory, on_demand, spot, architecture)
        requests = RequestPrices(**{name: _price(usd) for name, usd in document.get("requests", {}).items()})
        version, date, region = int(document["version"]), str(document["date"]), str(document["region"])
        return Prices(version, date, region, str(document["head"]), nodes, requests)
    except KeyError as error:
        raise ValueError(f"{path.name}: {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name}: {error}") from error


def _price(value: Any) -> float:
    """TOML has inf and nan, but no record of a job run could hold a cost of that: nobody could read it any more."""
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{value} is no price")
    return number


def offers_here(cpus: int, memory_bytes: int, usd_per_h: float = 0.0) -> tuple[Offer, ...]:
    """This machine: a process of its own for each group, with the in-process executor or its own Ray."""
    node = NodeType(LOCAL, cpus, memory_bytes, usd_per_h, usd_per_h)
    return (
        Offer("local", "local", node, 1, START_S["process"], usd_per_h),
        Offer("local", "ray", node, 1, START_S["own_ray"], usd_per_h),
    )


def offers_of_clusters(
    prices: Prices, launcher: str, nodes_max: int, spot: bool = True, names: Iterable[str] | None = None
) -> tuple[Offer, ...]:
    """Clusters of the named node types (None: of all) that have at least 8 GiB for each CPU (paper, compaction
    sessions), and the architecture of the image that they run.

    Raises ValueError for a named type that has no price, or does not fit.
    """
    head = prices.node(prices.head)
    fit = [node for node in prices.nodes.values() if node is not head and node.fits]
    chosen = fit if names is None else [prices.node(name) for name in names]
    for node in chosen:
        if node not in fit:
            raise ValueError(
                f"no worker can be a {node.name!r}: workers are {X86}, have at least 8 GiB for each CPU, and another "
                f"type than the head (those are {', '.join(node.name for node in fit)})"
            )
    return tuple(
        Offer(
            launcher,
            "ray",
            node,
            nodes_max,
            START_S[launcher],
            node.spot_usd_per_h if spot else node.on_demand_usd_per_h,
            head.on_demand_usd_per_h,
        )
        for node in chosen
    )

"""What a cluster costs: prices.toml, which says when somebody looked.

8 x r6in.4xlarge + 1 x r6in.xlarge, on demand   8 x 1.395 + 0.349 = $11.51 an hour
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from deltacompact.planning.sizing import GIB

DEFAULT = Path(__file__).parent.parent / "prices.toml"


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance type, and dollars an hour."""

    name: str
    vcpus: int
    memory_bytes: int
    on_demand_usd_per_h: float
    spot_usd_per_h: float


@dataclass(frozen=True, slots=True)
class Prices:
    """The table. `date` is when the prices were looked up."""

    date: str
    region: str
    instances: dict[str, Instance]

    def instance(self, name: str) -> Instance:
        """Raises ValueError for one that has no price."""
        if name not in self.instances:
            raise ValueError(f"no price for {name!r} (there are {', '.join(self.instances)}); see --prices")
        return self.instances[name]


def read_prices(path: Path = DEFAULT) -> Prices:
    """Raises ValueError, with the file's name, where something is missing or no number."""
    try:
        document = tomllib.loads(path.read_text())
        share = float(document["spot_share"])
        instances = {}
        for name, given in document["instances"].items():
            on_demand = float(given["on_demand_usd_per_h"])
            spot = float(given.get("spot_usd_per_h", on_demand * share))
            instances[name] = Instance(name, int(given["vcpus"]), int(given["memory_gib"]) * GIB, on_demand, spot)
        return Prices(str(document["date"]), str(document["region"]), instances)
    except KeyError as error:
        raise ValueError(f"{path.name}: {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name}: {error}") from error


@dataclass(frozen=True, slots=True)
class Bill:
    """What an hour costs: workers on demand or on spot; the head, if there is one, is always on demand."""

    on_demand_usd_per_h: float
    spot_usd_per_h: float


def bill_of(vcpus: int, worker: Instance, head: Instance | None) -> Bill:
    """Of so many vCPUs of workers; parts of an instance cost their share."""
    nodes = vcpus / worker.vcpus
    fixed = head.on_demand_usd_per_h if head else 0.0
    return Bill(fixed + nodes * worker.on_demand_usd_per_h, fixed + nodes * worker.spot_usd_per_h)

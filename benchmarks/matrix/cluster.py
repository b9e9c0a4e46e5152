"""cluster.yaml for so many vCPUs: the file at the repository's root with other names, sizes and numbers in it.

32 vCPUs of r6in.4xlarge, on demand  ->  2 workers from the start and no more, 16 CPUs each, memory by planning.sizing
"""

from __future__ import annotations

import copy
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deltacompact.planning.sizing import task_memory
from sessions.planning.prices import NodeType

TEMPLATE = Path(__file__).parent.parent.parent / "cluster.yaml"


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A cluster as it is ordered. `tags` are added to those of the template. None leaves what the template says."""

    name: str
    vcpus: int
    worker: NodeType
    head: NodeType
    spot: bool = False
    image: str | None = None
    region: str | None = None
    instance_profile: str | None = None
    ami: str | None = None
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def nodes(self) -> int:
        return math.ceil(self.vcpus / self.worker.vcpus)


def render(spec: ClusterSpec, template: dict[str, Any] | None = None) -> dict[str, Any]:
    """The cluster's configuration. All workers are there from the start, so their arrival is not measured."""
    rendered = copy.deepcopy(template or yaml.safe_load(TEMPLATE.read_text()))
    rendered["cluster_name"] = spec.name
    rendered["max_workers"] = spec.nodes
    if spec.region:
        rendered["provider"]["region"] = spec.region
    if spec.image:
        rendered["docker"]["image"] = spec.image
    heap, store = task_memory.node_memory(spec.worker.memory_bytes)
    types = rendered["available_node_types"]
    worker, head = types["worker"], types["head"]
    worker |= {"min_workers": spec.nodes, "max_workers": spec.nodes}
    worker["resources"] = {"CPU": spec.worker.vcpus, "memory": heap, "object_store_memory": store}
    worker["node_config"]["InstanceType"] = spec.worker.name
    head["node_config"]["InstanceType"] = spec.head.name
    if not spec.spot:
        worker["node_config"].pop("InstanceMarketOptions", None)
    for node_type in (worker, head):
        node = node_type["node_config"]
        if spec.instance_profile:
            node["IamInstanceProfile"] = {"Name": spec.instance_profile}
        if spec.ami:
            node["ImageId"] = spec.ami
        given = {tag["Key"]: tag["Value"] for tag in node["TagSpecifications"][0]["Tags"]} | dict(spec.tags)
        node["TagSpecifications"][0]["Tags"] = [{"Key": key, "Value": value} for key, value in given.items()]
    shared = f"--shm-size={math.ceil(store / task_memory.GIB) + 1}g"
    options = rendered["docker"]["run_options"]
    rendered["docker"]["run_options"] = [shared if "--shm-size" in option else option for option in options]
    rendered["worker_start_ray_commands"] = [
        _sized(command, heap, store) for command in rendered["worker_start_ray_commands"]
    ]
    return rendered


def text_of(rendered: dict[str, Any]) -> str:
    return yaml.safe_dump(rendered, sort_keys=False, width=120)


def _sized(command: str, heap: int, store: int) -> str:
    command = re.sub(r"--memory=\d+", f"--memory={heap}", command)
    return re.sub(r"--object-store-memory=\d+", f"--object-store-memory={store}", command)

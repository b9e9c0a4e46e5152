"""Groups on clusters of their own, brought up by Ray's cluster launcher from a rendered cluster.yaml.

    launch      ray up run-1-3-g0-1-e414a84c.yaml                                     a head, then workers as Ray asks
                ray exec … 'ray job submit --submission-id NAME --no-wait -- …'       the runner, on the head
    status      ray exec … 'ray job status NAME'
    terminate   ray down …                                                            as often as it takes

Every command may be repeated: `ray up` finds the cluster by its name, and a job is submitted once under one id. Another
dispatcher, which has no file, finds the cluster by its name as well.
"""

from __future__ import annotations

import contextlib
import copy
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import yaml

from deltacompact.base.errors import StoreError
from deltacompact.planning import sizing
from sessions.base.exits import EXIT_AGAIN, EXIT_ENDED
from sessions.launchers.launcher import GroupSpec, GroupState, GroupStatus
from sessions.launchers.tools import EPOCH, GROUP, JOB_RUN, STATE, Launched, Ran, cluster_name, run, run_well, tags_of
from sessions.planning.prices import NodeType, Prices

_UP_S = 1800.0
_EXEC_S = 120.0
_DOWN_S = 600.0
_DOWN_ATTEMPTS = 3
_ENDED = re.compile(r"Job '[^']+' (succeeded|failed|was stopped)")
"""What `ray job status` prints of a job that has ended."""
_EXIT = re.compile(r"exit code:? (\d+)")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What differs from the template for every cluster. None leaves what the template says."""

    region: str | None = None
    image: str | None = None
    instance_profile: str | None = None
    spot: bool = True


def render(template: Mapping[str, Any], spec: GroupSpec, prices: Prices, options: ClusterOptions) -> dict[str, Any]:
    """cluster.yaml for one group of sessions: name, nodes, sizes by sizing.node_memory, and tags. Pure.

    Raises ValueError for a node type without a price.
    """
    rendered: dict[str, Any] = copy.deepcopy(dict(template))
    node, head_node = prices.node(spec.node_type), prices.node(prices.head)
    rendered["cluster_name"] = cluster_name(spec.id)
    rendered["max_workers"] = spec.workers_max
    if options.region:
        rendered["provider"]["region"] = options.region
    if options.image:
        rendered["docker"]["image"] = options.image
    types = rendered["available_node_types"]
    head, worker = types["head"], types["worker"]
    heap, store = sizing.node_memory(node.memory_bytes)
    worker |= {"min_workers": spec.workers_initial, "max_workers": spec.workers_max}
    worker["resources"] = {"CPU": node.vcpus, "memory": heap, "object_store_memory": store}
    if not options.spot:
        worker["node_config"].pop("InstanceMarketOptions", None)
    for node_type, instance in ((head, head_node), (worker, node)):
        _set_node(node_type["node_config"], instance, spec, options)
    shared = f"--shm-size={math.ceil(store / sizing.GIB) + 1}g"
    docker = rendered["docker"]
    docker["run_options"] = [shared if "--shm-size" in option else option for option in docker["run_options"]]
    rendered["worker_start_ray_commands"] = [
        re.sub(
            r"--memory=\d+",
            f"--memory={heap}",
            re.sub(r"--object-store-memory=\d+", f"--object-store-memory={store}", command),
        )
        for command in rendered["worker_start_ray_commands"]
    ]
    return rendered


def _set_node(config: dict[str, Any], instance: NodeType, spec: GroupSpec, options: ClusterOptions) -> None:
    config["InstanceType"] = instance.name
    if options.instance_profile:
        config["IamInstanceProfile"] = {"Name": options.instance_profile}
    given = {tag["Key"]: tag["Value"] for tag in config["TagSpecifications"][0]["Tags"]} | tags_of(spec)
    config["TagSpecifications"][0]["Tags"] = [{"Key": key, "Value": value} for key, value in given.items()]


class RayClusterLauncher:
    """`folder` is where rendered files lie. `ray` is the command."""

    def __init__(
        self,
        template: Mapping[str, Any],
        prices: Prices,
        folder: Path,
        state_uri: str,
        options: ClusterOptions | None = None,
        ray: str = "ray",
    ) -> None:
        self._template, self._prices, self._folder = template, prices, folder
        self._state_uri, self._options, self._ray = state_uri, options or ClusterOptions(), ray

    def launch(self, spec: GroupSpec) -> None:
        """Bring the cluster up and submit the runner to its head; blocks until then. Failing, it leaves nothing."""
        name = cluster_name(spec.id)
        file = self._written(spec.id, render(self._template, spec, self._prices, self._options))
        try:
            run_well([self._ray, "up", "--yes", "--no-config-cache", str(file)], _UP_S)
            submit = ["ray", "job", "submit", "--submission-id", name, "--no-wait", "--", *spec.command]
            submitted = self._exec(spec.id, submit)
            if submitted.exit_status and "already exists" not in submitted.output:
                raise StoreError(f"ray job submit failed: {submitted.last_line}")
        except BaseException:
            with contextlib.suppress(StoreError):
                self.terminate(spec.id)
            raise

    def status(self, group_id: str) -> GroupStatus:
        asked = self._exec(group_id, ["ray", "job", "status", cluster_name(group_id)])
        if "does not exist" in asked.output or "not found" in asked.output.lower():
            return GroupStatus(GroupState.UNKNOWN, text=asked.last_line)
        if ended := _ENDED.search(asked.output):
            told = _EXIT.search(asked.output)
            exit_status = int(told[1]) if told else EXIT_ENDED if ended[1] == "succeeded" else EXIT_AGAIN
            return GroupStatus(GroupState.ENDED, exit_status, asked.last_line)
        if asked.exit_status:
            return GroupStatus(GroupState.UNKNOWN, text=asked.last_line)
        return GroupStatus(GroupState.RUNNING, text=asked.last_line)

    def logs(self, group_id: str) -> str:
        return self._exec(group_id, ["ray", "job", "logs", cluster_name(group_id)]).output

    def terminate(self, group_id: str) -> None:
        """Raises StoreError where the cluster may still run."""
        command = [self._ray, "down", "--yes", str(self._file_there(group_id))]
        for attempt in range(_DOWN_ATTEMPTS):
            ran = run(command, _DOWN_S)
            if ran.exit_status == 0:
                self._file(group_id).unlink(missing_ok=True)
                return
            if attempt + 1 == _DOWN_ATTEMPTS:
                raise StoreError(f"the cluster of {group_id} may still run, ray down failed: {ran.last_line}")

    def close(self) -> None:
        """Clusters outlive a dispatcher: another one finds them by their names."""

    def launched(self) -> Iterator[Launched]:
        """Heads that run for this state, by their tags."""
        region = self._options.region or self._template["provider"]["region"]
        pages = boto3.client("ec2", region_name=region).get_paginator("describe_instances")
        states = {"Name": "instance-state-name", "Values": ["pending", "running"]}
        ours = {"Name": f"tag:{STATE}", "Values": [self._state_uri]}
        seen: dict[str, Launched] = {}
        for page in pages.paginate(Filters=[ours, states]):
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
                    since = instance["LaunchTime"].timestamp()
                    found = seen.get(tags[GROUP])
                    since = min(since, found.since_s) if found else since
                    seen[tags[GROUP]] = Launched(tags[GROUP], tags[JOB_RUN], int(tags[EPOCH]), since)
        yield from seen.values()

    def _exec(self, group_id: str, command: list[str]) -> Ran:
        return run([self._ray, "exec", str(self._file_there(group_id)), shlex.join(command)], _EXEC_S)

    def _file(self, group_id: str) -> Path:
        return self._folder / f"{cluster_name(group_id)}.yaml"

    def _file_there(self, group_id: str) -> Path:
        """The file of a cluster that another dispatcher has launched: name, provider and authentication suffice."""
        file = self._file(group_id)
        if file.exists():
            return file
        named = {**self._template, "cluster_name": cluster_name(group_id)}
        if self._options.region:
            named["provider"] = {**self._template["provider"], "region": self._options.region}
        return self._written(group_id, named)

    def _written(self, group_id: str, config: Mapping[str, Any]) -> Path:
        file = self._file(group_id)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(dict(config), sort_keys=False, width=120))
        return file

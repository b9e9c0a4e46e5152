"""Runs groups on clusters of their own, brought up by Ray's cluster launcher from a rendered cluster.yaml.

    launch      ray up run-1-3-g0-1-e414a84c.yaml        a head, then workers as Ray asks
                submit job NAME                          the runner, on the head
    status      ask for job NAME
    terminate   ray down …                               up to three times

Jobs go through the head's dashboard, which listens only on the head: `ray dashboard` forwards a port of this machine to
it for each question. Every command may be repeated: `ray up` finds the cluster by its name, and a job is submitted only
once under its id. Another dispatcher, which lacks the file, finds the cluster by its name, too.
"""

from __future__ import annotations

import contextlib
import copy
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from deltacompact.base.errors import InputError, StoreError
from deltacompact.base.wording import one_line
from deltacompact.planning.sizing import task_memory
from deltacompact.storage.s3_access import aws_client
from sessions.launchers import ray_jobs
from sessions.launchers.launcher import GroupSpec, GroupStatus
from sessions.launchers.tools import (
    EPOCH,
    GROUP,
    JOB_RUN,
    STATE,
    Launched,
    cluster_name,
    forwarding,
    free_port,
    run,
    run_well,
    tags_of,
)
from sessions.planning.prices import NodeType, Prices

_UP_S = 1800.0
_FORWARDED_WITHIN_S = 120.0
_DOWN_S = 600.0
_DOWN_ATTEMPTS = 3
_LISTED_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Values that replace those of the template in every cluster. None: the template's stays.

    Jobs have the variables of `environment`.
    """

    region: str | None = None
    image: str | None = None
    instance_profile: str | None = None
    spot: bool = True
    environment: dict[str, str] = field(default_factory=dict)


def render(template: Mapping[str, Any], spec: GroupSpec, prices: Prices, options: ClusterOptions) -> dict[str, Any]:
    """cluster.yaml for one group of sessions: name, nodes, sizes by task_memory.node_memory, and tags. Pure.

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
    heap, store = task_memory.node_memory(node.memory_bytes)
    worker |= {"min_workers": spec.workers_initial, "max_workers": spec.workers_max}
    worker["resources"] = {"CPU": node.vcpus, "memory": heap, "object_store_memory": store}
    if not options.spot:
        worker["node_config"].pop("InstanceMarketOptions", None)
    for node_type, instance in ((head, head_node), (worker, node)):
        _set_node(node_type["node_config"], instance, spec, options)
    shared = f"--shm-size={math.ceil(store / task_memory.GIB) + 1}g"
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


def check_template(template: Any, prices: Prices, options: ClusterOptions) -> None:
    """Render a cluster once, before any group wants one. Raises InputError, of one line, where that cannot be done."""
    if not isinstance(template, Mapping):
        raise InputError("it is no mapping, as cluster.yaml of Ray's cluster launcher is")
    spec = GroupSpec("run.1.g.1", "s3://state", "run", "g", 1, "ray", "ray_cluster", prices.head, 1, 1, 0)
    try:
        render(template, spec, prices, options)
    except KeyError as error:
        raise InputError(f"it lacks {error.args[0]!r}") from error
    except (TypeError, AttributeError, IndexError) as error:
        said = "it has not the form of cluster.yaml of Ray's cluster launcher"
        raise InputError(f"{said}: {one_line(error)}") from error


def _set_node(config: dict[str, Any], instance: NodeType, spec: GroupSpec, options: ClusterOptions) -> None:
    config["InstanceType"] = instance.name
    if options.instance_profile:
        config["IamInstanceProfile"] = {"Name": options.instance_profile}
    given = {tag["Key"]: tag["Value"] for tag in config["TagSpecifications"][0]["Tags"]} | tags_of(spec)
    config["TagSpecifications"][0]["Tags"] = [{"Key": key, "Value": value} for key, value in given.items()]


class RayClusterLauncher:
    """`folder`: for rendered files. `ray`: the command."""

    def __init__(
        self,
        template: Mapping[str, Any],
        prices: Prices,
        folder: Path,
        state_uri: str,
        options: ClusterOptions | None = None,
        ray: str = "ray",
        open_client: Callable[[str], ray_jobs.Client] = ray_jobs.open_client,
    ) -> None:
        self._open_client = open_client
        self._template, self._prices, self._folder = template, prices, folder
        self._state_uri, self._options, self._ray = state_uri, options or ClusterOptions(), ray

    def launch(self, spec: GroupSpec) -> None:
        """Bring the cluster up, and submit the runner to its head. Blocks until then. After an error nothing is
        left."""
        name = cluster_name(spec.id)
        file = self._written(spec.id, render(self._template, spec, self._prices, self._options))
        try:
            run_well([self._ray, "up", "--yes", "--no-config-cache", str(file)], _UP_S)
            with self._jobs(spec.id) as client:
                ray_jobs.submit(client, name, shlex.join(spec.command), self._options.environment)
        except BaseException:
            with contextlib.suppress(StoreError):
                self.terminate(spec.id)
            raise

    def status(self, group_id: str) -> GroupStatus:
        with self._jobs(group_id) as client:
            return ray_jobs.status(client, cluster_name(group_id))

    def logs(self, group_id: str) -> str:
        with self._jobs(group_id) as client:
            return ray_jobs.logs(client, cluster_name(group_id))

    def terminate(self, group_id: str) -> None:
        """Raises StoreError if the cluster may still run."""
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
        """The running clusters of this state, found by their tags."""
        region = self._options.region or self._template["provider"]["region"]
        ec2 = aws_client("ec2", region, _LISTED_WITHIN_S)  # with the credentials that `ray up` uses
        pages = ec2.get_paginator("describe_instances")
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

    @contextlib.contextmanager
    def _jobs(self, group_id: str) -> Iterator[ray_jobs.Client]:
        """A client for the jobs of a cluster. Raises StoreError if its dashboard cannot be reached."""
        port = free_port()
        command = [self._ray, "dashboard", "--no-config-cache", "--port", str(port), str(self._file_there(group_id))]
        with forwarding(command, port, _FORWARDED_WITHIN_S):
            yield self._open_client(f"http://127.0.0.1:{port}")

    def _file(self, group_id: str) -> Path:
        return self._folder / f"{cluster_name(group_id)}.yaml"

    def _file_there(self, group_id: str) -> Path:
        """The file of a cluster. If another dispatcher launched it, a new file: name, provider and login are enough."""
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

"""Groups as KubeRay RayJobs: one manifest for each group, applied by kubectl.

    apply RayJob run-1-3-g0-1-e414a84c      KubeRay makes the cluster, submits the runner, and removes the cluster
    get   status.jobDeploymentStatus        Initializing, Running, Complete, Failed
    Failed, without a jobStatus             no runner began: pods that cannot be placed, for instance

`backoffLimit` is 0: dispatchers retry sessions by their records, and each retry of KubeRay would be another cluster.
`jobId` is the group's name, so a job is not submitted twice. In SidecarMode a container beside the head submits it, so
there is no separate pod that could be evicted. In HTTPMode the operator submits it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from deltacompact.base.errors import StoreError
from deltacompact.planning.sizing import task_memory
from sessions.base.exits import EXIT_AGAIN, EXIT_ENDED
from sessions.base.troubles import Cause
from sessions.launchers.launcher import GroupSpec, GroupState, GroupStatus
from sessions.launchers.tools import EPOCH, GROUP, JOB_RUN, STATE, Launched, cluster_name, run, run_well, tags_of
from sessions.planning.prices import START_S, NodeType, Prices

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "deltacompact-sessions"

_STARTS_WITHIN = 10
"""A cluster that is not up after so many times the planned start is given up: its pods cannot be placed."""
_POD_SHARE = 0.9
"""The share of a node that a worker's pod asks for. The rest is for the node itself."""
_HEAD_CPUS, _HEAD_GIB = 2, 8
_KUBECTL_S = 60.0
_DELETED_WITHIN_S = 300.0
_EXIT_STATUS = re.compile(r"Job entrypoint command failed with exit code (\d+)")
_FAILED = {"Failed", "ValidationFailed"}
_ENDED = {"Complete", *_FAILED}


@dataclass(frozen=True, slots=True)
class KubeOptions:
    """The namespace of RayJobs, and what their pods run. `node_selector_key`: the label with a node's type.

    Pods have the variables of `environment`, and the entries of a `secret` if there is one of this name.
    """

    image: str
    ray_version: str
    namespace: str = "default"
    service_account: str | None = None
    submission: Literal["SidecarMode", "HTTPMode"] = "SidecarMode"
    node_selector_key: str = "node.kubernetes.io/instance-type"
    finished_for_s: int = 600
    secret: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


def render(spec: GroupSpec, prices: Prices, options: KubeOptions) -> dict[str, Any]:
    """The RayJob of one group of sessions. Pure. Raises ValueError for a node type without a price."""
    node, name = prices.node(spec.node_type), cluster_name(spec.id)
    head = _pod("ray-head", f"{_HEAD_CPUS}", _HEAD_GIB * task_memory.GIB, options)
    grows = spec.workers_initial < spec.workers_max
    if grows:  # Ray's autoscaler runs in the head's pod, and asks Kubernetes for workers; KubeRay gives it the role
        head["spec"]["automountServiceAccountToken"] = True
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            "name": name,
            "namespace": options.namespace,
            "labels": {MANAGED_BY: MANAGER},
            "annotations": tags_of(spec),
        },
        "spec": {
            "entrypoint": shlex.join(spec.command),
            "jobId": name,
            "submissionMode": options.submission,
            "backoffLimit": 0,
            "preRunningDeadlineSeconds": int(_STARTS_WITHIN * START_S["kuberay"]),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": options.finished_for_s,
            "rayClusterSpec": {
                "rayVersion": options.ray_version,
                "enableInTreeAutoscaling": grows,
                "autoscalerOptions": {"securityContext": _without_privileges()},
                "headGroupSpec": {
                    "rayStartParams": {"num-cpus": "0"},  # the driver and Ray's own processes: it runs no tasks
                    "template": head,
                },
                "workerGroupSpecs": [_workers(spec, node, options)],
            },
        },
    }


def _workers(spec: GroupSpec, node: NodeType, options: KubeOptions) -> dict[str, Any]:
    heap, store = task_memory.node_memory(node.memory_bytes)
    cpus = f"{int(node.vcpus * 1000 * _POD_SHARE)}m"
    template = _pod("ray-worker", cpus, int(node.memory_bytes * _POD_SHARE), options)
    template["spec"]["nodeSelector"] = {options.node_selector_key: node.name}
    return {
        "groupName": "worker",
        "replicas": spec.workers_initial,
        "minReplicas": 0,
        "maxReplicas": spec.workers_max,
        "rayStartParams": {"num-cpus": str(node.vcpus), "memory": str(heap), "object-store-memory": str(store)},
        "template": template,
    }


def _pod(name: str, cpus: str, memory_bytes: int, options: KubeOptions) -> dict[str, Any]:
    amounts = {"cpu": cpus, "memory": str(memory_bytes)}
    container: dict[str, Any] = {
        "name": name,
        "image": options.image,
        "resources": {"requests": amounts, "limits": {"memory": amounts["memory"]}},
        "securityContext": _without_privileges(),
    }
    if options.environment:
        container["env"] = [{"name": key, "value": value} for key, value in options.environment.items()]
    if options.secret:
        container["envFrom"] = [{"secretRef": {"name": options.secret, "optional": True}}]
    pod: dict[str, Any] = {"securityContext": _as_no_root(), "containers": [container]}
    if options.service_account:
        pod["serviceAccountName"] = options.service_account
    return {"metadata": {"labels": {MANAGED_BY: MANAGER}}, "spec": pod}


def _as_no_root() -> dict[str, Any]:
    """The user of a pod, as of our other pods: 1000, which Ray's image has, too."""
    return {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}}


def _without_privileges() -> dict[str, Any]:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


class KubeRayLauncher:
    """`kubectl`: the command, with arguments that choose the cluster, such as ("kubectl", "--context", "prod")."""

    def __init__(
        self, prices: Prices, state_uri: str, options: KubeOptions, kubectl: tuple[str, ...] = ("kubectl",)
    ) -> None:
        self._prices, self._state_uri, self._options, self._kubectl = prices, state_uri, options, kubectl

    def launch(self, spec: GroupSpec) -> None:
        if self._get(spec.id) is None:
            manifest = render(spec, self._prices, self._options)
            run_well([*self._here, "apply", "--filename", "-"], _KUBECTL_S, json.dumps(manifest))

    def status(self, group_id: str) -> GroupStatus:
        found = self._get(group_id)
        if found is None:
            return GroupStatus(GroupState.UNKNOWN)
        told = found.get("status") or {}
        text = ": ".join(filter(None, (told.get("reason"), told.get("message"))))
        if told.get("jobDeploymentStatus") not in _ENDED:
            return GroupStatus(GroupState.RUNNING, text=text)
        job = told.get("jobStatus")
        cause = Cause.LAUNCH if told["jobDeploymentStatus"] in _FAILED and not job else None
        told_exit = _EXIT_STATUS.search(text)  # there is no field for it
        failed = int(told_exit[1]) if told_exit else EXIT_AGAIN
        return GroupStatus(GroupState.ENDED, EXIT_ENDED if job == "SUCCEEDED" else failed, text, cause)

    def logs(self, group_id: str) -> str:
        """The log of the runner: from the sidecar, or without one from the head."""
        found = self._get(group_id)
        cluster = ((found or {}).get("status") or {}).get("rayClusterName")
        if not cluster:
            return ""
        selector = f"ray.io/cluster={cluster},ray.io/node-type=head"
        if self._options.submission == "SidecarMode":
            command = ["logs", "--selector", selector, "--container", "ray-job-submitter", "--tail", "-1"]
            return run(([*self._here, *command]), _KUBECTL_S).output
        head = run_well([*self._here, "get", "pods", "--selector", selector, "--output", "name"], _KUBECTL_S).split()
        if not head:
            return ""
        command = ["exec", head[0], "--container", "ray-head", "--", "ray", "job", "logs", cluster_name(group_id)]
        return run([*self._here, *command], _KUBECTL_S).output

    def terminate(self, group_id: str) -> None:
        """Delete the RayJob, and with it the cluster. Raises StoreError if the cluster may still run."""
        within = f"--timeout={_DELETED_WITHIN_S:.0f}s"
        command = ["delete", "rayjob.ray.io", cluster_name(group_id), "--ignore-not-found", "--wait=true", within]
        run_well([*self._here, *command], _DELETED_WITHIN_S + _KUBECTL_S)

    def close(self) -> None:
        """RayJobs outlive a dispatcher: another one finds them by their names."""

    def launched(self) -> Iterator[Launched]:
        """RayJobs of this state. One that has ended stays until somebody deletes it."""
        command = ["get", "rayjobs.ray.io", "--selector", f"{MANAGED_BY}={MANAGER}", "--output", "json"]
        for resource in json.loads(run_well([*self._here, *command], _KUBECTL_S))["items"]:
            notes = resource["metadata"].get("annotations", {})
            if notes.get(STATE) == self._state_uri:
                since = datetime.fromisoformat(resource["metadata"]["creationTimestamp"]).timestamp()
                yield Launched(notes[GROUP], notes[JOB_RUN], int(notes[EPOCH]), since)

    @property
    def _here(self) -> tuple[str, ...]:
        return *self._kubectl, "--namespace", self._options.namespace

    def _get(self, group_id: str) -> dict[str, Any] | None:
        command = ["get", "rayjob.ray.io", cluster_name(group_id), "--ignore-not-found", "--output", "json"]
        printed = run_well([*self._here, *command], _KUBECTL_S)
        if not printed.strip():
            return None
        try:
            found: dict[str, Any] = json.loads(printed)
        except ValueError as error:
            raise StoreError(f"kubectl get printed no JSON: {printed[:100]!r}") from error
        return found

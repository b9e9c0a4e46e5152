"""RayJobs: rendered as the golden file has them, held against KubeRay's schema, applied by the real kubectl."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kube_api import KubeApi, refusals
from kube_groups import OPTIONS, PRICES, STATE, api, group, launcher  # noqa: F401

from deltacompact.base.errors import StoreError
from deltacompact.planning.sizing import task_memory
from sessions.base.exits import EXIT_AGAIN, EXIT_ENDED
from sessions.base.troubles import Cause
from sessions.cli.clusters import Clusters
from sessions.launchers.kuberay import MANAGED_BY, MANAGER, KubeRayLauncher, render
from sessions.launchers.launcher import GroupState, GroupStatus
from sessions.launchers.tools import NAME_CHARACTERS_MAX, Launched, cluster_name

pytestmark = pytest.mark.processes

GOLDEN = Path(__file__).parents[2] / "golden" / "rayjob.yaml"


def test_rendered_as_the_golden_file_has_it() -> None:
    text = yaml.safe_dump(render(group(), PRICES, OPTIONS), sort_keys=False, width=120)
    if os.environ.get("DELTACOMPACT_WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.parametrize("submission", ["SidecarMode", "HTTPMode"])
@pytest.mark.parametrize("node_type", sorted(PRICES.nodes))
def test_kuberay_accepts_what_is_rendered(submission: Any, node_type: str) -> None:
    options = replace(OPTIONS, submission=submission, secret="keys", environment={"AWS_REGION": "eu-west-1"})
    manifest = render(group(node_type=node_type), PRICES, options)
    assert refusals(manifest) == []
    assert refusals({**manifest, "spec": {**manifest["spec"], "backofLimit": 0}}), "a field that is misspelt is refused"
    assert refusals({**manifest, "spec": {**manifest["spec"], "backoffLimit": "none"}}), "so is a wrong type"


def test_one_cluster_that_is_never_tried_again_and_goes_away() -> None:
    spec = render(group(), PRICES, OPTIONS)["spec"]
    assert spec["backoffLimit"] == 0 and spec["shutdownAfterJobFinishes"] is True
    assert spec["preRunningDeadlineSeconds"] == 900
    assert spec["jobId"] == cluster_name("run-1.3.g1.1")
    assert "submitterPodTemplate" not in spec and "submitterConfig" not in spec, "SidecarMode takes neither"
    cluster = spec["rayClusterSpec"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    (workers,) = cluster["workerGroupSpecs"]
    heap, store = task_memory.node_memory(PRICES.node("r6in.4xlarge").memory_bytes)
    assert workers["rayStartParams"] == {"num-cpus": "16", "memory": str(heap), "object-store-memory": str(store)}
    limit = int(workers["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"])
    assert limit == heap + store, "the pod has what tasks and object store are planned to take"
    assert (workers["replicas"], workers["minReplicas"], workers["maxReplicas"]) == (2, 0, 8)
    assert cluster["enableInTreeAutoscaling"] is True
    fixed = render(group(workers_initial=8), PRICES, OPTIONS)["spec"]["rayClusterSpec"]
    assert fixed["enableInTreeAutoscaling"] is False


@pytest.mark.parametrize("workers_initial", [2, 8])
def test_a_head_has_a_token_where_its_autoscaler_asks_for_workers(workers_initial: int) -> None:
    """The account of our manifests mounts none: a cluster that was to grow kept the workers that it began with."""
    base = Path(__file__).parents[3] / "deploy" / "kubernetes" / "base" / "accounts.yaml"
    accounts = {each["metadata"]["name"]: each for each in yaml.safe_load_all(base.read_text())}
    assert accounts["deltacompact-worker"]["automountServiceAccountToken"] is False
    cluster = render(group(workers_initial=workers_initial), PRICES, OPTIONS)["spec"]["rayClusterSpec"]
    head, *workers = (part["template"]["spec"] for part in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]))
    assert (
        head.get("automountServiceAccountToken", False) is cluster["enableInTreeAutoscaling"] is (workers_initial < 8)
    )
    assert not any("automountServiceAccountToken" in pod for pod in workers)


def test_pods_reach_s3_as_their_dispatcher_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wrote without the KMS key, and at another endpoint could not even open the state."""
    monkeypatch.setenv("DELTACOMPACT_S3_KMS_KEY_ID", "key-1")
    monkeypatch.setenv("DELTACOMPACT_S3_SECRET_KEY", "hidden")
    monkeypatch.setenv("DELTACOMPACT_S3_PROFILE", "mine")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    launcher = Clusters(8, "s3://lake/state", Path("/tmp"), kuberay="image:1", pod_secret="keys").launchers["kuberay"]
    cluster = render(group(), PRICES, launcher._options)["spec"]["rayClusterSpec"]  # type: ignore[union-attr]
    for told in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (container,) = told["template"]["spec"]["containers"]
        named = {variable["name"]: variable["value"] for variable in container["env"]}
        assert (named["DELTACOMPACT_S3_KMS_KEY_ID"], named["AWS_REGION"]) == ("key-1", "eu-west-1")
        assert not {"DELTACOMPACT_S3_SECRET_KEY", "DELTACOMPACT_S3_PROFILE", "AWS_SECRET_ACCESS_KEY"} & named.keys()
        assert container["envFrom"] == [{"secretRef": {"name": "keys", "optional": True}}]


def test_the_runner_is_told_where_its_records_are() -> None:
    hostile = group(job_run_id="run 1; rm -rf /", group="g'1")
    entrypoint = render(hostile, PRICES, OPTIONS)["spec"]["entrypoint"]
    assert entrypoint == (
        "deltacompact-sessions run-group --state s3://lake/compaction-state --job-run 'run 1; rm -rf /' "
        """--group 'g'"'"'1' --epoch 3"""
    )


def test_names_are_dns_labels_and_no_two_groups_share_one() -> None:
    ids = ["run-1.3.g1.1", "run-1.3.g1-1", "RUN-1.3.g1.1", "7c4", "x" * 200, "x" * 201, "ümläut", "-", "a" * 47 + "..b"]
    names = [cluster_name(id_) for id_ in ids]
    assert len(set(names)) == len(ids)
    for name in names:
        assert len(name) <= NAME_CHARACTERS_MAX and name[0].isalpha() and name[-1].isalnum()
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert cluster_name(ids[0]) == names[0] == "run-1-3-g1-1-d8ab7608"


def test_a_node_type_without_a_price_is_refused() -> None:
    with pytest.raises(ValueError, match="no price"):
        render(group(node_type="local"), PRICES, OPTIONS)


# With kubectl


def test_pods_have_no_more_rights_than_the_dispatcher() -> None:
    base = Path(__file__).parents[3] / "deploy" / "kubernetes" / "base" / "dispatchers.yaml"
    (dispatcher,) = [each for each in yaml.safe_load_all(base.read_text()) if each["kind"] == "Deployment"]
    pod = dispatcher["spec"]["template"]["spec"]
    own = dict(pod["containers"][0]["securityContext"])
    assert own.pop("readOnlyRootFilesystem"), "but Ray writes logs"
    cluster = render(group(), PRICES, OPTIONS)["spec"]["rayClusterSpec"]
    assert cluster["autoscalerOptions"]["securityContext"] == own
    for part in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        made = part["template"]["spec"]
        assert made["securityContext"] == pod["securityContext"]
        assert [container["securityContext"] for container in made["containers"]] == [own]


def test_a_group_lives_and_ends(api: KubeApi, launcher: KubeRayLauncher) -> None:
    spec, name = group(), cluster_name("run-1.3.g1.1")
    assert launcher.status(spec.id).state is GroupState.UNKNOWN
    launcher.launch(spec)
    launcher.launch(spec)
    assert api.calls == [f"create {name}"], "the second launch finds it there"
    assert launcher.status(spec.id).state is GroupState.RUNNING and launcher.logs(spec.id) == ""
    stored = api.objects[name]
    stored["status"] = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterName": "cluster-1"}
    api.pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "head-1",
                "namespace": "compaction",
                "labels": {"ray.io/cluster": "cluster-1", "ray.io/node-type": "head"},
            },
            "spec": {"containers": [{"name": "ray-head"}, {"name": "ray-job-submitter"}]},
        }
    ]
    api.logs["ray-job-submitter"] = "round 1 of 3\n"
    assert launcher.status(spec.id).state is GroupState.RUNNING and launcher.logs(spec.id) == "round 1 of 3\n"
    stored["status"] = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
    assert (launcher.status(spec.id).state, launcher.status(spec.id).exit_status) == (GroupState.ENDED, EXIT_ENDED)
    stored["status"] = {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "AppFailed", "message": "1"}
    assert launcher.status(spec.id) == GroupStatus(GroupState.ENDED, EXIT_AGAIN, "AppFailed: 1")
    for code, ends in (("77, last available logs:\n…", 77), ("75. No logs available.", EXIT_AGAIN)):
        told = f"Job entrypoint command failed with exit code {code}"
        stored["status"] = {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": told}
        assert launcher.status(spec.id) == GroupStatus(GroupState.ENDED, ends, told)
    stored["status"] = {"jobDeploymentStatus": "Failed", "reason": "PreRunningDeadlineExceeded", "message": "no node"}
    why = "PreRunningDeadlineExceeded: no node"
    assert launcher.status(spec.id) == GroupStatus(GroupState.ENDED, EXIT_AGAIN, why, Cause.LAUNCH)
    stored["status"] = {"jobDeploymentStatus": "ValidationFailed", "message": "no such mode"}
    assert launcher.status(spec.id).cause is Cause.LAUNCH
    stored["status"] = {"jobDeploymentStatus": "Complete"}
    assert launcher.status(spec.id).cause is None
    launcher.terminate(spec.id)
    launcher.terminate(spec.id)
    assert api.objects == {} and launcher.status(spec.id).state is GroupState.UNKNOWN


def test_what_was_launched_for_this_state_is_listed(api: KubeApi, launcher: KubeRayLauncher) -> None:
    """Ended ones too: KubeRay removes their clusters alone, and a dispatcher that died deletes none."""
    launcher.launch(group())
    launcher.launch(group("run-2.1.g1.1", job_run_id="run-2", epoch=1))
    launcher.launch(group("run-3.1.g1.1", state_uri="s3://other/state"))
    launcher.launch(group("run-4.1.g1.1"))
    api.objects[cluster_name("run-4.1.g1.1")]["status"] = {"jobDeploymentStatus": "Complete"}
    api.objects["foreign"] = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "foreign"}}
    api.objects["bare"] = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "bare", "labels": {MANAGED_BY: MANAGER}},
    }
    since = 1795341600.0
    assert sorted(launcher.launched(), key=lambda one: one.group_id) == [
        Launched("run-1.3.g1.1", "run-1", 3, since),
        Launched("run-2.1.g1.1", "run-2", 1, since),
        Launched("run-4.1.g1.1", "run-1", 3, since),
    ]


def test_a_cluster_that_does_not_answer_is_a_store_error(tmp_path: Path) -> None:
    gone = ("kubectl", "--server", "http://127.0.0.1:9", "--cache-dir", str(tmp_path), "--kubeconfig", "/dev/null")
    for tool, message in ((gone, "refused"), (("no-such-kubectl",), "is not installed here")):
        if shutil.which(tool[0]) is None and tool is gone:
            continue
        with pytest.raises(StoreError, match=message):
            KubeRayLauncher(PRICES, STATE, OPTIONS, tool).launch(group())

"""The launchers that a dispatcher has: chosen by options, behind one protocol, and keeping nobody waiting."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kube_api import KubeApi
from kube_groups import OPTIONS, PRICES, STATE, api, group, launcher  # noqa: F401
from sessions_processes import until
from small_groups import ended_well

from deltacompact.base.errors import InputError
from deltacompact.base.one_heap import ENVIRONMENT
from sessions.cli.clusters import Clusters
from sessions.launchers import ray_jobs
from sessions.launchers.kuberay import KubeRayLauncher
from sessions.launchers.launcher import GroupState
from sessions.launchers.launchers import InBackground, Launchers
from sessions.launchers.local import LocalLauncher
from sessions.launchers.tools import cluster_name

pytestmark = pytest.mark.processes

TEMPLATE = str(Path(__file__).parents[3] / "cluster.yaml")


def test_each_group_goes_to_the_launcher_of_its_plan(
    api: KubeApi,
    launcher: KubeRayLauncher,
    tmp_path: Path,
) -> None:
    now_s = [0.0]
    clusters = InBackground(launcher, clock=lambda: now_s[0])
    launchers = Launchers({"local": LocalLauncher(tmp_path, ended_well), "kuberay": clusters})
    here, there = group("run-1.3.g2.1", launcher="local", executor="local"), group("run-1.3.g1.1")
    name = cluster_name(there.id)
    assert launchers.status(there.id).state is GroupState.UNKNOWN and launchers.logs(there.id) == ""
    for spec in (here, there, there):
        launchers.launch(spec)
    assert launchers.status(there.id).state is GroupState.RUNNING
    until(lambda: name in api.objects, "it is launched")
    until(lambda: launchers.status(here.id).state is GroupState.ENDED, "the process ends")
    assert launchers.logs(here.id) == "run-1 g1 3\n" and api.calls == [f"create {name}"]
    api.objects[name]["status"] = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
    now_s[0] = 100.0
    until(lambda: launchers.status(there.id).state is GroupState.ENDED, "the cluster ends")
    launchers.terminate(there.id)
    launchers.terminate(here.id)
    assert api.objects == {} and launchers.status(there.id).state is GroupState.UNKNOWN
    launchers.close()


def test_a_cluster_that_cannot_be_launched_is_a_group_that_has_ended() -> None:
    clusters = InBackground(KubeRayLauncher(PRICES, STATE, OPTIONS, ("no-such-kubectl",)))
    clusters.launch(group())
    ended = until(lambda: (told := clusters.status(group().id)).state is GroupState.ENDED and told, "it ends")
    assert ended.exit_status == 1 and "no-such-kubectl is not installed here" in ended.text
    clusters.close()


def test_clusters_are_what_the_options_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_jobs, "check_installed", lambda: None)  # tests do without ray[default]
    monkeypatch.setenv("DELTACOMPACT_S3_KMS_KEY_ID", "k")
    none = Clusters(8, str(tmp_path), tmp_path)
    assert (none.launchers, none.offers, none.prices_dated) == ({}, (), "")
    both = Clusters(8, STATE, tmp_path, TEMPLATE, "deltacompact:0.2.0", node_types=("r6in.4xlarge",))
    assert set(both.launchers) == set(both.in_background) == {"ray_cluster", "kuberay"}
    for each in both.launchers.values():
        assert each._options.environment["DELTACOMPACT_S3_KMS_KEY_ID"] == "k", "files must be encrypted by it there"
    assert {(offer.launcher, offer.node.name, offer.nodes_max) for offer in both.offers} == {
        ("ray_cluster", "r6in.4xlarge", 8),
        ("kuberay", "r6in.4xlarge", 8),
    }
    assert both.prices_dated
    dear = replace(both, on_demand=True)
    assert min(offer.usd_per_h for offer in dear.offers) > max(offer.usd_per_h for offer in both.offers)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kuberay": "image", "state_uri": "/srv/state"}, "want a state on S3"),
        ({"kuberay": "image", "node_types": ("m1.tiny",)}, "no price for 'm1.tiny'"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(tmp_path: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        _ = Clusters(**{"max_workers": 8, "state_uri": STATE, "folder": tmp_path, **options}).offers  # type: ignore


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is no mapping"),
        ("[a, b]", "it is no mapping"),
        ("a: [", "YAML|expected|parsing"),
        ("provider: {type: aws}", "it lacks 'available_node_types'"),
        ("available_node_types: {head: {}, worker: {}}", "it lacks 'node_config'"),
        ("available_node_types: []", "it has not the form of cluster.yaml"),
        ("available_node_types: {head: , worker: 1}", "it has not the form of cluster.yaml"),
    ],
)
def test_a_template_that_no_cluster_can_be_made_of_is_refused_at_once(tmp_path: Path, text: str, said: str) -> None:
    """Each job run was tried for six hours: the error came in a thread, as one of the launch."""
    template = tmp_path / "cluster.yaml"
    template.write_text(text)
    with pytest.raises(InputError, match=said) as refused:
        _ = Clusters(8, STATE, tmp_path, str(template)).launchers
    assert str(template) in str(refused.value) and "\n" not in str(refused.value)


def test_clusters_that_ray_cannot_bring_up_are_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray up` failed for each group, and nothing was said at the start."""
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "ray.dashboard.optional_deps", raising=False)
    with pytest.raises(InputError, match=r"pip install 'ray\[default\]'"):
        _ = Clusters(8, STATE, tmp_path, TEMPLATE).launchers
    assert "'ray[default]'" in (Path(TEMPLATE).parent / "deploy" / "Dockerfile").read_text(), "the pods' image"


EMBEDDING = """
import os, pathlib, signal, sys, time
from multiprocessing import forkserver
import pandas
from kube_groups import group
from sessions.launchers.launcher import GroupState
from sessions.launchers.local import LocalLauncher
from small_groups import telling_its_heap

if __name__ == "__main__":
    launcher, spec = LocalLauncher(pathlib.Path(sys.argv[1]), telling_its_heap), group("run-1.3.g2.1")
    server = forkserver._forkserver._forkserver_pid
    os.kill(server, signal.SIGINT)  # Ctrl-C in a terminal reaches it as well
    launcher.launch(spec)
    while (told := launcher.status(spec.id)).state is GroupState.RUNNING:
        time.sleep(0.05)
    print(told.exit_status, forkserver._forkserver._forkserver_pid == server, launcher.logs(spec.id))
    launcher.close()
"""


def test_a_program_of_somebody_else_that_imports_pandas_runs_groups(tmp_path: Path) -> None:
    """A new process imports the program that started it, but has a heap of ours. Ctrl-C while the fork server imported
    what it needs ended it, with a traceback."""
    program = tmp_path / "embedding.py"
    program.write_text(EMBEDDING)
    here = Path(__file__).parent
    path = os.pathsep.join(map(str, (here, here.parents[1] / "support", here.parents[2])))
    command = [sys.executable, str(program), str(tmp_path / "logs")]
    environment = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT} | {"PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"0 True run-1 system {ENVIRONMENT['MALLOC_ARENA_MAX']} set()"), done.stdout
    assert "KeyboardInterrupt" not in done.stderr

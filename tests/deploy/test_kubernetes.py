"""What is applied to Kubernetes: rendered by kubectl, held against the API's schemas, and its commands are ours.

deploy/kubernetes/base          dispatchers, watcher, upkeep, accounts         strict: an unknown field is an error
deploy/kubernetes/monitored     the same with Prometheus's operator and Grafana
"""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path

import click
import kubernetes_validate
import pytest
import yaml
from kube_api import Kind, kube_api
from pyiceberg.utils.config import Config

import deltacompact
from deltacompact.cli import cli
from sessions.cli import cli as sessions_cli
from sessions.watch.policy import read_policies

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
BASE = ROOT / "deploy" / "kubernetes" / "base"
PROGRAMS = {"deltacompact": cli, "deltacompact-sessions": sessions_cli}


@functools.cache
def rendered(name):
    version = subprocess.run(
        ["kubectl", "version", "--client", "--output=json"], check=True, capture_output=True
    ).stdout
    folder = ROOT / "deploy" / "kubernetes" / name
    if "kustomizeVersion" not in json.loads(version):  # Debian's kubectl has the Kustomize of 2019
        return list(assembled(folder.resolve()))
    command = ["kubectl", "kustomize", str(folder)]
    return list(yaml.safe_load_all(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def assembled(folder):
    """The manifests of a Kustomization as they stand, with its maps and the tag of its image."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    tags = {image["name"]: image["newTag"] for image in kustomization.get("images", ())}
    for place in (*kustomization["resources"], *kustomization.get("components", ())):
        if (folder / place).is_dir():
            yield from assembled((folder / place).resolve())
            continue
        text = (folder / place).read_text()
        for image, tag in tags.items():
            text = text.replace(f"image: {image}\n", f"image: {image}:{tag}\n")
        yield from yaml.safe_load_all(text)
    for made in kustomization.get("configMapGenerator", ()):
        data = {file: (folder / file).read_text() for file in made.get("files", ())}
        for file in made.get("envs", ()):
            lines = (folder / file).read_text().splitlines()
            data |= dict(line.split("=", 1) for line in lines if not line.startswith("#"))
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": made["name"]}, "data": data}


@pytest.mark.parametrize("name", ["base", "monitored"])
def test_rendered_and_assembled_have_the_same_objects(name):
    by_hand = list(assembled((ROOT / "deploy" / "kubernetes" / name).resolve()))
    assert sorted(manifest["kind"] for manifest in by_hand) == sorted(manifest["kind"] for manifest in rendered(name))
    assert {who for who, _ in pods(by_hand)} == {who for who, _ in pods(rendered(name))}


def pods(manifests):
    """The specs of all pods by the name of what has them."""
    for manifest in manifests:
        spec = manifest.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template:
            yield manifest["metadata"]["name"], template["spec"]


def known_fields(manifest):
    """What the schemas of Kubernetes have against a manifest; those of Prometheus's operator are not among them."""
    if manifest["apiVersion"].startswith("monitoring.coreos.com/"):
        return []
    try:
        kubernetes_validate.validate(manifest, "1.34", strict=True)
    except kubernetes_validate.ValidationError as refused:
        return [refused.message]
    return []


def of_kind(manifests, kind):
    return [manifest for manifest in manifests if manifest["kind"] == kind]


@pytest.mark.parametrize("name", ["base", "monitored"])
def test_the_api_knows_every_field(name):
    for manifest in rendered(name):
        if not manifest["apiVersion"].startswith("monitoring.coreos.com/"):  # of Prometheus's operator
            kubernetes_validate.validate(manifest, "1.34", strict=True)


def test_a_field_that_the_api_does_not_know_is_found():
    (disruption,) = of_kind(rendered("base"), "PodDisruptionBudget")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(disruption | {"spec": {"maxUnavailabel": 1}}, "1.34", strict=True)


_GROUPS = {
    "": ("Service", "ServiceAccount", "ConfigMap"),
    "apps": ("Deployment",),
    "batch": ("CronJob",),
    "policy": ("PodDisruptionBudget",),
    "rbac.authorization.k8s.io": ("Role", "RoleBinding"),
    "monitoring.coreos.com": ("PrometheusRule", "ServiceMonitor"),
}
KINDS = [
    Kind(group, "v1", kind, f"{kind.lower()}s", known_fields) for group, kinds in _GROUPS.items() for kind in kinds
]


@pytest.mark.parametrize("name", ["base", "monitored"])
def test_kubectl_applies_everything_and_a_second_time_nothing_changes(name, tmp_path):
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(yaml.safe_dump_all(rendered(name)))
    with kube_api(KINDS) as api:
        server = ["--server", api.url, "--cache-dir", str(tmp_path), "--kubeconfig", "/dev/null"]

        def applied(file):
            return subprocess.run(["kubectl", *server, "apply", "-f", str(file)], capture_output=True, text=True)

        done = applied(manifests)
        assert done.returncode == 0, done.stderr
        stored = {(kind.kind, name) for kind in KINDS for name in api.stored[kind.plural]}
        assert stored == {(manifest["kind"], manifest["metadata"]["name"]) for manifest in rendered(name)}
        calls = list(api.calls)
        again = applied(manifests)
        assert again.returncode == 0 and api.calls == calls, again.stdout + again.stderr
        misspelt = yaml.safe_load(yaml.safe_dump(of_kind(rendered(name), "PodDisruptionBudget")[0]))
        misspelt["metadata"]["name"], misspelt["spec"] = "other", {"maxUnavailabel": 1}
        manifests.write_text(yaml.safe_dump(misspelt))
        refused = applied(manifests)
        assert refused.returncode == 1 and "maxUnavailabel" in refused.stderr


def test_every_command_is_one_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it read the environment when it was imported
    settings = next(
        manifest["data"] for manifest in of_kind(rendered("base"), "ConfigMap") if "QUEUE" in manifest["data"]
    )
    settings |= {"NAMESPACE": "deltacompact"}
    names = {name for name, _ in pods(rendered("base"))}
    assert names == {f"deltacompact-{what}" for what in ("dispatcher", "watcher", "vacuum", "maintain", "expire")}
    for _, spec in pods(rendered("base")):
        (container,) = spec["containers"]
        for key, value in settings.items():
            container["args"] = [text.replace(f"$({key})", value) for text in container["args"]]
        program, *arguments = container["args"]
        assert not any("$(" in text for text in arguments)
        command = PROGRAMS[program]
        while isinstance(command, click.Group):
            name, *arguments = arguments
            command = command.get_command(click.Context(command), name)
        arguments = [text.replace("/etc/deltacompact", str(BASE)) for text in arguments]
        command.make_context(name, arguments)  # raises UsageError for what the command does not know


def test_no_pod_is_root_and_each_has_its_limits():
    for name, spec in pods(rendered("base")):
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"], name
        assert container["securityContext"]["readOnlyRootFilesystem"], name
        assert container["resources"]["limits"]["memory"], name
        assert container["image"] == f"deltacompact:{deltacompact.__version__}", name
        references = [next(iter(source)) for source in container["envFrom"]]
        assert references == ["configMapRef", "secretRef"], "secrets come by reference"


def test_each_service_finds_its_pods_and_prometheus_the_services():
    manifests = rendered("monitored")
    services, (monitor,) = of_kind(manifests, "Service"), of_kind(manifests, "ServiceMonitor")
    deployments = {
        manifest["metadata"]["name"]: manifest["spec"]["template"] for manifest in of_kind(manifests, "Deployment")
    }
    served = {"deltacompact": "deltacompact-dispatcher", "deltacompact-watcher": "deltacompact-watcher"}
    assert {service["metadata"]["name"] for service in services} == served.keys()
    for service in services:
        pod = deployments[served[service["metadata"]["name"]]]
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        (container,), (port,) = pod["spec"]["containers"], service["spec"]["ports"]
        assert port["targetPort"] in {port["name"] for port in container["ports"]}
        assert f"--port={container['ports'][0]['containerPort']}" in container["args"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} == {port["name"]}


def test_the_policies_of_the_watcher_are_policies():
    read = read_policies(str(BASE / "policies.toml"))
    assert [policy.name for policy in read.policies] == ["orders"]

"""Groups that are launched by KubeRay, on a stand-in for the API server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kube_api import KubeApi, kube_api

from sessions.launchers.kuberay import KubeOptions, KubeRayLauncher
from sessions.launchers.launcher import GroupSpec
from sessions.planning.prices import read_prices

PRICES = read_prices()
OPTIONS = KubeOptions("registry.example/deltacompact:0.2.0", "2.60.0", "compaction", "deltacompact")
STATE = "s3://lake/compaction-state"


def group(id_: str = "run-1.3.g1.1", **changes: Any) -> GroupSpec:
    spec = GroupSpec(id_, STATE, "run-1", "g1", 3, "ray", "kuberay", "r6in.4xlarge", 2, 8, 4 << 30)
    return replace(spec, **changes)


@pytest.fixture
def api() -> Iterator[KubeApi]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    with kube_api() as running:
        yield running


@pytest.fixture
def launcher(api: KubeApi, tmp_path: Path) -> KubeRayLauncher:
    options = ("--server", api.url, "--cache-dir", str(tmp_path), "--kubeconfig", "/dev/null")
    return KubeRayLauncher(PRICES, STATE, OPTIONS, ("kubectl", *options))

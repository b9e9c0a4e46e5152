"""cluster.yaml, held against Ray's own schema and against what hash buckets are sized for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deltacompact.planning.sizing import index_sizes, task_memory

PATH = Path(__file__).parents[2] / "cluster.yaml"


@pytest.fixture
def config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(PATH.read_text())
    return loaded


def test_ray_accepts_it(config: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(config))
    with pytest.raises(Exception, match="idle_timeout"):
        validate_config(prepare_config({**config, "idle_timeout": 3}))


def test_workers_have_the_memory_that_buckets_are_sized_for(config: dict[str, Any]) -> None:
    worker = config["available_node_types"]["worker"]
    cpus, memory_bytes = worker["resources"]["CPU"], 128 * task_memory.GIB
    assert worker["node_config"]["InstanceType"] == "r6in.4xlarge"
    assert memory_bytes / cpus == index_sizes.FIGURE_MEMORY_BYTES
    planned = task_memory.node_memory(memory_bytes)
    assert (worker["resources"]["memory"], worker["resources"]["object_store_memory"]) == planned
    (start,) = [command for command in config["worker_start_ray_commands"] if "ray start" in command]
    given = {name: int(value) for name, value in re.findall(r"--(memory|object-store-memory)=(\d+)", start)}
    assert (given["memory"], given["object-store-memory"]) == planned
    (shared,) = [option for option in config["docker"]["run_options"] if "shm-size" in option]
    assert int(shared.removeprefix("--shm-size=").removesuffix("g")) * 2**30 > planned[1]


def test_only_workers_are_spot_and_nothing_lives_on(config: dict[str, Any]) -> None:
    types = config["available_node_types"]
    assert "InstanceMarketOptions" not in types["head"]["node_config"]
    assert types["worker"]["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot"
    assert types["head"]["resources"]["CPU"] == 0
    assert 0 < config["idle_timeout_minutes"] <= 10 and config["provider"]["cache_stopped_nodes"] is False
    profiles = {name: each["node_config"]["IamInstanceProfile"]["Name"] for name, each in types.items()}
    assert profiles["head"] != profiles["worker"], "only the head may start instances"
    for each in types.values():
        node = each["node_config"]
        assert node["MetadataOptions"]["HttpTokens"] == "required"
        assert {tag["Key"] for tag in node["TagSpecifications"][0]["Tags"]} >= {"project", "cost-center"}

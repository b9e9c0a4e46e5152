"""A cluster without workers gets two while it is waited for: python ray_growing.py CATALOG

Then it has three, of 1, 2 and 2 CPUs, and a compaction that may run one task at a time.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import ray
from ray.cluster_utils import Cluster

import deltacompact
from deltacompact.executors.ray import RayExecutor


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    settings = deltacompact.Settings(executor="ray", ray_address=cluster.address, ray_cpus=3, ray_wait_s=60)
    try:
        RayExecutor(deltacompact.Settings(executor="ray", ray_address=cluster.address, ray_wait_s=1))
    except deltacompact.base.errors.ClusterError as error:
        print(json.dumps({"refused": str(error)}), flush=True)
    with ThreadPoolExecutor(1) as waiting:
        executor = waiting.submit(RayExecutor, settings)
        time.sleep(2)
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
        time.sleep(1)
        assert not executor.done()
        cluster.add_node(num_cpus=2, object_store_memory=100 << 20)
        print(json.dumps({"nodes": sorted(executor.result().capacity.node_slots)}), flush=True)
    more = deltacompact.Settings(executor="ray", ray_address=cluster.address, ray_cpus=64, ray_wait_s=2)
    print(json.dumps({"slots": RayExecutor(more).capacity.slots}), flush=True)
    began_s = time.monotonic()
    RayExecutor(replace(more, ray_wait_s=60))
    print(json.dumps({"waited again": time.monotonic() - began_s > 30}), flush=True)
    cluster.add_node(num_cpus=2, object_store_memory=100 << 20)
    one = replace(settings, concurrent_tasks=1)
    print(json.dumps({"one at a time": RayExecutor(one).capacity.node_slots}), flush=True)
    catalog = deltacompact.open_catalog(sys.argv[1])
    deltacompact.compact("t", delta_catalog_client=catalog, settings=one, rows_per_compacted_file=50_000)
    ray.shutdown()  # before its nodes end: a driver whose own node ends is ended, too
    cluster.shutdown()


if __name__ == "__main__":
    main()

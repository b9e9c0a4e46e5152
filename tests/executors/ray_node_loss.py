"""A compaction on a cluster of three nodes of which one is lost while a stage runs: python ray_node_loss.py CATALOG"""

from __future__ import annotations

import os
import sys
import threading
import time

import ray
from ray.cluster_utils import Cluster

import deltacompact
from deltacompact.base.events import StageStarted


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=200 << 20) for _ in range(2)]
    cluster.wait_for_nodes()
    os.environ["RAY_ADDRESS"] = cluster.address
    ray.init(address=cluster.address, log_to_driver=False)
    lost: list[str] = []

    def lose_a_node(event: object) -> None:
        if isinstance(event, StageStarted) and event.stage == "dedupe" and not lost:
            lost.append(event.stage)
            threading.Thread(target=remove).start()

    def remove() -> None:
        time.sleep(0.2)
        cluster.remove_node(nodes[0], allow_graceful=False)
        print("node lost during dedupe", flush=True)

    deltacompact.compact(
        "t",
        delta_catalog_client=deltacompact.open_catalog(sys.argv[1]),
        settings=deltacompact.Settings(executor="ray"),
        event_sinks=[lose_a_node],
        rows_per_compacted_file=50_000,
    )
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()

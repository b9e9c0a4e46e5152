"""A compaction in a process of its own, for tests that kill it: says each stage as it begins, and the result as JSON.

python ray_driver.py CATALOG TABLE --address A --stop-at dedupe        stands still when dedupe begins
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import deltacompact
from deltacompact.base.events import StageStarted
from deltacompact.cli.result_report import result_document


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("catalog")
    parser.add_argument("table")
    parser.add_argument("--address")
    parser.add_argument("--executor", default="ray")
    parser.add_argument("--stop-at")
    parser.add_argument("--rows-per-round", type=int)
    parser.add_argument("--object-store-bytes", type=int)
    given = parser.parse_args()

    def say(event: object) -> None:
        if isinstance(event, StageStarted):
            print(f"stage {event.stage}", flush=True)
            if event.stage == given.stop_at:
                time.sleep(0.3)  # its tasks are under way
                print("stopped", flush=True)
                time.sleep(600)

    settings = deltacompact.Settings(
        executor=given.executor,
        ray_address=given.address,
        rows_per_round=given.rows_per_round,
        object_store_bytes=given.object_store_bytes,
    )
    catalog = deltacompact.open_catalog(given.catalog)
    result = deltacompact.compact(
        given.table, delta_catalog_client=catalog, settings=settings, event_sinks=[say], rows_per_compacted_file=200_000
    )
    json.dump(result_document(result), sys.stdout, default=str)


if __name__ == "__main__":
    main()

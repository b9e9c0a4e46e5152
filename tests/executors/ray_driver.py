"""Compactions in a process of their own, for tests that kill it: says each stage as it begins, and the results as JSON.

python ray_driver.py CATALOG t --address A --stop-at dedupe         stands still when dedupe begins
python ray_driver.py CATALOG t u:1000000        t, then u with so many rows a round, on one cluster
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
    parser.add_argument("tables", nargs="+", metavar="TABLE[:ROWS_PER_ROUND]")
    parser.add_argument("--address")
    parser.add_argument("--executor", default="ray")
    parser.add_argument("--stop-at")
    parser.add_argument("--object-store-bytes", type=int)
    given = parser.parse_args()

    def say(event: object) -> None:
        if isinstance(event, StageStarted):
            print(f"stage {event.stage}", flush=True)
            if event.stage == given.stop_at:
                time.sleep(0.3)  # its tasks are under way
                print("stopped", flush=True)
                time.sleep(600)

    catalog, results = deltacompact.open_catalog(given.catalog), {}
    for named in given.tables:
        table, _, rows_per_round = named.partition(":")
        settings = deltacompact.Settings(
            executor=given.executor,
            ray_address=given.address,
            rows_per_round=int(rows_per_round) if rows_per_round else None,
            object_store_bytes=given.object_store_bytes,
        )
        result = deltacompact.compact(
            table, delta_catalog_client=catalog, settings=settings, event_sinks=[say], rows_per_compacted_file=200_000
        )
        results[table] = result_document(result)
    json.dump(results, sys.stdout, default=str)


if __name__ == "__main__":
    main()

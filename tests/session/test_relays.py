"""Relays between hash bucket and dedupe: many nodes get the same rows, and the driver names fewer parcels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltacompact
from deltacompact import Settings, compact
from deltacompact.base.events import StageStarted
from deltacompact.base.limits import Limits

NODES = (1, 2, 1, 1, 1)


def compacted(folder: Path, relay_nodes_min: int, threads: int) -> tuple[list[int], list[dict[str, Any]]]:
    """The tasks of the hash bucket stages of two compactions, and the live rows."""
    catalog = deltacompact.open_catalog(folder)
    catalog.create_table("t", primary_keys=["id"])
    tasks: list[int] = []

    def note(event: Any) -> None:
        if isinstance(event, StageStarted) and event.stage == "hash_bucket":
            tasks.append(event.tasks)

    limits = Limits(
        relay_nodes_min=relay_nodes_min,
        local_nodes=NODES,
        task_rows_max=2,
        groups=12,
        results_max=3,
        small_rows_per_bucket=2,
    )
    for start in (0, 10):
        catalog.append("t", pa.table({"id": range(start, start + 40), "value": range(start, start + 40)}))
        catalog.append("t", pa.table({"id": range(start, start + 40, 7)}), operation="delete")
        settings = Settings(executor="local", local_threads=threads, limits=limits, rows_per_round=50)
        compact("t", delta_catalog_client=catalog, settings=settings, event_sinks=[note])
    return tasks, catalog.read("t").sort_by("id").to_pylist()


@pytest.mark.parametrize("threads", [1, 2])
def test_relays_change_no_row(tmp_path: Path, threads: int) -> None:
    (tmp_path / "direct").mkdir()
    (tmp_path / "relayed").mkdir()
    direct, rows = compacted(tmp_path / "direct", len(NODES) + 1, threads)
    relayed, same = compacted(tmp_path / "relayed", len(NODES), threads)
    live = sorted({*range(10)} - {0, 7} | {*range(10, 50)} - {*range(10, 50, 7)})
    assert rows == same == [{"id": number, "value": number} for number in live]
    assert len(relayed) == 2 * len(direct), "each stage has its relays"
    assert relayed[::2] == direct
    parcels, each = 3, 3
    assert relayed[1::2] == [parcels * -(-senders // (each * max(4, senders // 2))) for senders in direct]

"""demo: three job runs with their SLAs, on this machine alone."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import tempfile
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sessions.overview.overview import OverviewReader

TABLES = {"orders": (4, 60), "visits": (2, 120), "returns": (3, 5)}
"""Partitions, and the desired SLA in seconds."""


@click.command()
@click.option(
    "--folder", metavar="FOLDER", help="Where the tables, the queue and the state go. Default: a temporary folder."
)
@click.option(
    "--rows", type=click.IntRange(min=100), default=200_000, show_default=True, metavar="N", help="Rows of a partition."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="P", help="Port of the page. Default: any free one."
)
@click.option("--stay/--no-stay", default=None, help="Keep the page up until Ctrl-C. Default: on a terminal.")
def demo(folder: str | None, rows: int, port: int, stay: bool | None) -> None:
    """Run three job runs on this machine.

    It makes three tables and a queue in a folder, starts a dispatcher and its page, and prints the page's address.

    \b
    deltacompact-sessions demo --rows 1000000
    """
    with contextlib.ExitStack() as stack:
        root = Path(folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="deltacompact-sessions-")))
        run_demo(root.absolute(), rows, port, sys.stdout.isatty() if stay is None else stay)


def run_demo(root: Path, rows: int, port: int, stay: bool) -> None:
    from deltacompact.cli.console import out
    from sessions.base.settings import DispatcherSettings
    from sessions.cli.dispatch import dispatcher_of
    from sessions.cli.live import watch_live
    from sessions.cli.printed import print_whole
    from sessions.cli.sla import report
    from sessions.cli.watched import couriered, served
    from sessions.events.recording import EventRecorder
    from sessions.overview.overview import OverviewReader
    from sessions.records.state_store import StateStore

    logging.getLogger("sessions").setLevel(logging.WARNING)
    _fill(str(root / "lake"), rows)
    recorder = EventRecorder(StateStore(str(root / "state")))
    settings = DispatcherSettings(drain=True)
    dispatcher = dispatcher_of(
        str(root / "queue"), str(root / "state"), (str(root / "lake"),), settings, observer=recorder
    )
    once = uuid.uuid4().hex[:6]  # in a folder of an earlier demo, its ids are taken
    for table, (_, desired_sla) in TABLES.items():
        document = {
            "version": 1,
            "job_run_id": f"demo-{table}-{once}",
            "catalog": str(root / "lake"),
            "source_table_id": table,
            "desired_sla": desired_sla,
        }
        dispatcher.queue.send(json.dumps(document), table)
    reader = OverviewReader(dispatcher.state, dispatcher.queue)
    with (
        served(dispatcher.state, dispatcher.queue, port) as page,
        couriered(dispatcher.state, recorder, None, dispatcher.clock),
    ):
        assert page is not None
        out.print(f"the page is at {page.address}")
        working = threading.Thread(target=dispatcher.run, name="dispatcher")
        working.start()
        try:
            if out.is_terminal:
                _until_accepted(reader, working)
                watch_live(reader, out, until_all_ended=True)
            working.join()
            for part in report(reader.read(), with_sessions=True):
                print_whole(part)
            if stay:
                out.print(f"\nthe page stays at {page.address} until Ctrl-C")
                threading.Event().wait()
        except KeyboardInterrupt:
            out.print("stopping")
        finally:
            dispatcher.stop()
            dispatcher.stop()
            working.join()


def _fill(lake: str, rows: int) -> None:
    """Three tables by day, each partition with an upsert of all keys, one of some, and a delete of a few."""
    import numpy as np
    import pyarrow as pa

    from deltacompact.catalog.delta_streams import open_catalog

    catalog = open_catalog(lake)
    random = np.random.default_rng(7)
    for table, (partitions, _) in TABLES.items():
        catalog.create_table(table, partition_keys=["day"], primary_keys=["id"])
        for day in range(partitions):
            partition = {"day": f"2024-01-{day + 1:02d}"}
            for share, operation in ((1.0, "upsert"), (0.3, "upsert"), (0.02, "delete")):
                keys = np.sort(random.choice(rows, max(1, int(rows * share)), replace=False))
                values = {} if operation == "delete" else {"total": random.random(len(keys))}
                catalog.append(table, pa.table({"id": keys, **values}), partition, operation)


def _until_accepted(reader: OverviewReader, working: threading.Thread) -> None:
    """Wait until the three job runs are accepted, or the dispatcher ended."""
    while working.is_alive() and len(reader.read().job_runs) < len(TABLES):
        working.join(0.2)

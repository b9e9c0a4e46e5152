"""watch: policies submit job runs."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import click

from deltacompact.base.printable import printable
from sessions.cli.options import host_option, json_option, only_with, port_option, queue_option, state_option

if TYPE_CHECKING:
    from deltacompact.base.errors import DeltaCompactError
    from sessions.page.server import Server
    from sessions.watch.watcher import Decided, Watcher


@click.command()
@queue_option
@state_option
@click.option("--policies", required=True, metavar="FILE", help="Policies in TOML, or in JSON (.json).")
@click.option("--once", is_flag=True, help="Look once, print every decision with its reason, and end.")
@port_option("/metrics, with gauges of the tables, and /healthz")
@host_option
@json_option
def watch(queue: str, state: str, policies: str, once: bool, port: int | None, host: str, as_json: bool) -> int:
    """Look at tables, and submit job runs by policies.

    A policy says when: so many deltas, their age, small files, a schedule, a sealed partition; of an Iceberg table also
    delete files, dead rows and new bytes. Every decision is kept with its reason below the state, also a decision to do
    nothing, and logged when it changes. Any number of watchers may share a state: a stream never has two job runs at
    once. With --once, the exit status is 1 if a table could not be looked at.

    \b
    deltacompact-sessions watch --policies policies.toml --queue /srv/queue --state /srv/state --once
    """
    from sessions.base.logs import log_json
    from sessions.base.signals import handled
    from sessions.queues.opening import open_queue
    from sessions.records.state_store import StateStore
    from sessions.watch.policy import read_policies
    from sessions.watch.watcher import Watcher

    only_with("--once", once, "--json")
    only_with("--port", port is not None, "--host")
    told = read_policies(policies)
    if not once:
        log_json(watcher=policies)
    watcher = Watcher(told, StateStore(state), open_queue(queue))
    if once:
        _print(watcher.look(), watcher.failed, as_json)
        return 1 if watcher.failed else 0
    stopping = threading.Event()
    with handled(stopping.set), _gauges(watcher, told.every, port, host):
        watcher.run(stopping)
    return 0


def _gauges(watcher: Watcher, every_s: float, port: int | None, host: str) -> AbstractContextManager[Server | None]:
    """The gauges of its tables are served in this block, where a port is given."""
    if port is None:
        return nullcontext()
    from sessions.page.gauges import GaugesServer
    from sessions.page.server import listening

    def gauges(port: int) -> Server:
        return GaugesServer(lambda: watcher.seen, every_s, clock=watcher.clock, host=host, port=port)

    return listening("the gauges", port, host, gauges)


def _print(decided: list[Decided], failed: dict[tuple[str, str], DeltaCompactError], as_json: bool) -> None:
    """The decisions; why a table could not be looked at is logged, and is in the document."""
    from deltacompact.base.wording import error_document
    from deltacompact.cli.answers import say_json
    from sessions.cli.printed import plain_table, print_whole
    from sessions.page.documents import partition_label

    if as_json:
        errors = [
            {"catalog": catalog, "table": table, **error_document(error)} for (catalog, table), error in failed.items()
        ]
        say_json({"decisions": [verdict.document() for verdict in decided], "errors": errors})
        return
    if not decided:
        return
    table = plain_table("table", "partition", "policy", "decision", "reason", "why", "job run")
    for verdict in decided:
        said = verdict.decision
        partition = printable(partition_label(verdict.partition))
        job_run = verdict.job_run_id or ""
        table.add_row(
            verdict.table, partition, verdict.policy, said.action.value, said.reason.value, said.text, job_run
        )
    print_whole(table)

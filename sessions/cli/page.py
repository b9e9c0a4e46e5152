"""page: the page on its own, beside dispatchers or after them."""

from __future__ import annotations

import threading

import click

from sessions.cli.options import dead_letters_option, host_option, only_with, port_option, state_option


@click.command()
@state_option
@click.option(
    "--queue", metavar="QUEUE", help="Show the messages of this queue, too: a directory, or the URL of an SQS queue."
)
@dead_letters_option
@port_option("the page, /metrics and /healthz", 8080)
@host_option
def page(state: str, queue: str | None, dead_letters: str | None, port: int, host: str) -> None:
    """Serve the page of a state, with or without dispatchers.

    It reads records and changes nothing. With --queue it shows waiting messages and dead letters, too.

    \b
    deltacompact-sessions page --state s3://lake/job-runs --port 8080
    """
    from deltacompact.cli.console import err, out
    from sessions.base.signals import handled
    from sessions.cli.printed import no_job_run
    from sessions.cli.watched import served
    from sessions.overview.overview import clock_of
    from sessions.queues.opening import open_queue
    from sessions.records.state_store import StateStore

    only_with("--queue", queue is not None, "--dead-letters")
    store = StateStore(state)
    opened = None if queue is None else open_queue(queue, dead_letters, make=False)
    stopping = threading.Event()
    with handled(stopping.set), served(store, opened, port, host, clock=clock_of(store)) as server:
        assert server is not None
        if store.is_missing:  # a dispatcher may begin it later
            err.print(no_job_run(store), highlight=False, soft_wrap=True)
        out.print(f"the page is at {server.address} until Ctrl-C", highlight=False, soft_wrap=True)
        stopping.wait()

"""dispatch: the composition root of a dispatcher."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sessions.cli.options import allow_option, dead_letters_option, queue_option, state_option

if TYPE_CHECKING:
    from sessions.dispatch.dispatcher import Dispatcher

_MEMORY_SHARE = 0.8
"""Of this machine's memory, what sessions may plan to take."""


@click.command()
@queue_option
@state_option
@allow_option
@click.option("--drain", is_flag=True, help="Work until the queue is empty and every accepted job run has ended.")
@click.option(
    "--max-sessions",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Most sessions at once. Default: one for each CPU of this machine.",
)
@dead_letters_option
@click.option(
    "--lease",
    "lease_s",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="A dispatcher that has not renewed its leases for so long is taken over from.",
)
@click.option(
    "--grace",
    "grace_s",
    type=click.FloatRange(0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="After SIGTERM, what running sessions have to end.",
)
@click.option(
    "--tries",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    metavar="N",
    help="How often a session may fail before its job run has failed.",
)
@click.option(
    "--visibility",
    "visibility_s",
    type=click.FloatRange(1, 43200),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="A message that was received and not accepted within this time is received again.",
)
@click.option("--logs", metavar="FOLDER", help="Where sessions log. Default: below the state, where it is a folder.")
def dispatch(
    queue: str,
    state: str,
    allow: tuple[str, ...],
    drain: bool,
    max_sessions: int | None,
    dead_letters: str | None,
    lease_s: float,
    grace_s: float,
    tries: int,
    visibility_s: float,
    logs: str | None,
) -> None:
    """Run job runs from a queue. Any number of dispatchers may share a queue and a state.

    Each message is accepted once, becomes a job run, and is worked on under a lease. Documents that can never be served
    go to the dead letters, see dlq. SIGTERM drains: running sessions may end, then others take over; a second
    signal stops at once. Whatever dies, nothing is lost and nothing is published twice.

    \b
    deltacompact-sessions dispatch --queue /srv/queue --state /srv/state --drain
    deltacompact-sessions dispatch --queue https://sqs.eu-west-1.amazonaws.com/123456789012/job-runs \\
        --state s3://lake/job-runs --allow s3://lake/tables --max-sessions 8
    """
    from sessions.base.logs import log_json

    log_json(dispatcher=os.getpid())
    dispatcher = dispatcher_of(
        queue, state, allow, drain, max_sessions, dead_letters, lease_s, grace_s, tries, visibility_s, logs
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: dispatcher.stop())
    dispatcher.run()


def dispatcher_of(
    queue_uri: str,
    state_uri: str,
    allow: tuple[str, ...] = (),
    drain: bool = False,
    max_sessions: int | None = None,
    dead_letters: str | None = None,
    lease_s: float = 60.0,
    grace_s: float = 300.0,
    tries: int = 3,
    visibility_s: float = 60.0,
    logs: str | None = None,
) -> Dispatcher:
    """Everything that a dispatcher is made of."""
    import psutil

    from sessions.dispatch.admission import Admission, Budget
    from sessions.dispatch.dispatcher import Dispatcher, DispatcherSettings
    from sessions.dispatch.intake import Intake
    from sessions.dispatch.job_run_work import Retries
    from sessions.dispatch.simple_plan import simple_plan
    from sessions.documents.allow_list import AllowList
    from sessions.launchers.local import LocalLauncher
    from sessions.queues.queue import open_queue
    from sessions.records.state_store import StateStore
    from sessions.runner.group import run_group

    allowed = AllowList(allow)
    queue = open_queue(queue_uri, dead_letters, visibility_s)
    state = StateStore(state_uri)
    memory = int(psutil.virtual_memory().total * _MEMORY_SHARE)
    return Dispatcher(
        queue,
        Intake(queue, state, allowed),
        state,
        simple_plan,
        LocalLauncher(_logs(state, logs), run_group),
        Admission(Budget(max_sessions or os.cpu_count() or 1, memory)),
        DispatcherSettings(ttl_s=lease_s, drain=drain, grace_s=grace_s, retries=Retries(tries)),
    )


def _logs(state: object, asked: str | None) -> Path:
    if asked is not None:
        return Path(asked)
    root = getattr(getattr(state, "store", None), "root", None)
    return root / "logs" if isinstance(root, Path) else Path(tempfile.mkdtemp(prefix="deltacompact-sessions-"))

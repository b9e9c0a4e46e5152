"""dispatch: the composition root of a dispatcher."""

from __future__ import annotations

import logging
import os
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deltacompact.cli.byte_size import ByteSize
from deltacompact.planning.within_memory import MEMORY_BYTES_MIN
from sessions.base.settings import DEFAULTS, HEARTBEAT_S, DispatcherSettings
from sessions.cli.clusters import cluster_options
from sessions.cli.options import (
    allow_option,
    dead_letters_option,
    host_option,
    only_with,
    port_option,
    queue_option,
    seconds_option,
    state_option,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sessions.base.observer import Observer
    from sessions.dispatch.dispatcher import Dispatcher
    from sessions.planning.admission import QuietWindow
    from sessions.records.state_store import StateStore

_LOG = logging.getLogger("sessions")
_PROGRAM = ("sessions.cli",)
"""The process of a group imports the program that started it, in a tenth of a second of CPU."""
_ICEBERG = ("deltacompact.catalog.iceberg",)
"""What sessions on Iceberg tables import besides, in more than a second of CPU."""
_MEMORY_SHARE = 0.8
"""Of this machine's or container's memory, what sessions may take."""


@click.command()
@queue_option
@state_option
@allow_option
@click.option(
    "--drain",
    is_flag=True,
    help="Work until the queue is empty and every accepted job run has ended; exit status 1 if one has failed.",
)
@click.option(
    "--max-sessions",
    type=click.IntRange(1, 10_000),
    default=DEFAULTS.max_sessions,
    metavar="N",
    help="Most groups of sessions at once. Default: one for each CPU of this machine or container.",
)
@click.option(
    "--memory",
    "memory_bytes",
    type=ByteSize(MEMORY_BYTES_MIN),
    metavar="SIZE",
    help="What all sessions on this machine may take together, 2GB or 2GiB. "
    "Default: 80 % of the memory of this machine or container.",
)
@click.option(
    "--max-workers",
    type=click.IntRange(1, 100_000),
    default=DEFAULTS.max_workers,
    show_default=True,
    metavar="M",
    help="Most workers at once, of all clusters together.",
)
@click.option(
    "--quiet",
    multiple=True,
    metavar="WINDOW",
    help='Start nothing in this window: "CRON, MINUTES[, TIME ZONE]", such as "0 8 * * 1-5, 600, Europe/Berlin". '
    "Repeatable.",
)
@cluster_options
@dead_letters_option
@seconds_option(
    "lease",
    DEFAULTS.lease_s,
    1,
    3600,
    "Others take over from a dispatcher that has not renewed its leases for so long.",
)
@seconds_option("grace", DEFAULTS.grace_s, 0, None, "How long running sessions may go on after SIGTERM.")
@click.option(
    "--tries",
    type=click.IntRange(1, 100),
    default=DEFAULTS.tries,
    show_default=True,
    metavar="N",
    help="A session is tried so many times; then its job run has failed.",
)
@seconds_option(
    "give-up-after",
    DEFAULTS.give_up_after_s,
    0,
    None,
    "How long a job run waits for what passes: a catalog that does not answer, expired credentials, no memory.",
)
@seconds_option(
    "stall",
    DEFAULTS.stall_s,
    1,
    None,
    "End a session and try it again if it has recorded nothing for so long and for ten times its expected time.",
)
@port_option("the page, /metrics and /healthz")
@host_option
@click.option("--topic", metavar="ARN", help="SNS topic for events of job runs whose document names none.")
@click.option(
    "--task-token",
    envvar="DELTACOMPACT_TASK_TOKEN",
    metavar="TOKEN",
    help="Token of the Step Functions task that waits on this dispatcher. Default: $DELTACOMPACT_TASK_TOKEN.",
)
@seconds_option(
    "heartbeat",
    HEARTBEAT_S,
    0.1,
    3600,
    "How often to send a heartbeat for the task token: a fifth of the task's HeartbeatSeconds.",
)
@seconds_option(
    "visibility",
    DEFAULTS.visibility_s,
    1,
    43200,
    "After so long, a message that was received and not accepted comes again.",
)
@click.option(
    "--logs",
    metavar="FOLDER",
    help="Where sessions log while they run; the state keeps the end. Default: in the state, whole, if it is a folder.",
)
def dispatch(
    queue: str,
    state: str,
    allow: tuple[str, ...],
    port: int | None,
    host: str,
    topic: str | None,
    task_token: str | None,
    heartbeat_s: float,
    **options: Any,
) -> None:
    """Run job runs from a queue.

    Any number of dispatchers may share a queue and a state. Each message is accepted once and becomes a job run.
    Documents that can never be served become dead letters (see dlq). After SIGTERM the dispatcher starts nothing more,
    lets running sessions end, and leaves the rest to others; a second signal ends it at once. Whatever dies, nothing is
    lost and nothing is published twice.

    \b
    deltacompact-sessions dispatch --queue /srv/queue --state /srv/state --drain
    deltacompact-sessions dispatch --queue https://sqs.eu-west-1.amazonaws.com/123456789012/job-runs \\
        --state s3://lake/job-runs --allow s3://lake/tables --max-sessions 8
    """
    from sessions.base.logs import log_json
    from sessions.base.signals import handled
    from sessions.cli.watched import answering, couriered, served
    from sessions.events.recording import EventRecorder
    from sessions.queues.opening import is_url
    from sessions.records.state_store import StateStore

    only_with("--port", port is not None, "--host")
    only_with("--task-token", task_token is not None, "--heartbeat")
    only_with("--kuberay", options["kuberay"] is not None, "--namespace", "--service-account", "--pod-secret")
    only_with("--ray-clusters or --kuberay", bool(options["ray_clusters"] or options["kuberay"]), "--max-workers")
    settings = DispatcherSettings(**{field.name: options.pop(field.name) for field in fields(DispatcherSettings)})
    recorder = EventRecorder(StateStore(state))
    dispatcher = dispatcher_of(queue, state, allow, settings, observer=recorder, **options)
    log_json(dispatcher=os.getpid())
    if not allow and is_url(queue):
        _LOG.warning("without --allow, documents from %s may name any catalog that this process can reach", queue)
    with (
        handled(dispatcher.stop),
        answering(task_token, heartbeat_s),
        served(dispatcher.state, dispatcher.queue, port, host, dispatcher.wrong, dispatcher.clock),
        couriered(dispatcher.state, recorder, topic, dispatcher.clock),
    ):
        dispatcher.run()
    if settings.drain:
        _check(dispatcher)


def _check(dispatcher: Dispatcher) -> None:
    """For schedulers: exit status 1 if a job run of this dispatcher has failed, or it was stopped before the end."""
    from deltacompact.base.wording import counted
    from sessions.cli.waiting import NotSucceeded

    if failed := dispatcher.failed:
        raise NotSucceeded(f"{counted(len(failed), 'job run')} failed; {failed[0].id}: {failed[0].error}")
    if not dispatcher.drained:
        raise NotSucceeded("it was stopped before the queue was drained: another dispatcher goes on with what is left")


def dispatcher_of(
    queue_uri: str,
    state_uri: str,
    allow: tuple[str, ...] = (),
    settings: DispatcherSettings = DEFAULTS,
    *,
    memory_bytes: int | None = None,
    quiet: tuple[str, ...] = (),
    dead_letters: str | None = None,
    logs: str | None = None,
    observer: Observer | None = None,
    **clusters: Any,
) -> Dispatcher:
    """Everything that a dispatcher is made of. `clusters` are the options of cli/clusters.py."""
    from deltacompact.base import machine
    from deltacompact.executors.ray_address import address_of
    from sessions.base.clock import StoreClock
    from sessions.cli.clusters import Clusters
    from sessions.dispatch.admission import Admission
    from sessions.dispatch.dispatcher import Dispatcher
    from sessions.dispatch.intake import Intake
    from sessions.dispatch.means import Means
    from sessions.documents.allow_list import AllowList
    from sessions.launchers.launchers import Launchers
    from sessions.launchers.local import LocalLauncher
    from sessions.launchers.reaper import Reaper
    from sessions.planning.admission import DispatcherLimits
    from sessions.planning.learning import RateStore
    from sessions.planning.planner import Planner
    from sessions.planning.prices import offers_here
    from sessions.planning.starts import StartStore
    from sessions.queues.opening import open_queue
    from sessions.records.state_store import StateStore
    from sessions.records.swapping import SwappedRecords
    from sessions.runner.group import run_group

    allowed = AllowList(allow)
    windows = quiet_windows(quiet)
    queue = open_queue(queue_uri, dead_letters, settings.visibility_s)
    state = StateStore(state_uri, observer)
    logs_folder = _logs(state, logs)
    ours = Clusters(max_workers=settings.max_workers, state_uri=state.uri, folder=logs_folder, **clusters)
    cpus, memory = machine.cpus(), memory_bytes or int(machine.memory_bytes() * _MEMORY_SHARE)
    sessions_max = settings.max_sessions or cpus
    workers_max = settings.max_workers if ours.launchers else None
    slots = cpus if address_of() is None else None  # a running cluster has CPUs of its own
    clock = StoreClock()
    admission = Admission(DispatcherLimits(sessions_max, workers_max, memory, slots, quiet=windows), clock)
    records = SwappedRecords(state.store)
    rates, starts = RateStore(records), StartStore(records)
    offers = (*offers_here(cpus, memory), *ours.offers)
    preloaded = (*_PROGRAM, *(_ICEBERG if allowed.has_iceberg else ()))
    in_state = state.folder is not None and logs_folder.resolve() == (state.folder / "logs").resolve()
    temporary = logs is None and not in_state
    here = LocalLauncher(logs_folder, run_group, preloaded, in_state, temporary)
    means = Means(
        Planner(rates, starts, offers, sessions_max, ours.prices_dated, lambda: admission.busy_slots, clock=clock),
        Launchers({"local": here, **ours.in_background}, here.ready, here.part_with_log),
        admission,
        rates,
        starts,
        settings,
        clock=clock,
    )
    reapers = [Reaper(launcher) for launcher in ours.launchers.values()]
    return Dispatcher(queue, Intake(queue, state, allowed, clock), state, means, reapers)


def quiet_windows(texts: Iterable[str]) -> tuple[QuietWindow, ...]:
    """Windows as they are written on the command line. Raises InputError."""
    from deltacompact.base.errors import InputError
    from sessions.planning.admission import QuietWindow

    windows = []
    for text in texts:
        cron, *rest = (part.strip() for part in text.rsplit(",", 2))
        # "0 8,9 * * *, 60" has a comma in its cron expression: minutes are the first part that is a number alone.
        if len(rest) == 2 and not rest[0].isdigit():
            cron, rest = f"{cron},{rest[0]}", rest[1:]
        if not rest or not rest[0].isdigit():
            raise InputError(f"--quiet {text!r}: it must be CRON, MINUTES[, TIME ZONE]")
        try:
            windows.append(QuietWindow(cron, int(rest[0]), *rest[1:]))
        except ValueError as error:
            raise InputError(f"--quiet: {error}") from None
    return tuple(windows)


def _logs(state: StateStore, asked: str | None) -> Path:
    """The folder of what sessions print. Raises InputError where it cannot be used."""
    from deltacompact.base.errors import InputError

    if asked is not None:
        folder = Path(asked)
    elif state.folder is not None:
        folder = state.folder / "logs"
    else:
        return Path(tempfile.mkdtemp(prefix="deltacompact-sessions-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder of logs {folder} cannot be used: {error.strerror or error}") from None
    return folder

"""What goes on around a dispatcher: its events go out, its page is served, its node's task token is answered.

records change    ->  EventRecorder puts events into the outbox, Courier sends them
--port            ->  the page, /metrics and /healthz, on loopback unless --host says otherwise
task token        ->  heartbeats to the state machine that launched this node; lost: end at once, publish nothing
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator

from deltacompact.base.wording import one_line
from deltacompact.sinks.sns import TopicArn
from sessions.aws.task_token import TaskToken
from sessions.events.courier import Courier
from sessions.events.recording import EventRecorder
from sessions.overview.overview import OverviewReader
from sessions.page.app import PageServer
from sessions.page.server import LOOPBACK, Server, listening
from sessions.queues.queue import Queue
from sessions.records.state_store import StateStore

_LOG = logging.getLogger("sessions")


@contextlib.contextmanager
def couriered(
    state: StateStore, recorder: EventRecorder, topic: str | None, clock: Callable[[], float]
) -> Iterator[None]:
    """Events go out in this block, to the topics that documents name, or to `topic`. `clock`: the state's, by which
    job runs have ended. Raises InputError where `topic` is not the ARN of one."""
    if topic is not None:
        TopicArn.of(topic)
    courier = Courier(state, topic, recorder, clock=clock)
    courier.start()
    try:
        yield
    finally:
        courier.stop()


@contextlib.contextmanager
def served(
    state: StateStore,
    queue: Queue | None,
    port: int | None,
    host: str = LOOPBACK,
    healthy: Callable[[], str | None] | None = None,
    clock: Callable[[], float] = time.time,
) -> Iterator[Server | None]:
    """The page is served in this block, where a port is given."""

    def page(port: int) -> Server:
        return PageServer(OverviewReader(state, queue, clock), host=host, port=port, healthy=healthy or (lambda: None))

    with listening("the page", port, host, page) as server:
        yield server


@contextlib.contextmanager
def answering(
    token: str | None,
    heartbeat_s: float,
    abandon: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGKILL),
) -> Iterator[None]:
    """The task token is answered in this block: heartbeats, and success where it ends in order.

    Who has been given up must not publish: the process ends where it stands. Its leases run out, and whoever takes over
    fences off what it had started.
    """
    if token is None:
        yield
        return
    answer = TaskToken(token, abandon, heartbeat_s=heartbeat_s, timeout_s=5 * heartbeat_s)
    answer.start()
    try:
        yield
    except BaseException as error:
        _LOG.error("the dispatcher ended: %s", one_line(error))
        raise
    else:
        answer.succeed()

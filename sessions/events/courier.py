"""Sends recorded events to their topics, from one thread of a dispatcher.

    pending/run-1     ->  read run-1, list its events, publish those that are not marked, mark them
                          run-1 has ended: record what a crash kept back, send that too, remove pending/run-1
    the topic fails   ->  run-1 is tried again after 1, 2, 4, … 300 s; no job run waits for its events

Each dispatcher delivers for the job runs that it claimed, and for those that it accepted and nobody has claimed yet.
What was left by one that died is delivered with the next claim, or, where the job run has ended, by whoever finds it a
minute later. So two may send an event each; it has the same id both times.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from deltacompact.base.errors import DeltaCompactError, NotFoundError
from deltacompact.base.wording import one_line
from sessions.base.model import JobRun
from sessions.events.event import EventType
from sessions.events.outbox import Outbox
from sessions.events.recording import EventRecorder, record_missing
from sessions.events.topic import BATCH_MAX, Topic
from sessions.records.state_store import StateStore

logger = logging.getLogger("sessions")

_BACKOFF_FIRST_S, _BACKOFF_MOST_S = 1.0, 300.0
_LOOK_S = 30.0
"""So often a job run is looked at whose events do not say that it has ended."""
_STRAY_S = 60.0
"""So long after its end a job run's events are anybody's."""
_GIVEN_UP_S = 24 * 3600.0
"""What a topic did not take for so long after the end of a job run stays in the record alone."""
_ENDS = (EventType.JOB_RUN_SUCCEEDED, EventType.JOB_RUN_FAILED, EventType.JOB_RUN_CANCELLED)


@dataclass
class _Delivery:
    """How far the events of one job run are: the run as it was last read, what is sent, when to try again."""

    sent: set[str] = field(default_factory=set)
    run: JobRun | None = None
    read_s: float = 0.0
    failures: int = 0
    not_before_s: float = 0.0


class Courier:
    """`default_topic` gets the events of job runs whose document names none; None: they stay in the record.

    `recorder` knows the job runs that this process accepted and claimed; None: all are this courier's.
    """

    def __init__(
        self,
        state: StateStore,
        default_topic: str | None = None,
        recorder: EventRecorder | None = None,
        *,
        interval_s: float = 2.0,
        clock: Callable[[], float] = time.time,
        open_topic: Callable[[str], Topic] = Topic,
    ) -> None:
        self._state = state
        self._outbox = Outbox(state.store)
        self._default_topic = default_topic
        self._interval_s = interval_s
        self._clock = clock
        self._open_topic = open_topic
        self._recorder = recorder
        self._strays_s = 0.0
        self._topics: dict[str, Topic] = {}
        self._deliveries: dict[str, _Delivery] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="courier", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Deliver what is recorded by now, once, and end."""
        self._stopping.set()
        self._thread.join()

    def deliver(self) -> None:
        """Look once at every job run that may have events to send."""
        strays = self._clock() - self._strays_s >= _STRAY_S
        if strays:
            self._strays_s = self._clock()
        for job_run_id in self._outbox.expected():
            if not self._is_ours(job_run_id, strays):
                continue
            delivery = self._deliveries.get(job_run_id)
            if delivery is None:
                delivery = self._deliveries[job_run_id] = _Delivery(self._outbox.sent(job_run_id))
            if self._clock() < delivery.not_before_s:
                continue
            try:
                self._deliver(job_run_id, delivery)
                delivery.failures = 0
            except Exception as error:
                self._failed(job_run_id, delivery, error)

    def _deliver(self, job_run_id: str, delivery: _Delivery) -> None:
        recorded = self._outbox.recorded(job_run_id)
        if delivery.run is None or _says_the_end(recorded, delivery.run) or self._clock() - delivery.read_s > _LOOK_S:
            try:
                delivery.run, delivery.read_s = self._state.job_run(job_run_id).value, self._clock()
            except NotFoundError:  # it is being accepted, or its dispatcher died right then
                return
        run = delivery.run
        if run.state.ended:
            record_missing(self._state, run)
            recorded = self._outbox.recorded(job_run_id)
        topic = self._topic(run)
        if topic is not None:
            self._send(topic, run, recorded, delivery)
        if run.state.ended:
            self._finish(job_run_id)

    def _is_ours(self, job_run_id: str, strays: bool) -> bool:
        recorder = self._recorder
        if recorder is None or job_run_id in recorder.claimed:
            return True
        if job_run_id not in recorder.accepted and not strays:
            return False
        try:
            run = self._state.job_run(job_run_id).value
        except DeltaCompactError:
            return False
        if run.state.ended:
            return self._clock() - (run.finished_s or 0.0) > _STRAY_S
        if run.lease is not None:
            recorder.accepted.discard(job_run_id)  # whoever claimed it delivers
        return job_run_id in recorder.accepted

    def _send(self, topic: Topic, run: JobRun, recorded: set[str], delivery: _Delivery) -> None:
        """Publish what was not sent, the oldest first."""
        unsent = [(name, self._outbox.read(run.id, name)) for name in recorded - delivery.sent]
        unsent.sort(key=lambda event: (json.loads(event[1])["time"], event[0]))
        for start in range(0, len(unsent), BATCH_MAX):
            batch = unsent[start : start + BATCH_MAX]
            taken = topic.publish(run.id, batch)
            if taken:
                self._outbox.mark_sent(run.id, taken)
                delivery.sent |= set(taken)
            if len(taken) < len(batch):
                raise RuntimeError(f"{topic.arn} took {len(taken)} of {len(batch)} events")

    def _failed(self, job_run_id: str, delivery: _Delivery, error: Exception) -> None:
        run, now_s = delivery.run, self._clock()
        if run is not None and run.state.ended and now_s - (run.finished_s or now_s) > _GIVEN_UP_S:
            logger.error("events of job run %s stay in the record alone: %s", job_run_id, one_line(error))
            self._finish(job_run_id)
            return
        delivery.failures += 1
        longest_s = min(_BACKOFF_MOST_S, _BACKOFF_FIRST_S * 2**delivery.failures)
        delivery.not_before_s = now_s + random.uniform(_BACKOFF_FIRST_S, longest_s)
        logger.warning("events of job run %s were not sent: %s", job_run_id, one_line(error))

    def _finish(self, job_run_id: str) -> None:
        self._outbox.done(job_run_id)
        self._deliveries.pop(job_run_id, None)
        if self._recorder is not None:
            self._recorder.claimed.discard(job_run_id)
            self._recorder.accepted.discard(job_run_id)

    def _topic(self, run: JobRun) -> Topic | None:
        arn = run.document.get("sns_event_topic_arn") or self._default_topic
        if arn is None:
            return None
        if arn not in self._topics:
            self._topics[arn] = self._open_topic(arn)
        return self._topics[arn]

    def _work(self) -> None:
        while True:
            stopping = self._stopping.wait(self._interval_s)
            try:
                self.deliver()
            except Exception as error:
                logger.warning("events could not be looked for: %s", one_line(error))
            if stopping:
                return


def _says_the_end(recorded: set[str], run: JobRun) -> bool:
    """Whether an event says that a job run has ended, in the life in which it was read."""
    return any(f"{kind}~~{run.life}" in recorded for kind in _ENDS)

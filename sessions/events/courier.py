"""Sends recorded events to their topics, from one thread of a dispatcher.

    no topic          ->  nothing, until we end run-1, or see with the strays that it is not ours
    pending/run-1     ->  read run-1, list its events, publish the unmarked ones, mark them; while it is open, again as
                          soon as this process has recorded one, and every 30 s: processes of groups record some
                          run-1 has ended: record the events that a crash kept back, send them, remove pending/run-1
    thousands wait    ->  some are read by threads and sent, then the next ones: what was sent stays sent
    the topic fails   ->  run-1 is tried again after 1, 2, 4, … 300 s; no job run waits for its events

A dispatcher delivers the events of job runs that it claimed, and of those that it accepted and nobody has claimed yet.
If a dispatcher dies, the next one that claims its job run delivers; if the job run has ended, any dispatcher does, some
minutes later. So two dispatchers may send the same event; it has the same id both times.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from deltacompact.base.errors import CorruptionError, DeltaCompactError, NotFoundError
from deltacompact.base.partitions import side_by_side
from deltacompact.base.wording import one_line
from sessions.base.model import JobRun
from sessions.base.settings import READ_AT_ONCE
from sessions.events.event import EventType
from sessions.events.outbox import Outbox
from sessions.events.recording import EventRecorder, record_missing
from sessions.events.topic import BATCH_MAX, Topic
from sessions.records.state_store import StateStore

logger = logging.getLogger("sessions")

_DELIVER_EVERY_S = 2.0
_BACKOFF_FIRST_S, _BACKOFF_MOST_S = 1.0, 300.0
_DOUBLED_MAX = 16
"""After so many doublings a wait is the longest. A thousand of them overflow a float."""
_LOOK_S = 30.0
"""How often a job run is read whose events do not show that it has ended, and how often its events are listed."""
_STRAYS_EVERY_S = 300.0
"""How often all marks are listed, to find the events of dispatchers that died. It costs a request."""
_STRAY_S = 60.0
"""After this time since the end of a job run, any dispatcher may deliver its events."""
_GIVEN_UP_S = 24 * 3600.0
"""Events that a topic did not take within this time after the end of a job run are given up: they stay in the
record."""
_PAGE, _LIST_MAX_S = 1000, 60.0
"""For each page of events the next listing comes one round later, so an open job run costs a page a round."""
_READ_MAX = 160
"""How many events are read before they are sent."""
_STOP_WITHIN_S = 20.0
_ENDS = (EventType.JOB_RUN_SUCCEEDED, EventType.JOB_RUN_FAILED, EventType.JOB_RUN_CANCELLED)


@dataclass
class _Delivery:
    """The delivery of one job run's events: which are sent, the job run as last read, when to try again.

    whole      the life whose end was seen, and since then all its events are recorded
    list_s     when the events of an open job run may be listed again
    listed_s   when they were listed last
    """

    sent: set[str] | None = None
    run: JobRun | None = None
    read_s: float = 0.0
    whole: int | None = None
    list_s: float = 0.0
    listed_s: float = 0.0
    failures: int = 0
    not_before_s: float = 0.0


class Courier:
    """Delivers events.

    default_topic    gets the events of job runs whose document names no topic. None: they stay in the record
    recorder         knows the job runs that this process accepted and claimed. None: deliver for all job runs
    """

    def __init__(
        self,
        state: StateStore,
        default_topic: str | None = None,
        recorder: EventRecorder | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._outbox = Outbox(state.store)
        self._default_topic = default_topic
        self._clock = clock
        self._recorder = recorder
        self._strays_s = 0.0
        self._topics: dict[str, Topic] = {}
        self._deliveries: dict[str, _Delivery] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="courier", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Deliver the events recorded so far once more, and end. What does not go out in time is left to others."""
        self._stopping.set()
        self._thread.join(_STOP_WITHIN_S)
        if self._thread.is_alive():
            logger.warning("events are left for other dispatchers: they could not be sent within %g s", _STOP_WITHIN_S)

    def deliver(self) -> None:
        """Send the unsent events of every job run that may have some."""
        strays = abs(self._clock() - self._strays_s) >= _STRAYS_EVERY_S  # abs: a clock may be set back
        if strays:
            self._strays_s = self._clock()
        for job_run_id in self._expected(strays):
            delivery = self._deliveries.setdefault(job_run_id, _Delivery())
            if self._lies_ahead(delivery.not_before_s, _BACKOFF_MOST_S):
                continue
            try:
                if self._is_ours(job_run_id, delivery, strays):
                    self._deliver(job_run_id, delivery)
                delivery.failures = 0
            except Exception as error:
                self._failed(job_run_id, delivery, error)

    def _expected(self, strays: bool) -> list[str]:
        """Job runs that may have events to send: ours, without a listing; with `strays`, all that have a mark."""
        if self._recorder is None or strays:
            expected = self._outbox.expected()
            self._deliveries = {name: self._deliveries[name] for name in expected if name in self._deliveries}
            return expected
        return sorted(self._recorder.claimed | self._recorder.accepted)

    def _deliver(self, job_run_id: str, delivery: _Delivery) -> None:
        run = self._run(job_run_id, delivery)
        if run is None:
            return
        topic = self._topic(run)
        if run.state.ended and delivery.whole != run.life:
            record_missing(self._state, run)
            delivery.whole = run.life
        if topic is not None and (run.state.ended or self._is_to_list(job_run_id, delivery)):
            if delivery.sent is None:
                delivery.sent = self._outbox.sent(job_run_id)
            if self._recorder is not None:
                self._recorder.unlisted.discard(job_run_id)
            recorded = self._outbox.recorded(job_run_id)
            self._send(topic, run, recorded, delivery.sent)
            delivery.listed_s = self._clock()
            delivery.list_s = delivery.listed_s + min(_LIST_MAX_S, len(recorded) // _PAGE * _DELIVER_EVERY_S)
            if not run.state.ended and _says_the_end(recorded, run):
                delivery.read_s = -math.inf  # another dispatcher has ended it: read it at the next look
        if run.state.ended:
            self._finish(job_run_id)

    def _is_to_list(self, job_run_id: str, delivery: _Delivery) -> bool:
        """Whether the events of an open job run are listed now. Before we end they are: a successor may come late."""
        if self._stopping.is_set():
            return True
        if self._lies_ahead(delivery.list_s, _LIST_MAX_S):
            return False
        new = self._recorder is None or job_run_id in self._recorder.unlisted
        return new or not self._lies_ahead(delivery.listed_s + _LOOK_S, _LOOK_S)

    def _lies_ahead(self, at_s: float, most_s: float) -> bool:
        """Whether a time has not come. One further ahead than `most_s` has: the clock was set back since."""
        return 0 < at_s - self._clock() <= most_s

    def _run(self, job_run_id: str, delivery: _Delivery) -> JobRun | None:
        """The job run: as we wrote it last, or as we read it some seconds ago. None: there is no such job run."""
        ours = self._recorder.latest.get(job_run_id) if self._recorder else None
        if ours is not None:
            delivery.run = ours
            delivery.read_s = delivery.read_s or self._clock()
        if ours is not None and ours.state.ended:
            return ours
        if delivery.run is None or not self._lies_ahead(delivery.read_s + _LOOK_S, _LOOK_S):
            try:
                delivery.run, delivery.read_s = self._state.job_run(job_run_id).value, self._clock()
            except NotFoundError:  # it is being accepted, or its dispatcher died right then, or it has expired
                if self._recorder is not None:
                    self._recorder.forget(job_run_id)
                return None
        return delivery.run

    def _is_ours(self, job_run_id: str, delivery: _Delivery, strays: bool) -> bool:
        recorder = self._recorder
        if recorder is None or job_run_id in recorder.claimed:
            return True
        told_nowhere = delivery.run is not None and self._topic(delivery.run) is None
        if not strays and (told_nowhere or job_run_id not in recorder.accepted):
            return False  # where there is nothing to send, it is seen with the strays that somebody has claimed it
        try:
            run = self._run(job_run_id, delivery)
        except DeltaCompactError:
            return False
        if run is None:
            return False
        if run.state.ended:
            return self._clock() - (run.finished_s or 0.0) > _STRAY_S
        if run.lease is not None:
            recorder.forget(job_run_id)  # the dispatcher that claimed it delivers
        return job_run_id in recorder.accepted

    def _send(self, topic: Topic, run: JobRun, recorded: Mapping[str, float], sent: set[str]) -> None:
        """Publish the unsent events, the oldest first."""
        names = sorted(recorded.keys() - sent, key=lambda name: (recorded[name], name))
        for start in range(0, len(names), _READ_MAX):
            some = names[start : start + _READ_MAX]
            read = side_by_side(some, functools.partial(self._event, run), READ_AT_ONCE)
            unsent = [(name, data) for name, data in zip(some, read, strict=True) if data is not None]
            unsent.sort(key=lambda event: (json.loads(event[1])["time"], event[0]))
            for first in range(0, len(unsent), BATCH_MAX):
                self._send_batch(topic, run, unsent[first : first + BATCH_MAX], sent)

    def _send_batch(self, topic: Topic, run: JobRun, batch: Sequence[tuple[str, bytes]], sent: set[str]) -> None:
        taken = topic.publish(run.id, batch)
        if taken:
            self._outbox.mark_sent(run.id, taken)
            sent |= set(taken)
        if len(taken) < len(batch):
            raise RuntimeError(f"{topic.arn} took {len(taken)} of {len(batch)} events")

    def _event(self, run: JobRun, name: str) -> bytes | None:
        """The bytes of an event. None: it is damaged; that is noted, and the others are sent."""
        data = self._outbox.read(run.id, name)
        path = f"job-runs/{run.id}/events/{name}.json"
        try:
            _ = json.loads(data)["time"] < ""
        except (ValueError, LookupError, TypeError, RecursionError):
            self._state.unreadable.note(path, CorruptionError("it is no event"))
            return None
        return data

    def _failed(self, job_run_id: str, delivery: _Delivery, error: Exception) -> None:
        run, now_s = delivery.run, self._clock()
        if run is not None and run.state.ended and now_s - (run.finished_s or now_s) > _GIVEN_UP_S:
            logger.error("events of job run %s stay in the record alone: %s", job_run_id, one_line(error))
            self._finish(job_run_id)
            return
        delivery.failures += 1
        delivery.listed_s = 0.0
        doubled = min(delivery.failures, _DOUBLED_MAX)
        longest_s = min(_BACKOFF_MOST_S, _BACKOFF_FIRST_S * 2**doubled)
        delivery.not_before_s = now_s + random.uniform(_BACKOFF_FIRST_S, longest_s)
        logger.warning("events of job run %s were not sent: %s", job_run_id, one_line(error))

    def _finish(self, job_run_id: str) -> None:
        self._outbox.done(job_run_id)
        self._deliveries.pop(job_run_id, None)
        if self._recorder is not None:
            self._recorder.forget(job_run_id)

    def _topic(self, run: JobRun) -> Topic | None:
        arn = run.document.get("sns_event_topic_arn") or self._default_topic
        if arn is None:
            return None
        if arn not in self._topics:
            self._topics[arn] = Topic(arn)
        return self._topics[arn]

    def _work(self) -> None:
        while True:
            stopping = self._stopping.wait(_DELIVER_EVERY_S)
            try:
                self.deliver()
            except Exception as error:
                logger.warning("events could not be looked for: %s", one_line(error))
            if stopping:
                return


def _says_the_end(recorded: Container[str], run: JobRun) -> bool:
    """Whether a recorded event says that the job run has ended, in this life."""
    return any(f"{kind}~~{run.life}" in recorded for kind in _ENDS)

"""Reads job runs with their sessions, the dispatchers and the queue, at one moment.

    open       all job runs. A session is read again only if a listing shows that its record was replaced
    ended      the latest 1,000 job runs, from their index in one request. Each end of a job run is read only once

So 1,000 sessions that do not change cost a few listings, and 100,000 older job runs cost nothing.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError, PassingError
from deltacompact.base.partitions import side_by_side
from deltacompact.base.wording import one_line
from sessions.base.clock import StoreClock
from sessions.base.model import Delay, DispatcherSign, JobRun, JobRunSession
from sessions.base.settings import READ_AT_ONCE
from sessions.base.troubles import trouble_text
from sessions.planning.turns import held_up
from sessions.queues.queue import Depth, Queue
from sessions.records.decisions import DecisionsReader, KeptDecision
from sessions.records.kept_logs import kept_logs
from sessions.records.state_store import DispatcherReport, StateStore, StoredRecord, ended_mark

_LOG = logging.getLogger("sessions")
ENDED_MAX = 1000
_ENDED_EVERY_S = 30.0
"""How often to look for job runs that were accepted and ended between two overviews."""
_DECISIONS_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class JobRunSeen:
    """One job run with its sessions, in the order of their ids."""

    run: JobRun
    sessions: tuple[JobRunSession, ...]

    @property
    def table(self) -> str:
        return str(self.run.document.get("source_table_id", ""))


@dataclass(frozen=True)
class Overview:
    """An overview.

    job_runs      the latest accepted comes first
    depth         of the queue. None: no queue is known, it does not answer, is gone, or refuses us
    unreadable    objects that were left out, with the reason of each
    """

    at_s: float
    job_runs: tuple[JobRunSeen, ...] = ()
    dispatchers: tuple[DispatcherReport, ...] = ()
    depth: Depth | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def delays(self) -> dict[str, Delay]:
        """Why nobody works on a job run, by its id."""
        return delays_of([seen.run for seen in self.job_runs], [report.dispatcher for report in self.dispatchers_there])

    @property
    def dispatchers_there(self) -> tuple[DispatcherReport, ...]:
        """The dispatchers with a sign of life within the time of a lease."""
        return tuple(report for report in self.dispatchers if report.is_there(self.at_s))

    @property
    def sessions(self) -> tuple[JobRunSession, ...]:
        return tuple(session for seen in self.job_runs for session in seen.sessions)


def delays_of(runs: Iterable[JobRun], dispatchers: Iterable[DispatcherSign]) -> dict[str, Delay]:
    """Why nobody works on a job run, by its id. Without dispatchers, no launcher counts as missing."""
    open_ones = [run for run in runs if not run.state.ended]
    passing = {
        run.id: Delay(run.trouble.cause, trouble_text(run.trouble), run.trouble.again_s)
        for run in open_ones
        if run.trouble is not None
    }
    there = {name for dispatcher in dispatchers for name in dispatcher.launchers}
    return {**passing, **held_up(open_ones, there or {name for run in open_ones for name in run.launchers})}


def clock_of(state: StateStore) -> StoreClock:
    """The clock of the store with the state. If the state is on this machine, or we may not write, this machine's."""
    clock = StoreClock()
    state.tell(clock)
    return clock


class OverviewReader:
    """Reads overviews of one state. Safe to use from several threads, which share what was read.

    `ended_max`: the most ended job runs, the latest first. None: all, which costs a read for each.
    """

    def __init__(
        self,
        state: StateStore,
        queue: Queue | None = None,
        clock: Callable[[], float] = time.time,
        ended_max: int | None = ENDED_MAX,
    ) -> None:
        self._state = state
        self._ended_max = ended_max
        self._queue = queue
        self._queue_is_gone = False
        self._clock = clock
        self._ended: dict[str, JobRunSeen] = {}
        self._open: dict[str, dict[str, StoredRecord[JobRunSession]]] = {}
        self._listed_s: float | None = None
        self._answered_s: float | None = None
        self._decisions: list[KeptDecision] = []
        self._decided_s: float | None = None
        self._deciding = threading.Lock()
        self._decisions_reader = DecisionsReader(state.store, state.unreadable)
        self._lock = threading.Lock()
        self._last: Overview | None = None

    def decisions(self) -> list[KeptDecision]:
        """The last decisions of triggers, read at most every few seconds."""
        with self._deciding:  # not the lock of read: thousands of tables may take a while
            if self._is_older(self._decided_s, _DECISIONS_EVERY_S):
                self._decisions, self._decided_s = self._decisions_reader.read(), self._clock()
            return self._decisions

    @property
    def state_uri(self) -> str:
        return self._state.uri

    @property
    def queue_uri(self) -> str | None:
        return None if self._queue is None else self._queue.uri

    @property
    def named_dead_letters(self) -> str | None:
        return None if self._queue is None else self._queue.named_dead_letters

    def logs(self, job_run_id: str) -> list[str]:
        """The URIs of the logs of a job run's groups, the latest last."""
        return [self._state.uri + path for _, path in kept_logs(self._state.store, job_run_id)]

    def unreadable(self) -> int:
        """The number of objects that were left out so far, because they cannot be read."""
        return len(self._state.unreadable)

    def check(self, at_most_s: float) -> None:
        """Ask the state for a listing, unless it answered in the last `at_most_s` seconds. Raises if it does not
        answer. This waits for no overview: the first one may take minutes."""
        if self._is_older(self._answered_s, at_most_s):
            self._state.open_job_runs()
            self._answered_s = self._clock()

    def read(self, at_most_s: float = 0.0) -> Overview:
        """The records as they are now, or as they were at most `at_most_s` seconds ago."""
        with self._lock:
            if self._last is None or self._is_older(self._last.at_s, at_most_s):
                self._last = self._read()
            return self._last

    def _is_older(self, at_s: float | None, than_s: float) -> bool:
        """Whether something was read longer than `than_s` ago, never, or in the future (a clock was set back)."""
        return at_s is None or not 0 <= self._clock() - at_s < than_s

    def _read(self) -> Overview:
        found = {mark.job_run_id for mark in self._state.open_job_runs()} | set(self._open)
        if self._is_older(self._listed_s, _ENDED_EVERY_S):
            listed = self._listed()
            self._ended = {name: seen for name, seen in self._ended.items() if listed.get(name) == ended_mark(seen.run)}
            found |= listed.keys() - self._ended.keys()
            self._listed_s = self._clock()
        seen = [job_run for job_run in side_by_side(sorted(found), self._job_run, READ_AT_ONCE) if job_run]
        for job_run in seen:
            self._ended.pop(job_run.run.id, None)  # it may run again
            if job_run.run.state.ended:
                self._ended[job_run.run.id] = job_run
                self._open.pop(job_run.run.id, None)
        open_ones = [job_run for job_run in seen if not job_run.run.state.ended]
        everything = sorted([*self._ended.values(), *open_ones], key=lambda job_run: job_run.run.accepted_s)
        dispatchers = tuple(self._state.dispatchers())
        return Overview(
            self._clock(), tuple(reversed(everything)), dispatchers, self._depth(), self._state.unreadable.why
        )

    def _depth(self) -> Depth | None:
        """Job runs go on without their queue, so they are shown. Why it is not there is logged, once until it is."""
        if self._queue is None:
            return None
        try:
            depth = self._queue.depth()
        except (PassingError, InputError) as error:
            if not self._queue_is_gone:
                _LOG.warning("the queue is not shown: %s", one_line(error))
            self._queue_is_gone = True
            return None
        self._queue_is_gone = False
        return depth

    def _listed(self) -> Mapping[str, str]:
        """The latest ended job runs with their marks, at most `ended_max`. Without a limit: every job run, no marks."""
        if self._ended_max is None:
            return dict.fromkeys(self._state.job_run_ids(), "")
        return self._state.recently_ended(self._ended_max)

    def _job_run(self, job_run_id: str) -> JobRunSeen | None:
        """A job run with its sessions. It is read before these: if it has ended, so have they. None: it is being
        accepted, has expired, or cannot be read."""
        try:
            run = self._state.job_run(job_run_id).value
        except NotFoundError:
            self._open.pop(job_run_id, None)
            return None
        except (InputError, CorruptionError) as error:
            self._state.leave_out(job_run_id, error)
            return None
        known_end = self._ended.get(job_run_id)
        if known_end is not None and known_end.run == run:
            return known_end  # only its mark was left behind
        if run.state.ended and job_run_id not in self._open and run.session_ids:
            with contextlib.suppress(InputError, CorruptionError):  # a listing finds the undamaged ones
                sessions = self._state.some_sessions(job_run_id, sorted(run.session_ids))
                return JobRunSeen(run, tuple(sessions))
        known = self._state.changed_sessions(job_run_id, self._open.get(job_run_id, {}))
        self._open[job_run_id] = known
        ours = set(run.session_ids) or set(known)  # sessions of an earlier document are left out
        return JobRunSeen(run, tuple(known[name].value for name in sorted(known) if name in ours))

"""The dispatcher: any number of them share one queue and one state.

    receive   takes messages while there are free places; each message is accepted once, see intake.py
    sweep     claims open job runs without a dispatcher, or whose dispatcher fell silent, see open_job_runs.py
    work      one thread for each job run that we hold, see job_run_work.py
    renew     renews every lease after a third of its time, each in a thread of its own: a slow one holds up no other
    reap      ends clusters that no living job run owns
    say       puts our sign of life, in a thread of its own, so that no sweep delays it. The reply has the store's time

An idle dispatcher makes few requests: a sign of life every 20 s, and a listing of open job runs every 15 s. It claims
at once a job run that it has accepted itself. If a job run waits for one of ours, it begins as soon as ours has ended.

Nothing is kept in memory alone: if a dispatcher is killed, another one continues its work when the leases have run out.
SIGTERM drains: running groups may end, then leases are given back. A second signal ends running groups.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deltacompact.base.errors import CorruptionError, DeltaCompactError, InputError, NotFoundError
from deltacompact.base.wording import counted
from sessions.base.ids import new_owner
from sessions.base.model import DispatcherSign, JobRun, JobRunState
from sessions.base.said_once import SaidOnce
from sessions.dispatch.intake import Intake
from sessions.dispatch.job_run_work import JobRunWork
from sessions.dispatch.means import Means
from sessions.dispatch.open_job_runs import OpenJobRuns
from sessions.launchers.reaper import Reaper
from sessions.queues.queue import Queue
from sessions.records.leases import HeldJobRun, LeaseLostError
from sessions.records.state_store import OpenMark, StateStore

_LOG = logging.getLogger("sessions")
_TICK_S = 0.1
_LONG_POLL_S = 20.0
_POLL_WHEN_DRAINING_S = 1.0
_TROUBLED_FOR_S = 1.0
_SWEEP_EVERY_S, _SWEEP_OF_LEASE = 15.0, 4
"""Open job runs are listed this often, or four times in a lease."""
_SWEEP_WAITING_EVERY_S = 5.0
"""The same while a job run waits for a job run of another dispatcher."""
_SAY_EVERY_S = 20.0
_FORGET_EVERY_S = 3600.0
_REAP_EVERY_S = 60.0
_GIVEN_BACK_FOR_S = 5.0
"""A job run that we gave back is left to other dispatchers for this time."""
_JOB_RUNS_A_SESSION = 2
"""The job runs that we hold for each group that may run: some are planned while others run."""


@dataclass(slots=True)
class _Holding:
    held: HeldJobRun
    thread: threading.Thread
    renewed_s: float
    renewing: SaidOnce
    tried_s: float = -math.inf
    renewal: threading.Thread | None = None

    def is_due(self, every_s: float) -> bool:
        """Whether the lease must be renewed, nobody does that now, and nobody has tried a moment ago."""
        under_way = self.renewal is not None and self.renewal.is_alive()
        now_s, pause_s = time.monotonic(), min(_TROUBLED_FOR_S, every_s / 2)
        is_time = now_s - self.renewed_s >= every_s and now_s - self.tried_s >= pause_s
        return not self.held.lost and not under_way and is_time


class Dispatcher:
    """One dispatcher, with its share of the job runs. `run` returns when it is done, or was told to stop.

    With `drain`, `drained` says whether nothing was left, and `failed` has its job runs that failed.
    """

    def __init__(
        self, queue: Queue, intake: Intake, state: StateStore, means: Means, reapers: Sequence[Reaper] = ()
    ) -> None:
        self.owner = new_owner()
        self.stopping = means.stopping
        self.clock = means.clock
        self.failed: list[JobRun] = []
        self.drained = False
        self.queue = queue
        self._intake = intake
        self.state = state
        self._means = means
        self._launcher = means.launcher
        self._admission = means.admission
        self._reapers = reapers
        self._settings = means.settings
        self._open = OpenJobRuns(self.owner, state, means)
        self._holding: dict[str, _Holding] = {}
        self._lock = threading.Lock()
        self._started_s = time.time()
        self._now_s = 0.0
        self._said_s = -_SAY_EVERY_S
        self._forgot_s = -_FORGET_EVERY_S
        self._sweep_s = 0.0
        self._look_again_s = 0.0
        self._queue_was_empty = threading.Event()
        self._gone = threading.Event()
        self._accepted = threading.Event()
        self._receiving, self._sweeping = SaidOnce("the queue"), SaidOnce("the sweep of open job runs")
        self._claiming: dict[str, SaidOnce] = {}
        self._draining = SaidOnce("the look for what is left")
        self._saying, self._renewing = SaidOnce("the sign of life"), SaidOnce("the renewal of leases")

    def run(self) -> None:
        """Work until told to stop; with `drain`, until nothing is left.

        Raises InputError, before any work, if queue or state cannot be used.
        """
        self.queue.depth()
        self._check_dead_letters()
        self._say()
        sessions = counted(self._admission.limits.sessions_max, "group of sessions", "groups of sessions")
        _LOG.info("serving %s, state %s, at most %s at once", self.queue.uri, self.state.uri, sessions)
        indexing = lambda: self._guarded(SaidOnce("the index of ended job runs"), self.state.index_ended)  # noqa: E731
        for work in (self._receive_for_ever, self._renew_for_ever, self._reap_for_ever, indexing):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()
        saying = threading.Thread(target=self._say_for_ever, name="say", daemon=True)
        saying.start()
        stopped_s: float | None = None
        while True:
            self._forget_ended()
            if self.stopping.gently.is_set():
                if stopped_s is None:
                    stopped_s = time.monotonic()
                    grace_s = self._settings.grace_s
                    _LOG.info("stopping: what runs may end within %g s, another signal ends it now", grace_s)
                if time.monotonic() - stopped_s > self._settings.grace_s:
                    self.stopping.now.set()
                if not self._holding:
                    break
            else:
                self.drained = self._settings.drain and self._is_drained()
                if self.drained:
                    break
                self._sweep()
            time.sleep(_TICK_S)
        self.stopping.gently.set()
        self._launcher.close()
        self._gone.set()
        saying.join(self._settings.lease_s)  # no sign of life may follow the `unsay`
        self._guarded(self._saying, lambda: self.state.unsay(self.owner))

    def _check_dead_letters(self) -> None:
        """Tell that a bad document would come again and again. Nobody who waits for the end of a drain reads a log."""
        why = self.queue.no_dead_letters()
        if why is None:
            return
        said = "As it is, a document that is refused comes again until the queue's retention ends"
        if self._settings.drain:
            raise InputError(f"{why}. {said}, so --drain would not end")
        _LOG.warning("%s. %s", why, said)

    def stop(self) -> None:
        """Stop gently. The second call ends running groups."""
        (self.stopping.now if self.stopping.gently.is_set() else self.stopping.gently).set()

    def wrong(self) -> str | None:
        """Why this dispatcher is not healthy. None: it is. A store that does not answer is a reason, too."""
        silent_s = time.monotonic() - self._said_s
        if self._said_s > 0 and not self.stopping.gently.is_set() and silent_s > self._settings.lease_s:
            return f"this dispatcher could not say for {silent_s:.0f} s that it is there"
        return None

    # Receive

    def _receive_for_ever(self) -> None:
        while not self.stopping.gently.is_set():
            free = self._free()
            if free == 0 or not self._may_receive():
                time.sleep(_TICK_S)
                continue
            try:
                self._receive(free)
                self._receiving.worked()
            except Exception as error:
                self._receiving.failed(error)
                time.sleep(_TROUBLED_FOR_S)

    def _may_receive(self) -> bool:
        """Whether the state may accept: since it last refused a message, it has taken our sign of life."""
        return self._intake.refused_s < self._said_s

    def _receive(self, most: int) -> None:
        wait_s = _POLL_WHEN_DRAINING_S if self._settings.drain else _LONG_POLL_S
        messages = self.queue.receive(most, wait_s)
        if messages:
            self._queue_was_empty.clear()
        for message in messages:
            if self._intake.take(message) is not None:
                self._accepted.set()
        if not messages:
            self._queue_was_empty.set()

    # Sweep

    def _sweep(self) -> None:
        """Sweep, if it is time, and there is a free place."""
        if (time.monotonic() >= self._sweep_s or self._accepted.is_set()) and self._free():
            self._guarded(self._sweeping, self._claim_open)

    def _claim_open(self) -> None:
        """Claim job runs that nobody works on, while there are free places."""
        self._accepted.clear()
        self._sweep_s = time.monotonic() + _TROUBLED_FOR_S
        every_s = min(_SWEEP_EVERY_S, self._settings.lease_s / _SWEEP_OF_LEASE)
        for mark in self._open.unheld(self._holding):
            if not self._free():
                every_s = 0.0  # more job runs wait: sweep again once a place is free
                break
            said = self._claiming.setdefault(mark.job_run_id, SaidOnce(f"the claim of job run {mark.job_run_id}"))
            self._guarded(said, lambda mark=mark: self._claim(mark))  # type: ignore[misc]
        self._claiming = {name: said for name, said in self._claiming.items() if name in self._open.ids}
        if self._open.behind.keys() - self._holding.keys():
            every_s = min(every_s, _SWEEP_WAITING_EVERY_S)
        now_s = time.monotonic()
        self._sweep_s = min(now_s + every_s, max(self._open.next_s, now_s + min(every_s, _TROUBLED_FOR_S)))

    def _claim(self, mark: OpenMark) -> None:
        held = self._open.claimed(mark, self._store_now_s())
        if held is None:
            return
        work = JobRunWork(held, self._means)
        thread = threading.Thread(target=work.run, name=mark.job_run_id, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread is left here: another dispatcher may have one
            held.release()
            raise
        with self._lock:
            renewing = SaidOnce(f"the renewal of job run {mark.job_run_id}")
            self._holding[mark.job_run_id] = _Holding(held, thread, time.monotonic(), renewing)

    def _free(self) -> int:
        return max(0, self._admission.limits.sessions_max * _JOB_RUNS_A_SESSION - len(self._holding))

    def _forget_ended(self) -> None:
        with self._lock:
            for job_run_id, holding in list(self._holding.items()):
                if not holding.thread.is_alive():
                    del self._holding[job_run_id]
                    if set(self._open.ids) - {job_run_id, *self._holding}:
                        self._sweep_s = 0.0  # one of these may have waited for it
                    if self._settings.drain and holding.held.run.state is JobRunState.FAILED:
                        self.failed.append(holding.held.run)
                    if not holding.held.run.state.ended:
                        self._open.leave(job_run_id, _GIVEN_BACK_FOR_S)

    def _is_drained(self) -> bool:
        """Whether the queue is empty, and then no job run is open: a message is acknowledged after its job run is
        recorded."""
        if not self._queue_was_empty.is_set() or self._holding or time.monotonic() < self._look_again_s:
            return False
        self._look_again_s = time.monotonic() + _TROUBLED_FOR_S
        try:
            drained = self.queue.depth().is_empty and not any(map(self._is_open, self.state.open_job_runs()))
        except (DeltaCompactError, OSError) as error:
            self._draining.failed(error)
            return False
        self._draining.worked()
        return drained

    def _is_open(self, mark: OpenMark) -> bool:
        """Whether the job run is open. False if only its mark is left, or if its record is damaged."""
        try:
            return not self.state.job_run(mark.job_run_id).value.state.ended
        except (NotFoundError, CorruptionError):
            return False

    # Reap

    def _reap_for_ever(self) -> None:
        reaping = [(reaper, SaidOnce("the look for clusters without an owner")) for reaper in self._reapers]
        while reaping and not self.stopping.gently.wait(_REAP_EVERY_S):
            for reaper, said in reaping:
                self._guarded(said, lambda reaper=reaper: self._reap(reaper))  # type: ignore[misc]

    def _reap(self, reaper: Reaper) -> None:
        """End orphans. Launched groups are listed before job runs are read, so that each of the list has an owner."""
        listed = reaper.listed()
        job_runs: dict[str, JobRun] = {}
        for job_run_id in {cluster.job_run_id for cluster in listed}:
            try:
                job_runs[job_run_id] = self.state.job_run(job_run_id).value
            except NotFoundError:
                continue
            except CorruptionError as error:  # nobody knows whether it lives, so its clusters stay
                self.state.leave_out(job_run_id, error)
                listed = [cluster for cluster in listed if cluster.job_run_id != job_run_id]
        reaper.sweep(listed, job_runs, time.monotonic())

    # Renew and say

    def _renew_for_ever(self) -> None:
        while not self._gone.wait(min(_TICK_S, self._settings.lease_s / 20)):
            self._guarded(self._renewing, self._renew_due)

    def _renew_due(self) -> None:
        """Begin the renewals that are due. Each may wait for its request, and for a change of its job run."""
        with self._lock:
            due = [holding for holding in self._holding.values() if holding.is_due(self._settings.lease_s / 3)]
        for holding in due:
            holding.tried_s = time.monotonic()
            renewal = threading.Thread(target=self._renew, args=(holding,), name="renew", daemon=True)
            try:
                renewal.start()
            except RuntimeError:  # no thread is left here: one after another is better than none
                self._renew(holding)
            else:
                holding.renewal = renewal

    @staticmethod
    def _renew(holding: _Holding) -> None:
        try:
            holding.held.renew()
            holding.renewed_s = time.monotonic()
            holding.renewing.worked()
        except LeaseLostError:
            pass  # the thread that works on the job run sees it
        except Exception as error:
            holding.renewing.failed(error)

    def _say_for_ever(self) -> None:
        while not self._gone.wait(min(_SAY_EVERY_S, self._settings.lease_s / 3)):
            self._guarded(self._saying, self._say)

    def _store_now_s(self) -> float:
        """The store's time, or less: the time of its last reply, plus the seconds since then by our clock."""
        return self._now_s + (time.monotonic() - self._said_s)

    def _say(self) -> None:
        """Put our sign of life. The reply has the store's time."""
        record = DispatcherSign(
            owner=self.owner,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_s=self._started_s,
            said_s=time.time(),
            queue=self.queue.uri,
            sessions_max=self._admission.limits.sessions_max,
            job_run_ids=tuple(self._holding),
            launchers=self._launcher.names,
            draining=self._settings.drain or self.stopping.gently.is_set(),
            lease_s=self._settings.lease_s,
            allow=self._intake.allowed.prefixes,
        )
        self._now_s = self.state.say(record)
        self._means.clock.told(self._now_s)
        self._said_s = time.monotonic()
        if self._said_s - self._forgot_s >= _FORGET_EVERY_S:
            self.state.forget_dispatchers(self._now_s)
            self._forgot_s = self._said_s

    @staticmethod
    def _guarded(said: SaidOnce, work: Callable[[], None]) -> None:
        """Do the work, and say an error of it: a store that does not answer now may answer later."""
        try:
            work()
        except Exception as error:
            said.failed(error)
        else:
            said.worked()

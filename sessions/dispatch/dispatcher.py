"""The dispatcher: any number of them share one queue and one state.

    receive   messages, while there are free places; each is accepted once, see intake.py
    sweep     job runs that were accepted and that nobody works on, or whose dispatcher fell silent: claimed, where it
              is their turn
    work      a thread for each job run that is held, see job_run_work.py
    renew     every lease, at a third of its time, in a thread of its own
    reap      clusters that no living job run owns
    say       that we are there, which tells the store's time too, in a thread of its own: no sweep holds it up

An idle dispatcher asks the store for little: it says that it is there every 20 s, and lists open job runs every 15 s.
What it accepts itself it claims at once, and a job run that waits for one of ours begins as soon as that has ended.

Nothing is kept in memory alone: a dispatcher that is killed anywhere loses nothing, another one goes on after the
lease's time. SIGTERM drains: running groups may end, then leases are given back. A second signal ends what runs.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from deltacompact.base.errors import CorruptionError, DeltaCompactError, NotFoundError
from deltacompact.base.wording import counted, one_line
from sessions.base.ids import new_owner
from sessions.base.model import DispatcherSign, JobRun, JobRunState
from sessions.base.troubles import told
from sessions.dispatch.intake import Intake
from sessions.dispatch.job_run_work import JobRunWork
from sessions.dispatch.means import Means
from sessions.launchers.reaper import Reaper
from sessions.planning.turns import Turn, missing_launchers
from sessions.queues.queue import Queue
from sessions.records.leases import HeldJobRun, LeaseLostError, Stillness, claim, free_in_s, is_free
from sessions.records.state_store import OpenMark, StateStore

_LOG = logging.getLogger("sessions")
_TICK_S = 0.1
_LONG_POLL_S = 20.0
_POLL_WHEN_DRAINING_S = 1.0
_TROUBLED_FOR_S = 1.0
_SWEEP_EVERY_S, _SWEEP_OF_LEASE = 15.0, 4
"""So often open job runs are listed, or four times in a lease."""
_SWEEP_WAITING_EVERY_S = 5.0
"""The same while one of them waits for another dispatcher's."""
_SAY_EVERY_S = 20.0
_FORGET_EVERY_S = 3600.0
_LOOK_AGAIN_S = 30.0
"""So long a job run is left alone that waits for another one which is still open, or that cannot be read."""
_REAP_EVERY_S = 60.0
_BORN_WITHIN_S = 3600.0
_MISSING_FOR_S = 30.0
_LOOK_FOR_CANCELLING_S = 30.0
_GIVEN_BACK_FOR_S = 5.0
"""A job run that we gave back is for others first."""
_JOB_RUNS_A_SESSION = 2
"""So many job runs are held for each group that may run: the next ones are planned while others run."""


@dataclass(slots=True)
class _Holding:
    held: HeldJobRun
    thread: threading.Thread
    renewed_s: float


class Dispatcher:
    """One process's share of the work. `run` returns once it is done or was told to stop."""

    def __init__(
        self, queue: Queue, intake: Intake, state: StateStore, means: Means, reapers: Sequence[Reaper] = ()
    ) -> None:
        self.owner = new_owner()
        self.stopping = means.stopping
        self.clock = means.clock
        self.failed: list[JobRun] = []
        self.queue = queue
        self._intake = intake
        self.state = state
        self._means = means
        self._launcher = means.launcher
        self._admission = means.admission
        self._reapers = reapers
        self._settings = means.settings
        self._turns: dict[str, Turn] = {}
        self._told: set[str] = set()
        self._holding: dict[str, _Holding] = {}
        self._lock = threading.Lock()
        self._busy_until_s: dict[str, float] = {}
        self._behind: dict[str, str] = {}
        self._stillness = Stillness()
        self._started_s = time.time()
        self._now_s = 0.0
        self._open_ids: list[str] = []
        self._said_s = -_SAY_EVERY_S
        self._forgot_s = -_FORGET_EVERY_S
        self._sweep_s = 0.0
        self._look_again_s = 0.0
        self._queue_was_empty = threading.Event()
        self._gone = threading.Event()
        self._accepted = threading.Event()

    def run(self) -> None:
        """Work until told to stop; with `drain` until nothing is left.

        Raises InputError, before any work, where queue or state cannot be used.
        """
        self.queue.depth()
        self._say()
        sessions = counted(self._admission.limits.sessions_max, "group of sessions", "groups of sessions")
        _LOG.info("serving %s, state %s, at most %s at once", self.queue.uri, self.state.uri, sessions)
        indexing = lambda: self._guarded(self.state.index_ended)  # noqa: E731
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
                if self._settings.drain and self._is_drained():
                    break
                self._guarded(self._sweep)
            time.sleep(_TICK_S)
        self.stopping.gently.set()
        self._launcher.close()
        self._gone.set()
        saying.join(self._settings.lease_s)  # so that nothing is said after it was taken back
        self._guarded(lambda: self.state.unsay(self.owner))

    def stop(self) -> None:
        """Stop gently; the second call ends what runs."""
        (self.stopping.now if self.stopping.gently.is_set() else self.stopping.gently).set()

    def wrong(self) -> str | None:
        """Why this dispatcher is not healthy; None where it is. A store that does not answer is a reason, too."""
        silent_s = time.monotonic() - self._said_s
        if self._said_s > 0 and not self.stopping.gently.is_set() and silent_s > self._settings.lease_s:
            return f"this dispatcher could not say for {silent_s:.0f} s that it is there"
        return None

    # Receive

    def _receive_for_ever(self) -> None:
        while not self.stopping.gently.is_set():
            free = self._free()
            if free == 0:
                time.sleep(_TICK_S)
                continue
            try:
                self._receive(free)
            except DeltaCompactError as error:
                _LOG.warning("the queue could not be asked: %s", one_line(error))
                time.sleep(_TROUBLED_FOR_S)
            except Exception as error:
                _LOG.error("receiving failed: %s", one_line(error), exc_info=True)
                time.sleep(_TROUBLED_FOR_S)

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
        """Claim what nobody works on, while there are free places."""
        if (time.monotonic() < self._sweep_s and not self._accepted.is_set()) or not self._free():
            return
        self._accepted.clear()
        self._sweep_s = time.monotonic() + _TROUBLED_FOR_S
        every_s = min(_SWEEP_EVERY_S, self._settings.lease_s / _SWEEP_OF_LEASE)
        for mark in self._unheld():
            if not self._free():
                every_s = 0.0  # there is more: once a place is free
                break
            self._guarded(lambda mark=mark: self._claim(mark))  # type: ignore[misc]
        if self._behind.keys() - self._holding.keys():
            every_s = min(every_s, _SWEEP_WAITING_EVERY_S)
        next_s = min(self._busy_until_s.values(), default=math.inf)
        self._sweep_s = min(time.monotonic() + every_s, max(next_s, time.monotonic() + min(every_s, _TROUBLED_FOR_S)))

    def _unheld(self) -> Iterator[OpenMark]:
        """Open job runs, the oldest first. Left out are job runs that another dispatcher was just seen to work on, and
        those that must wait for an earlier one of the same stream."""
        marks = self.state.open_job_runs()
        self._open_ids = [mark.job_run_id for mark in marks]
        open_ids = set(self._open_ids)
        self._turns = {name: turn for name, turn in self._turns.items() if name in open_ids}
        self._told &= open_ids
        self._stillness.keep(open_ids)
        self._busy_until_s = {name: at_s for name, at_s in self._busy_until_s.items() if name in open_ids}
        for name, ahead in list(self._behind.items()):
            if name not in open_ids or ahead not in open_ids:
                del self._behind[name]
                self._busy_until_s.pop(name, None)  # its turn has come
        for mark in marks:
            busy_until_s = self._busy_until_s.get(mark.job_run_id, 0.0)
            if mark.job_run_id not in self._holding and time.monotonic() >= busy_until_s:
                yield mark

    def _claim(self, mark: OpenMark) -> None:
        job_run_id = mark.job_run_id
        try:
            stored = self.state.job_run(job_run_id)
        except NotFoundError:
            return  # its mark is put before its record
        except CorruptionError as error:  # named once; whoever can read it may work on it
            self.state.leave_out(job_run_id, error)
            self._busy_until_s[job_run_id] = time.monotonic() + _LOOK_AGAIN_S
            return
        if stored.value.state.ended:
            self._close(mark, stored.value)
            return
        now_s = self._store_now_s()
        still_s = self._stillness.of_s(stored)
        if not is_free(stored, now_s, still_s):
            free_in = free_in_s(stored, now_s, still_s)
            self._busy_until_s[job_run_id] = time.monotonic() + max(_TROUBLED_FOR_S, free_in)
            return
        if self._waits(stored.value):
            return
        held = claim(self.state, stored, self.owner, self._settings.lease_s, now_s, still_s)
        if held is None:
            return
        self._told.discard(job_run_id)
        self._behind.pop(job_run_id, None)
        _LOG.info("job run %s claimed, epoch %s", job_run_id, held.epoch)
        work = JobRunWork(held, self._means)
        thread = threading.Thread(target=work.run, name=job_run_id, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread is left: whoever has one may go on
            held.release()
            raise
        with self._lock:
            self._holding[job_run_id] = _Holding(held, thread, time.monotonic())

    def _close(self, mark: OpenMark, run: JobRun) -> None:
        """Take a mark away that was left. One of a life to come is put a moment before the record says so."""
        if mark.life <= run.life:
            self.state.close(run)
        elif self._store_now_s() - mark.accepted_s > _BORN_WITHIN_S:
            self.state.close_unborn(mark, run)
        else:
            self._busy_until_s[run.id] = time.monotonic() + _TROUBLED_FOR_S

    def _waits(self, run: JobRun) -> bool:
        """Whether it is not the time, or not our turn. What is to be cancelled waits for nothing."""
        if run.cancelling:
            return False
        if run.trouble is not None and (wait_s := run.trouble.again_s - self._means.clock()) > 0:
            self._pass_over(run.id, min(wait_s, _LOOK_FOR_CANCELLING_S), told(run.trouble))
            return True
        if missing := missing_launchers(run, self._launcher.names):
            self._pass_over(run.id, _MISSING_FOR_S, f"it is planned for {', '.join(missing)}, which is not here")
            return True
        if (ahead := self._ahead_of(run)) is not None:
            self._behind[run.id] = ahead
            self._pass_over(run.id, _LOOK_AGAIN_S, f"{ahead} works on the same stream, or was accepted before it")
            return True
        return False

    def _pass_over(self, job_run_id: str, for_s: float, why: str) -> None:
        """Look at a job run again later: others may be able to work on it."""
        self._busy_until_s[job_run_id] = time.monotonic() + for_s
        if job_run_id not in self._told:
            self._told.add(job_run_id)
            _LOG.info("job run %s waits: %s", job_run_id, why)

    def _ahead_of(self, run: JobRun) -> str | None:
        """The open job run that has to end before this one may begin."""
        turn = Turn.of(run)
        for job_run_id in self._open_ids:
            if job_run_id == run.id:
                continue
            with contextlib.suppress(NotFoundError, CorruptionError):  # it is being accepted just now, or is damaged
                if job_run_id not in self._turns:
                    self._turns[job_run_id] = self._turn(job_run_id)
                other = self._turns[job_run_id]
                if not other.streams.overlap(turn.streams):
                    continue
                # Streams and acceptance never change. Whether it has begun is read anew, where that decides.
                if not turn.begun and other.was_accepted_before(turn):
                    return job_run_id
                if self._turn(job_run_id).goes_before(turn):
                    return job_run_id
        return None

    def _turn(self, job_run_id: str) -> Turn:
        return Turn.of(self.state.job_run(job_run_id).value)

    def _free(self) -> int:
        return max(0, self._admission.limits.sessions_max * _JOB_RUNS_A_SESSION - len(self._holding))

    def _forget_ended(self) -> None:
        with self._lock:
            for job_run_id, holding in list(self._holding.items()):
                if not holding.thread.is_alive():
                    del self._holding[job_run_id]
                    if set(self._open_ids) - {job_run_id, *self._holding}:
                        self._sweep_s = 0.0  # it may be the turn of one of them
                    if self._settings.drain and holding.held.run.state is JobRunState.FAILED:
                        self.failed.append(holding.held.run)
                    if not holding.held.run.state.ended:
                        self._busy_until_s[job_run_id] = time.monotonic() + _GIVEN_BACK_FOR_S

    def _is_drained(self) -> bool:
        """The queue is empty, and then: no job run is open. A message is acknowledged after its job run is recorded."""
        if not self._queue_was_empty.is_set() or self._holding or time.monotonic() < self._look_again_s:
            return False
        self._look_again_s = time.monotonic() + _TROUBLED_FOR_S
        try:
            return self.queue.depth().is_empty and not any(map(self._is_open, self.state.open_job_runs()))
        except (DeltaCompactError, OSError) as error:
            _LOG.warning("whether all is done could not be asked: %s", one_line(error))
            return False

    def _is_open(self, mark: OpenMark) -> bool:
        """Whether there is anything to wait for: a mark may be all that is left, and a record may be damaged."""
        try:
            return not self.state.job_run(mark.job_run_id).value.state.ended
        except (NotFoundError, CorruptionError):
            return False

    # Reap

    def _reap_for_ever(self) -> None:
        while self._reapers and not self.stopping.gently.wait(_REAP_EVERY_S):
            for reaper in self._reapers:
                self._guarded(lambda reaper=reaper: self._reap(reaper))  # type: ignore[misc]

    def _reap(self, reaper: Reaper) -> None:
        """List what runs before the job runs are read, so that a group that is launched meanwhile has an owner."""
        listed = reaper.listed()
        job_runs: dict[str, JobRun] = {}
        for job_run_id in {cluster.job_run_id for cluster in listed}:
            try:
                job_runs[job_run_id] = self.state.job_run(job_run_id).value
            except NotFoundError:
                continue
            except CorruptionError as error:  # whether it lives nobody can say: its clusters stay
                self.state.leave_out(job_run_id, error)
                listed = [cluster for cluster in listed if cluster.job_run_id != job_run_id]
        reaper.sweep(listed, job_runs, time.time())

    # Renew and say

    def _renew_for_ever(self) -> None:
        while not self._gone.wait(min(_TICK_S, self._settings.lease_s / 20)):
            with self._lock:
                holdings = list(self._holding.values())
            for holding in holdings:
                if not holding.held.lost and time.monotonic() - holding.renewed_s >= self._settings.lease_s / 3:
                    self._renew(holding)

    @staticmethod
    def _renew(holding: _Holding) -> None:
        try:
            holding.held.renew()
            holding.renewed_s = time.monotonic()
        except LeaseLostError:
            pass  # whoever works on it sees it
        except Exception as error:
            _LOG.warning("job run %s could not be renewed: %s", holding.held.run.id, one_line(error))

    def _say_for_ever(self) -> None:
        while not self._gone.wait(min(_SAY_EVERY_S, self._settings.lease_s / 3)):
            self._guarded(self._say)

    def _store_now_s(self) -> float:
        """The store's time, at most: it told it with its last reply, and our seconds have been as long since."""
        return self._now_s + (time.monotonic() - self._said_s)

    def _say(self) -> None:
        """Say that we are there. The reply tells the store's time."""
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
        )
        self._now_s = self.state.say(record)
        self._means.clock.told(self._now_s)
        self._said_s = time.monotonic()
        if self._said_s - self._forgot_s >= _FORGET_EVERY_S:
            self.state.forget_dispatchers(self._now_s)
            self._forgot_s = self._said_s

    @staticmethod
    def _guarded(work: Callable[[], None]) -> None:
        """A store that does not answer now may answer later."""
        try:
            work()
        except Exception as error:
            _LOG.warning("%s", one_line(error), exc_info=not isinstance(error, DeltaCompactError))

"""Waiting until a job run has ended, for `submit --wait`, and what its end means to a scheduler.

sent as message m-7      the record is not there yet                    "is not accepted yet"
                         accepted as m-7, runs                          "running: 3 succeeded, 1 running"
                         SUCCEEDED                                      exit status 0
                         FAILED or CANCELLED                            1, with the record's error
                         a dead letter, or taken by another document    2 or 3: no job run of ours will be there
                         --timeout is over                              1: the job run goes on

The record may be that of a job run that had failed before ours was sent. We wait until ours has taken its place. If we
see it open, it has not failed, and ours is a duplicate: then its end counts.

A question that fails does not end the wait: we say so once, and ask again. The job run goes on meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from deltacompact.base.errors import (
    ConflictError,
    DeltaCompactError,
    InputError,
    Interrupted,
    NotFoundError,
    PassingError,
)
from deltacompact.base.wording import one_line
from deltacompact.cli.answers import Failed
from sessions.base.model import JobRun, JobRunState
from sessions.base.troubles import span, trouble_text
from sessions.cli.printed import no_job_run, states_of
from sessions.queues.queue import DeadLetter, Queue
from sessions.records.state_store import StateStore

_LOOK_FIRST_S, _LOOK_MOST_S = 0.5, 10.0
_DEAD_EVERY_S = 30.0


class NotSucceeded(DeltaCompactError):
    """A job run has failed or was cancelled, or has not ended in time. Exit status 1."""


def check_outcome(run: JobRun) -> None:
    """Raises Failed for a job run that has failed or was cancelled: its answer, printed before, names the error."""
    if run.state.may_run_again:
        raise Failed(NotSucceeded(f"job run {run.id} {_ENDS[run.state]}{f': {run.error}' if run.error else ''}"))


class JobRunWait:
    """Waits for one job run. `say` is told how far it is, whenever that changes."""

    def __init__(
        self,
        state: StateStore,
        queue: Queue,
        job_run_id: str,
        message_id: str,
        document: dict[str, Any],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._state, self._queue, self._say = state, queue, say
        self._id, self._message_id, self._document = job_run_id, message_id, document
        self._clock, self._sleep = clock, sleep
        self._seen_open = False
        self._looked_for_dead_s = clock()
        self._unanswered: set[str] = set()

    def until_ended(self, timeout_s: float | None) -> JobRun:
        """The job run as it has ended.

        Raises NotSucceeded where it has not ended in time, InputError and ConflictError where it never will be run,
        Interrupted after Ctrl-C.
        """
        began_s, said = self._clock(), ""
        try:
            for wait_s in _waits():
                run = self._look()
                if run is not None and run.state.ended:
                    return run
                if (now := self._progress(run) or said) != said:
                    self._say(said := now)
                left_s = wait_s if timeout_s is None else min(wait_s, began_s + timeout_s - self._clock())
                if left_s <= 0:
                    break
                self._sleep(left_s)
        except KeyboardInterrupt:
            raise Interrupted(f"job run {self._id} goes on: see status, or cancel it (job-runs cancel)") from None
        raise NotSucceeded(f"job run {self._id} has not ended within {span(timeout_s or 0.0)}, and goes on: {said}")

    def _look(self) -> JobRun | None:
        """Our job run; None while there is none, or nobody can say."""
        try:
            run = self._state.job_run(self._id).value
        except NotFoundError:
            self._check_dead_letters()
            return None
        except PassingError as error:
            self._note("it", error)
            return None
        self._unanswered.discard("it")
        if not run.state.may_run_again and run.document != self._document:
            raise ConflictError(f"job run {self._id} was accepted with another document")
        self._seen_open |= not run.state.ended
        if run.state.may_run_again and run.message != self._message_id and not self._seen_open:
            self._check_dead_letters()
            return None  # it had ended before ours was sent
        return run

    def _check_dead_letters(self) -> None:
        """Raises InputError where our message is one. A listing of SQS hides them for a moment, so it is rare there."""
        now_s = self._clock()
        if self._queue.uri.startswith("http") and now_s - self._looked_for_dead_s < _DEAD_EVERY_S:
            return
        self._looked_for_dead_s = now_s
        try:
            letters = [letter for letter in self._queue.dead_letters() if self._is_ours(letter)]
        except (PassingError, InputError) as error:
            self._note("whether it was refused", error)
            return
        self._unanswered.discard("whether it was refused")
        for letter in letters:
            raise InputError(f"job run {self._id} was refused ({letter.reason}): {letter.text}")

    def _is_ours(self, letter: DeadLetter) -> bool:
        return self._message_id in (letter.id, letter.message_id)  # an earlier message of this job run may be dead

    def _note(self, what: str, error: DeltaCompactError) -> None:
        """Say that something cannot be seen, once until it is seen."""
        if what not in self._unanswered:
            self._unanswered.add(what)
            self._say(f"{what} cannot be seen now: {one_line(error)}")

    def _progress(self, run: JobRun | None) -> str | None:
        """How far the job run is. None: nobody can say."""
        try:
            said = self._said_of(run)
        except PassingError as error:
            self._note("how far it is", error)
            return None
        self._unanswered.discard("how far it is")
        return said

    def _said_of(self, run: JobRun | None) -> str:
        if run is None:
            return "not accepted yet" + (f", and {no_job_run(self._state)}" if self._state.is_missing else "")
        if run.trouble is not None:
            return f"waits: {trouble_text(run.trouble)}"
        sessions = self._state.some_sessions(run.id, run.session_ids) if run.state is JobRunState.RUNNING else []
        return ": ".join(filter(None, (run.state.value, states_of(sessions))))


_ENDS = {JobRunState.FAILED: "has failed", JobRunState.CANCELLED: "was cancelled"}


def _waits() -> Iterator[float]:
    """Seconds between two looks: half a second, then longer, up to ten."""
    wait_s = _LOOK_FIRST_S
    while True:
        yield wait_s
        wait_s = min(_LOOK_MOST_S, wait_s * 1.3)

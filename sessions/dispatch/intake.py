"""Makes accepted job runs of messages. A job run is recorded first, and its message acknowledged afterwards.

a good document                      recorded as ACCEPTED, acknowledged
the same message again               recorded already: acknowledged
a document that can never be served  dead letter, with reason and field; of a trigger: its job run has failed
another document of the same id      dead letter
a document of a failed job run's id  the job run is run again, with this document; see records/lives.py
a document that cannot be read       dead letter: any error while it is read refuses this message alone
the state does not answer            released: the message comes again, later each time. The dispatcher receives nothing
                                     until the state has taken a sign of life: messages that come too often die
the queue does not take an answer    the message comes again, and holds up no other
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from deltacompact.base.errors import BucketMissingError, CorruptionError, DeltaCompactError, InputError, NotFoundError
from deltacompact.base.wording import one_line
from sessions.base.ids import job_run_id_of
from sessions.base.model import JobRun, JobRunState
from sessions.documents.allow_list import AllowList, NotAllowed
from sessions.documents.instruction import Instruction, parse, values_of
from sessions.documents.refusal import RefusedDocument
from sessions.queues.queue import PUT_OFF_MAX_S, DeadReason, Message, Queue
from sessions.records.lives import submitted_again
from sessions.records.state_store import StateStore
from sessions.records.trigger_ends import remember_end

_LOG = logging.getLogger("sessions")
_RELEASED_FOR_MIN_S = 1.0


class Intake:
    """Accepts the messages of one queue. `refused_s`: when the state last refused, by the monotonic clock."""

    def __init__(
        self, queue: Queue, state: StateStore, allowed: AllowList, clock: Callable[[], float] = time.time
    ) -> None:
        self._queue = queue
        self._state = state
        self.allowed = allowed
        self._clock = clock
        self.refused_s = -math.inf

    def take(self, message: Message) -> str | None:
        """Deal with a message. Returns the id of the job run, if one was accepted."""
        try:
            return self._accepted_or_buried(message)
        except DeltaCompactError as error:
            self._put_off(message, error)
        except Exception as error:  # a fault of ours: it must not hold up other messages
            _LOG.error("message %s could not be dealt with", message.id, exc_info=True)
            self._put_off(message, error)
        return None

    def _accepted_or_buried(self, message: Message) -> str | None:
        try:
            return self._accepted(message)
        except RefusedDocument as refused:
            reason = DeadReason.CATALOG_NOT_ALLOWED if isinstance(refused, NotAllowed) else DeadReason.INVALID_DOCUMENT
            self._bury(message, reason, refused.field, str(refused))
            self._tell_trigger(message)
            return None

    def _tell_trigger(self, message: Message) -> None:
        """A watcher takes its refused document for a failed job run, and waits longer each time. Else it would send the
        same one again every hour."""
        with contextlib.suppress(DeltaCompactError, ValueError, LookupError, TypeError, RecursionError):
            job_run_id = json.loads(message.body)["job_run_id"]
            try:
                self._state.job_run(job_run_id)
            except NotFoundError:
                remember_end(self._state.store, job_run_id, JobRunState.FAILED)

    def _read(self, message: Message) -> Instruction:
        """The document. Raises RefusedDocument for every error: reading it again would fail in the same way."""
        try:
            instruction = parse(message.body)
            self.allowed.check(instruction)
            return instruction
        except RefusedDocument:
            raise
        except Exception as error:
            _LOG.error("message %s could not be read", message.id, exc_info=True)
            raise RefusedDocument("", f"the document cannot be read: {one_line(error)}") from error

    def _accepted(self, message: Message) -> str | None:
        instruction = self._read(message)
        document = values_of(instruction)
        job_run_id = instruction.job_run_id or job_run_id_of(message.id)
        run = JobRun(
            id=job_run_id,
            document=document,
            state=JobRunState.ACCEPTED,
            accepted_s=self._clock(),
            message=message.id,
            desired_sla_s=instruction.desired_sla,
        )
        with self._asking_the_state():
            accepted = self._state.accept(run) or self._runs_again(message, job_run_id, document)
            taken = not accepted and self._state.job_run(job_run_id).value.document != document
        if taken:
            said = f"job run {job_run_id} was accepted with another document"
            self._bury(message, DeadReason.JOB_RUN_ID_TAKEN, "job_run_id", said)
            return None
        self._queue.acknowledge(message)
        _LOG.info("job run %s: %s", job_run_id, "accepted" if accepted else "was accepted before")
        return job_run_id if accepted else None

    @contextlib.contextmanager
    def _asking_the_state(self) -> Iterator[None]:
        """Remember when the state refuses. A record that is damaged, or gone by now, holds up no other message."""
        try:
            yield
        except DeltaCompactError as error:
            if isinstance(error, BucketMissingError) or not isinstance(error, CorruptionError | NotFoundError):
                self.refused_s = time.monotonic()
            raise

    def _runs_again(self, message: Message, job_run_id: str, document: dict[str, Any]) -> bool:
        """Whether this is a new submission of a job run that has failed or was cancelled."""
        stored = self._state.job_run(job_run_id)
        again = submitted_again(stored, document, message.id, message.sent_s, self._clock())
        return again is not None and self._state.reopen(stored, again) is not None

    def _bury(self, message: Message, reason: DeadReason, field: str, text: str) -> None:
        try:
            self._queue.dead_letter(message, reason, field, text)
        except DeltaCompactError as error:
            raise InputError(f"{text}; and it cannot become a dead letter: {one_line(error)}") from error
        _LOG.warning("message %s is a dead letter (%s): %s", message.id, reason, text)

    def _put_off(self, message: Message, error: Exception) -> None:
        """Release the message for a random time, up to three times as long each time (decorrelated jitter)."""
        longest_s = min(PUT_OFF_MAX_S, _RELEASED_FOR_MIN_S * 3**message.receives)
        after_s = random.uniform(_RELEASED_FOR_MIN_S, longest_s)
        _LOG.warning("message %s is put off for %.0f s: %s", message.id, after_s, one_line(error))
        try:
            self._queue.release(message, after_s)
        except DeltaCompactError as unreleased:  # it comes again once its visibility ends
            _LOG.warning("message %s could not be released: %s", message.id, one_line(unreleased))

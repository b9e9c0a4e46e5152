"""Runs one group of sessions, one after another, in this process.

    day=2024-01-01    succeeded                      recorded, with its outcome
    day=2024-01-02    ConflictError                  recorded; tried again
    day=2024-01-02    StoreError                     recorded with its cause; tried again later
    day=2024-01-03    no such partition              failed for good
    day=2024-01-04    ClusterError                   recorded for this one and those after it: the group waits
    -> EXIT_AGAIN

    the state does not answer, between two sessions  -> an exit status that says so: no session has failed

Each session is one compact() of one partition, or of one branch of an Iceberg table, under the name of its attempt.
The dispatcher shows the results of all in a published table.
SIGTERM ends the process at once: the next attempt resumes what is recorded. So does a lease of another epoch, which the
process checks for while sessions run. That check saves work; safety comes from the fences.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltacompact import DeltaStreamCatalog, SessionResult
from deltacompact.base.errors import ClusterError, CorruptionError, InputError, Interrupted, PassingError
from deltacompact.base.wording import one_line
from deltacompact.catalog.opening import is_iceberg_catalog, open_catalog
from deltacompact.job import Request
from deltacompact.planning.within_memory import within_memory
from deltacompact.running import compact_job
from sessions.base.clock import StoreClock
from sessions.base.exits import EXIT_AGAIN, EXIT_ENDED, EXIT_SUPERSEDED, EXIT_TERMINATED, exit_status_of
from sessions.base.logs import log_json
from sessions.base.model import JobRunSession, Outcome, SessionState
from sessions.base.signals import handled
from sessions.base.troubles import Cause, cause_of
from sessions.documents.instruction import Instruction, of_accepted
from sessions.documents.request import request_of_document
from sessions.events.recording import EventRecorder
from sessions.planning.learning import cpu_by_stage
from sessions.planning.plan import settings_of
from sessions.records.state_store import StateStore, StoredRecord
from sessions.runner.branch import compact_branch
from sessions.runner.dropped import check_there
from sessions.runner.reporting import LeaseWatch, NotRecorded, SessionReport, Superseded

if TYPE_CHECKING:  # importing PyIceberg takes a second
    from deltacompact.catalog.iceberg import IcebergCatalog

_LOG = logging.getLogger("sessions")
_FOR_GOOD = (InputError, CorruptionError)
"""Errors after which another try would fail in the same way."""


class Terminated(BaseException):
    """SIGTERM came: the process ends at once."""


def run_group(state_uri: str, job_run_id: str, group: str, epoch: int) -> int:
    """Run the sessions of a group that have not ended. Returns the exit status of the process."""
    log_json(job_run=job_run_id, group=group)
    try:
        with handled(_terminate):
            return _run(state_uri, job_run_id, group, epoch)
    except Superseded as why:
        _LOG.warning("superseded: %s", why)
        return EXIT_SUPERSEDED
    except (Terminated, Interrupted):
        _LOG.warning("terminated: the next attempt resumes")
        return EXIT_TERMINATED
    except NotRecorded as why:
        _LOG.error("group %s: %s", group, why)
        return exit_status_of(why.error)
    except Exception as error:
        _LOG.error("group %s failed: %s", group, one_line(error), exc_info=True)
        return exit_status_of(error)


def _run(state_uri: str, job_run_id: str, group: str, epoch: int) -> int:
    unobserved = StateStore(state_uri)
    recorder = EventRecorder(unobserved)
    runner = GroupRun(StateStore(unobserved.store, recorder), job_run_id, epoch)
    recorder.know(runner.job_run)
    return runner.run(group)


class GroupRun:
    """Runs groups of one job run in one epoch. Raises Superseded if another epoch has begun."""

    def __init__(
        self,
        state: StateStore,
        job_run_id: str,
        epoch: int,
        open_catalog: Callable[[str], DeltaStreamCatalog | IcebergCatalog] = open_catalog,
    ) -> None:
        self._state = state
        self._job_run_id = job_run_id
        self._watch = LeaseWatch(state, job_run_id, epoch)
        self._epoch = epoch
        self._now_s = StoreClock()
        self.job_run = state.job_run(job_run_id).value
        self._instruction = of_accepted(self.job_run.document)
        self._open_catalog = open_catalog
        self._catalog: DeltaStreamCatalog | IcebergCatalog | None = None
        self._no_cluster: ClusterError | None = None

    def run(self, group: str) -> int:
        """Run every session of the group that has this epoch and has not begun. Returns an exit status."""
        self._watch.see(self.job_run)
        again = False
        for session_id in self._state.group(self._job_run_id, group):
            stored = self._state.session(self._job_run_id, session_id)
            if stored.value.state is SessionState.PLANNED and stored.value.epoch == self._epoch:
                again |= not self._run(stored)
        return EXIT_AGAIN if again else EXIT_ENDED

    def _run(self, stored: StoredRecord[JobRunSession]) -> bool:
        """Run one session. Returns whether it has ended."""
        report = SessionReport(self._state, stored, self._watch, self._now_s)
        report.begin()
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        try:
            outcome, nothing_to_do = self._compacted(report)
        except Exception as error:
            if isinstance(error, ClusterError):
                self._no_cluster = error
            cause = cause_of(error)
            for_good = cause is None and isinstance(error, _FOR_GOOD)
            _LOG.error("session %s failed: %s", report.session.id, one_line(error), exc_info=not for_good)
            self._failed(report, error, cause, for_good)
            return for_good
        seconds, here_cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        if nothing_to_do is not None:
            ended: dict[str, Any] = {"state": SessionState.NOTHING_TO_DO, "nothing_to_do": nothing_to_do}
        else:
            ended = {"state": SessionState.SUCCEEDED}
        ended |= {"cause": None, "trouble": None, "delay": None}
        outcome = replace(outcome, seconds=round(seconds, 3), cpu_seconds=_cpu_seconds(outcome, report, here_cpu_s))
        report.write(**ended, finished_s=report.now_s(), outcome=outcome)
        return True

    def _compacted(self, report: SessionReport) -> tuple[Outcome, str | None]:
        """(outcome, why there was nothing to do; None: there was something)."""
        if self._no_cluster is not None:  # each session would wait anew for workers that did not come
            raise self._no_cluster.with_traceback(None)
        if self._catalog is None:
            self._catalog = self._open_catalog(self._instruction.catalog)
        catalog = self._catalog
        if is_iceberg_catalog(catalog):
            return compact_branch(catalog, self._instruction, report, self._watch)
        try:
            request = _request(self._instruction, report.session)
            done = compact_job(catalog, request, [report], shows=False).sessions[0]
        except Exception:
            self._check_there(catalog, report, None)
            raise
        self._check_there(catalog, report, done.version)
        return _outcome(done), done.nothing_to_do

    def _check_there(self, catalog: DeltaStreamCatalog, report: SessionReport, version: str | None) -> None:
        """Raises NotFoundError for a table that was dropped meanwhile. If the store does not answer, nothing happens.

        `version`: what the session has published. The first version makes a destination, so without one it may be
        missing because it was never made.
        """
        asked = self._instruction
        tables = [asked.source_table_id]
        if version is not None and asked.destination_compacted_table_id is not None:
            tables.append(asked.destination_compacted_table_id)
        with contextlib.suppress(PassingError):
            check_there(catalog.store, tables, report.session.engine_session_id, version)

    @staticmethod
    def _failed(report: SessionReport, error: Exception, cause: Cause | None, for_good: bool) -> None:
        said = {"error": one_line(error), "error_named": report.error_named or type(error).__name__, "cause": cause}
        if for_good:
            report.write(state=SessionState.FAILED, finished_s=report.now_s(), trouble=None, **said)
        else:
            report.write(state=SessionState.PLANNED, **said)


def _cpu_seconds(outcome: Outcome, report: SessionReport, here_cpu_s: float) -> dict[str, float]:
    plan = report.session.plan
    return cpu_by_stage(outcome.cpu_seconds, outcome.executor or (plan.executor if plan else ""), here_cpu_s)


def _request(instruction: Instruction, session: JobRunSession) -> Request:
    """The request of a document and a plan. It names no topic: events are sent from the records alone."""
    plan = session.plan
    settings = within_memory(instruction.engine_settings(**(settings_of(plan) if plan else {})))
    hash_bucket_count = instruction.hash_bucket_count or (plan.hash_bucket_count or None if plan else None)
    return request_of_document(instruction, settings, [session.partition], hash_bucket_count, session.attempt)


def _outcome(result: SessionResult) -> Outcome:
    return Outcome(
        seconds=0.0,
        rows_in=result.rows_in,
        live=result.live,
        superseded=result.superseded,
        deleted=result.deleted,
        bytes_in=result.bytes_in,
        bytes_out=result.bytes_out,
        rounds=result.rounds,
        rounds_resumed=result.rounds_resumed,
        stage_seconds=result.seconds,
        cpu_seconds=result.cpu_seconds,
        executor=result.executor,
        planned_peak_bytes=result.planned_peak_bytes,
        measured_peak_bytes=result.measured_peak_bytes,
        version=result.version,
    )


def _terminate() -> None:
    raise Terminated

"""Runs one call of compact(): the prepared job's partitions side by side, each in its own session.

for as many partitions at a time as the plans admit
    session    ->  rounds, materialize, switch
one result for each partition; if one session fails, the others still publish
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deltacompact.base.errors import DeltaCompactError
from deltacompact.base.events import EventSink, fan_out, logger
from deltacompact.base.partitions import side_by_side
from deltacompact.delta_streams.idle_streams import keep_listing
from deltacompact.delta_streams.streams import Streams
from deltacompact.executors.choose import capacities, executors_for, share_slots
from deltacompact.executors.executor import Executor
from deltacompact.job import CompactionJob, PartitionWork, Request, plan_work, prepare
from deltacompact.planning.lanes import Claim, Lane, lane_bounds, sessions_at_once
from deltacompact.planning.needs import Needs
from deltacompact.planning.plan import CompactionPlan
from deltacompact.results import CompactionResult, SessionResult, failed, finished, result_of
from deltacompact.session.attempts import resume_or_begin
from deltacompact.session.side_by_side import ClaimedSession, run_side_by_side
from deltacompact.sinks.environment import sinks_asked_for
from deltacompact.storage.certain_put import telling_interrupts
from deltacompact.table.ports import NothingToDo, PartitionSnapshot
from deltacompact.tabular.allocator import session_memory

if TYPE_CHECKING:  # importing PyIceberg takes a second
    from deltacompact.publication.publication import PublicationResult


def compact_job(catalog: Streams, request: Request, sinks: Sequence[EventSink], shows: bool = True) -> CompactionResult:
    """Run a request: each partition in its own session, events to the sinks.

    `shows` False: the caller lets a published table show the result, once for many requests.
    """
    with session_memory(request.options.memory_bytes):
        job = prepare(catalog, request)
        emit = fan_out([*sinks, *sinks_asked_for(catalog.store.uri)])
        with telling_interrupts():
            results = _sessions(job, emit)
            publication = _shown(catalog, job) if shows else None
    keep_listing(catalog, job.destination_table_id, [work.partition for work in job.work])
    done = CompactionResult(job.source_table_id, job.destination_table_id, tuple(results), publication)
    if done.errors and len(done.errors) == len(results):
        error = done.errors[0]
        error.result = done  # type: ignore[attr-defined]
        raise error
    return done


def _shown(catalog: Streams, job: CompactionJob) -> PublicationResult | None:
    """Let the table that the destination is published to show what it has now; None: it is not published."""
    if job.publication is None:
        return None
    from deltacompact.publication.publication import show_compacted

    partitions = [work.partition for work in job.work]
    result = show_compacted(catalog, job.destination_table_id, job.publication, partitions)
    if result.error is not None:
        logger.warning("table %s is compacted, but %s", job.destination_table_id, result)
    return result


def _sessions(job: CompactionJob, emit: EventSink) -> list[SessionResult]:
    """Plan all sessions, then run as many at a time as the plans admit. The results are in the partitions' order."""
    options, lane_of = job.terms.options, job.lanes
    sessions = Counter(lane_of.values())
    at_once = {lane: min(count, sessions_at_once(lane, options, job.waits)) for lane, count in sessions.items()}
    executors = executors_for(options, at_once, job.waits)
    bounds_of = lane_bounds(capacities(options, executors), at_once)

    def planned(work: PartitionWork) -> CompactionPlan | NothingToDo | Exception:
        if not isinstance(work.found, PartitionSnapshot):
            return work.found
        try:
            return plan_work(job, work, work.found, executors[lane_of[work.partition]].capacity)
        except Exception as error:
            return error

    def run(work: PartitionWork, decided: CompactionPlan | NothingToDo | Exception) -> SessionResult:
        if isinstance(decided, NothingToDo):
            return SessionResult(dict(work.partition.values), nothing_to_do=decided.reason)
        if isinstance(decided, Exception):
            result = failed(work.partition, decided)
        else:
            result = run_session(job, work, decided, executors[lane_of[work.partition]], emit)
        snapshot = work.found if isinstance(work.found, PartitionSnapshot) else None
        emit(finished(job.source_table_id, result, work.partition, snapshot))
        return result

    def stop() -> None:
        for executor in executors.values():
            executor.stop()

    plans = side_by_side(job.work, planned, job.at_once)
    needs = {
        work.partition: Needs(decided)
        for work, decided in zip(job.work, plans, strict=True)
        if isinstance(decided, CompactionPlan)
    }
    share_slots(executors, [asked for partition, asked in needs.items() if lane_of[partition] is Lane.POOL])
    claimed = [
        ClaimedSession(
            Claim.of(lane_of[work.partition], needs[work.partition]) if work.partition in needs else None,
            functools.partial(run, work, decided),
        )
        for work, decided in zip(job.work, plans, strict=True)
    ]
    return run_side_by_side(claimed, bounds_of, stop, options.partitions_at_once)


def run_session(
    job: CompactionJob, work: PartitionWork, plan: CompactionPlan, executor: Executor, emit: EventSink
) -> SessionResult:
    """Compact one partition stream: begin a session, or resume an interrupted one.

    Any exception becomes the error of the result, because a bad partition must not end the job of the others.
    """
    try:
        spilled_before = executor.spilled_bytes()
        session, published = resume_or_begin(work.stream.ports, plan, job.terms, executor, emit)
        spilled = executor.spilled_bytes()
        if spilled is not None:
            spilled -= spilled_before or 0
        return result_of(session, published, executor, spilled)
    except DeltaCompactError as error:
        return failed(work.partition, work.stream.advised(error, plan.input))
    except Exception as error:
        return failed(work.partition, error)

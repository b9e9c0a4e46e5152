"""Attempts at one partition: resume the session that an earlier attempt left, or begin another one.

no plan.json                          record our plan and execute it
plan.json of an attempt like ours     adopt its plan: the same snapshot, the same sizes
a record that cannot be resumed       begin another session, with the next number
"""

from __future__ import annotations

from deltacompact.base.errors import CorruptionError, NotFoundError
from deltacompact.base.events import EventSink, logger
from deltacompact.executors.executor import Executor
from deltacompact.planning.needs import Needs
from deltacompact.planning.plan import CompactionPlan
from deltacompact.planning.terms import SessionTerms
from deltacompact.session.driver import CompactionSession, PublishedSession
from deltacompact.session.planned import plan_session
from deltacompact.session.records import SessionRecord, SessionRecords, UnresumableError, session_id
from deltacompact.session.workbench import conflict_of
from deltacompact.table.ports import NothingToDo, Ports

SESSIONS_GIVEN_UP_MAX = 20
"""How many sessions on one version a compaction gives up before it fails."""


def resume_or_begin(
    ports: Ports, own: CompactionPlan, terms: SessionTerms, executor: Executor, emit: EventSink
) -> tuple[CompactionSession, PublishedSession]:
    """Compact by the plan `own`, or by the plan of an earlier attempt at the same work.

    Raises ConflictError if another session published first.
    """
    snapshot = own.input
    for number in range(SESSIONS_GIVEN_UP_MAX + 1):
        name, plan_to_follow = session_id(own, number), own
        try:
            records = SessionRecords(ports.store, ports.workspace, name)
            plan_to_follow = _recorded_or_own(ports, terms, own, records)
            session = CompactionSession(ports, plan_to_follow, executor, emit, number, records)
            return session, session.execute()
        except UnresumableError as why:
            logger.warning("%s: session %s is not resumed, another one begins: %s", snapshot.partition, name, why)
        except NotFoundError as error:
            # A vacuum may have deleted an old session's files. Before that, it fenced the session, or the base was
            # sealed: either is a conflict.
            raise conflict_of(ports.target, plan_to_follow.input, name) or error from None
    where = f"table {snapshot.destination_table_id!r}, partition {snapshot.partition}"
    raise CorruptionError(f"{where}: {SESSIONS_GIVEN_UP_MAX + 1} sessions could not be resumed; vacuum deletes them")


def _recorded_or_own(ports: Ports, terms: SessionTerms, own: CompactionPlan, records: SessionRecords) -> CompactionPlan:
    """Our own plan, recorded now, or the plan that an earlier attempt recorded.

    Raises UnresumableError if this release or this machine cannot execute the earlier plan.
    """
    record = records.adopt_plan(own)
    ours = SessionRecord.of(own)
    if record == ours:
        return own
    if record.what != ours.what:
        raise UnresumableError("its plan is for other work")
    snapshot = ports.source.fetch(record.moment)
    if isinstance(snapshot, NothingToDo):
        raise UnresumableError("its plan is for other work")
    adopted = plan_session(ports, snapshot, terms, own.capacity, record.sizes)
    if SessionRecord.of(adopted) != record:
        raise UnresumableError("its plan would read other columns today")
    if Needs(own).peak_bytes < Needs(adopted).peak_bytes > own.capacity.memory_per_task_bytes:
        raise UnresumableError("its tasks need more memory than a task has here")
    return adopted

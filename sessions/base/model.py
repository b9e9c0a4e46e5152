"""The records of a job run: plain values, kept as JSON below the state's URI.

    job-runs/run-1/run/…                       JobRun: its document, state and lease; replaced by compare-and-swap
    job-runs/run-1/sessions/day=2024-01-01/…   Session: one partition, its plan, progress and outcome; likewise
    job-runs/run-1/events/…                    each event once
    dispatchers/host-7.4711.…json              Dispatcher: who works, and when it last said so

A job run that a dispatcher claimed for the third time, with one session under way:

    JobRun   run-1    RUNNING   lease: owner host-7/4711, epoch 3    expected 412 s, 371 … 453
    Session  day=…    RUNNING   epoch 3, round 2 of 5, materialize   expected 412 s
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class JobRunState(enum.StrEnum):
    """ACCEPTED -> RUNNING -> SUCCEEDED, FAILED or CANCELLED. It fails where one of its sessions failed.

    `job-runs retry`, or another submission under its id, brings one that has failed or was cancelled back to ACCEPTED.
    """

    ACCEPTED = "accepted"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (JobRunState.ACCEPTED, JobRunState.RUNNING)

    @property
    def may_run_again(self) -> bool:
        """Whether its id is free again."""
        return self in (JobRunState.FAILED, JobRunState.CANCELLED)


class SessionState(enum.StrEnum):
    """PLANNED -> RUNNING -> SUCCEEDED, NOTHING_TO_DO, FAILED, CANCELLED; a takeover brings RUNNING back to PLANNED."""

    PLANNED = "planned"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    NOTHING_TO_DO = "nothing_to_do"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (SessionState.PLANNED, SessionState.RUNNING)


@dataclass(frozen=True, slots=True)
class Lease:
    """Who works on a job run. `epoch` grows by one with every claim; `renewals` makes each renewal another record.

    The lease is stale once the store says that the record is older than `ttl_s` and the skew that we allow for.
    """

    owner: str
    epoch: int
    ttl_s: float
    renewals: int = 0


BOUNDS = ("seconds", "low_s", "high_s", "promise_s")


@dataclass(frozen=True, slots=True)
class Estimate:
    """An expected SLA: seconds from the start of the session, with its 90 % interval, as of `at_s` (Unix seconds).

    `promise_s` is the latest end, which 99.3 % keep; never before `high_s`, which stands in for it in older records.
    CPU seconds are estimated in the same shape.
    """

    seconds: float
    low_s: float
    high_s: float
    at_s: float = 0.0
    promise_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "promise_s", max(self.promise_s, self.high_s))

    @classmethod
    def of(cls, bound: Callable[[str], float], at_s: float = 0.0) -> Estimate:
        """An estimate whose bounds are made one by one, by their names."""
        seconds, low_s, high_s, promise_s = map(bound, BOUNDS)
        return cls(seconds, low_s, high_s, at_s, promise_s)

    def later(self, by_s: float, at_s: float) -> Estimate:
        """The estimate so many seconds later, or earlier: nothing ends before now."""
        return Estimate.of(lambda bound: max(0.0, getattr(self, bound) + by_s), at_s)


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision of the planner. `reason` is a value of planning.reasons.Reason, `text` says it to people."""

    what: str
    value: Any
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What one session is to run on, and what that takes. `group` names the sessions that share a process or cluster.

    `workers` are nodes of `node_type` ("local" is this machine), `executor` is one of deltacompact's. `slots` are tasks
    at a time, each of which may take `memory_per_task_bytes`; `peak_bytes` is the planned memory on one node, and
    `memory_bytes` what a process of this machine may take in all (0: it is not bounded).
    `mode` is that of a rewrite, convert or upsert of an Iceberg table, whose `partition` names the branch.
    `start_s`: until the process or cluster is up; `expected` counts from then. `stage_s` are the expected seconds by
    stage. `work` are the terms of the busiest slot that rates are learned for, `whole` those of all slots, which
    `expected_cpu` counts, and `waits` requests and cold starts; `stream` is whose rates they are.
    """

    partition: dict[str, str | None]
    group: str
    executor: str
    node_type: str
    workers_initial: int
    workers_max: int
    hash_bucket_count: int
    rehash: bool
    rounds: int
    delta_files: int
    delta_rows: int
    base_rows: int
    bytes: int
    peak_bytes: int
    expected: Estimate
    cost_usd: float
    choices: tuple[Choice, ...] = ()
    launcher: str = "local"
    slots: int = 1
    memory_per_task_bytes: int = 0
    read_through: int = 0
    start_s: float = 0.0
    stage_s: dict[str, float] = field(default_factory=dict)
    work: dict[str, float] = field(default_factory=dict)
    stream: str = ""
    prices: str = ""
    mode: str = ""
    whole: dict[str, float] = field(default_factory=dict)
    waits: tuple[float, float] = (0.0, 0.0)
    expected_cpu: Estimate | None = None
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Delay:
    """Why a session has not started: `reason` is a value of planning.reasons.Wait, `text` says it to people.

    `until_s` is when that ends, where it is known (Unix seconds).
    """

    reason: str
    text: str
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """What passes, and keeps a job run or session from going on: `cause` is a value of base.troubles.Cause.

    It began at `since_s`, was met `tries` times, and is tried again at `again_s`, by the store's clock. `rounds` were
    completed then. `number` counts the troubles of a session that came back after a long time.
    """

    cause: str
    text: str
    since_s: float
    tries: int
    again_s: float
    rounds: int = 0
    number: int = 1


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job run had ended before it was run again."""

    state: JobRunState
    finished_s: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a session is: `round` counts those that are completed.

    `share` is what is done of all its work, from 0 to 1, by the planner's model.
    """

    stage: str = ""
    round: int = 0
    rounds: int = 0
    tasks_done: int = 0
    tasks: int = 0
    share: float = 0.0
    updated_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a session did: the fields of deltacompact's SessionResult that are counts, bytes and seconds.

    Of an Iceberg table it is what `snapshots` did, which all attempts together have committed: `files_in` data files
    were replaced by `files_out`; rows that were marked as deleted, and stay in their files, count as deleted alone. Ids
    are text, because the numbers of JavaScript are too small for them.
    """

    seconds: float
    rows_in: int = 0
    live: int = 0
    superseded: int = 0
    deleted: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    rounds: int = 0
    rounds_resumed: int = 0
    stage_seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    executor: str = ""
    planned_peak_bytes: int = 0
    measured_peak_bytes: int = 0
    version: str | None = None
    snapshots: tuple[str, ...] = ()
    files_in: int = 0
    files_out: int = 0
    delete_files_added: int = 0
    delete_files_removed: int = 0


@dataclass(frozen=True, slots=True)
class JobRunSession:
    """One partition of a job run, or one branch of an Iceberg table: {"branch": "main"}.

    `engine_session_id` is the engine's name for it, which the seal carries; on Iceberg tables there is none.
    `attempt` names the latest try ("run-1/3/2": epoch 3, the second try), by which it can be fenced off. Of a session
    that has not ended, `error` says why the latest try failed; `failures` counts such tries. `error_named` is the error
    for those who may not see the data: its class, and the files and columns that it names. `delay` is there while it
    waits to be started. `cause` says why the latest try failed, if that passes, and `trouble` since when. `life` is
    that of its job run: how often that had ended before.
    """

    id: str
    job_run_id: str
    partition: dict[str, str | None]
    state: SessionState = SessionState.PLANNED
    epoch: int = 0
    attempts: int = 0
    attempt: str | None = None
    failures: int = 0
    plan: SessionPlan | None = None
    engine_session_id: str | None = None
    started_s: float | None = None
    finished_s: float | None = None
    expected_first: Estimate | None = None
    expected: Estimate | None = None
    delay: Delay | None = None
    progress: Progress = Progress()
    outcome: Outcome | None = None
    nothing_to_do: str | None = None
    error: str | None = None
    error_named: str | None = None
    cause: str | None = None
    trouble: Trouble | None = None
    life: int = 0


@dataclass(frozen=True, slots=True)
class JobRun:
    """One instruction document under way. `message` is what the queue knew it by.

    `late_heartbeats` counts lease renewals that came later than half the lease's time after the renewal before. If the
    desired SLA cannot be promised, `nearest_sla_s` is the nearest SLA that can, and `cpus_needed` is the number of CPUs
    that would keep the desired one (None: no number would). `launchers`: its sessions are planned for these. `trouble`:
    it waits until this has passed. `cancelling`: somebody has asked to cancel it. `earlier` says how it ended before it
    was run again.
    """

    id: str
    document: dict[str, Any]
    state: JobRunState
    accepted_s: float
    message: str = ""
    started_s: float | None = None
    finished_s: float | None = None
    lease: Lease | None = None
    takeovers: int = 0
    late_heartbeats: int = 0
    desired_sla_s: int | None = None
    nearest_sla_s: float | None = None
    cpus_needed: int | None = None
    expected_first: Estimate | None = None
    expected: Estimate | None = None
    session_ids: tuple[str, ...] = ()
    launchers: tuple[str, ...] = ()
    error: str | None = None
    trouble: Trouble | None = None
    cancelling: bool = False
    earlier: tuple[Ending, ...] = ()

    @property
    def life(self) -> int:
        """How often it had ended before it was run again."""
        return len(self.earlier)


@dataclass(frozen=True, slots=True)
class DispatcherSign:
    """One dispatcher that shares the state. `job_run_ids` are those that it holds, `launchers` what it can launch."""

    owner: str
    host: str
    pid: int
    started_s: float
    said_s: float
    queue: str
    sessions_max: int
    job_run_ids: tuple[str, ...] = ()
    launchers: tuple[str, ...] = ("local",)
    draining: bool = False
    lease_s: float = 60.0

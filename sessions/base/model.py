"""The records of a job run: plain values, kept as JSON below the state's URI.

    job-runs/run-1/run/…                       JobRun: its document, state and lease; replaced by compare-and-swap
    job-runs/run-1/sessions/day=2024-01-01/…   JobRunSession: one partition, its plan, progress and outcome; likewise
    job-runs/run-1/events/…                    each event once
    dispatchers/host-7.4711.…json              DispatcherSign: a dispatcher; written anew while it works

A job run that was claimed for the third time, with one session under way:

    JobRun          run-1    RUNNING   lease: owner host-7/4711, epoch 3    expected 412 s, 371 … 453
    JobRunSession   day=…    RUNNING   epoch 3, round 2 of 5, materialize   expected 412 s
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class JobRunState(enum.StrEnum):
    """ACCEPTED -> RUNNING -> SUCCEEDED, FAILED or CANCELLED.

    A job run fails if one of its sessions failed, or if the published table does not show what they have compacted.

    `job-runs retry`, or another submission under its id, brings a failed or cancelled job run back to ACCEPTED.
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
        """Whether another submission may use the job run's id again."""
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

    @property
    def compacted(self) -> bool:
        """Whether it has left nothing to compact: it has succeeded, or had nothing to do."""
        return self in (SessionState.SUCCEEDED, SessionState.NOTHING_TO_DO)


@dataclass(frozen=True, slots=True)
class Lease:
    """Who works on a job run. `epoch` grows by one with every claim; `renewals` makes each renewal's record differ.

    The lease is stale once the record, by the store's times, is older than `ttl_s` and the allowed skew together.
    """

    owner: str
    epoch: int
    ttl_s: float
    renewals: int = 0


BOUNDS = ("seconds", "low_s", "high_s", "promise_s")


@dataclass(frozen=True, slots=True)
class Estimate:
    """An expected SLA: seconds from the start of the session, with its 90 % interval, as of `at_s` (Unix seconds).

    `promise_s` is the promised latest end, which 99.3 % of sessions keep. It is never below `high_s`, which replaces it
    in older records. Estimates of CPU seconds have this shape, too.
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
        """The estimate whose bounds are `bound(name)`, for each name of BOUNDS."""
        seconds, low_s, high_s, promise_s = map(bound, BOUNDS)
        return cls(seconds, low_s, high_s, at_s, promise_s)

    def later(self, by_s: float, at_s: float) -> Estimate:
        """The estimate moved by `by_s` seconds, which may be negative. No bound gets below 0."""
        return Estimate.of(lambda bound: max(0.0, getattr(self, bound) + by_s), at_s)


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision of the planner. `reason` is a value of planning.reasons.PlanReason, `text` says it to people."""

    what: str
    value: Any
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """The resources of one session, and its expected time and cost.

    partition               partition values; for an Iceberg table the branch
    group                   sessions of one group share a process or cluster
    executor, launcher      executor of deltacompact; launcher of the control plane
    workers_…, node_type    number of nodes, and their type ("local": this machine), with `node_cpus` each
    slots                   tasks at a time, each with `memory_per_task_bytes`
    hash_bucket_count       0: the session takes those of the index that it finds
    peak_bytes              planned memory on one node
    memory_bytes            most memory of a process on this machine; 0: no bound
    mode                    rewrite, convert or upsert, for an Iceberg table
    start_s                 until the process or cluster is up; `expected` counts from then
    stage_s                 expected seconds by stage
    stream                  names the table and kind of session whose rates apply
    work, whole             terms of work on the busiest slot, and on all slots together (for `expected_cpu`)
    waits                   requests and cold starts
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
    node_cpus: int = 0


@dataclass(frozen=True, slots=True)
class Delay:
    """Why a session has not started: `reason` is a value of planning.reasons.Wait, `text` says it to people.

    `until_s` is the end of the delay, if it is known (Unix seconds).
    """

    reason: str
    text: str
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """A passing trouble that keeps a job run or session from going on: `cause` is a value of base.troubles.Cause.

    The trouble began at `since_s` and was met `tries` times; the next try is at `again_s`, by the store's clock.
    `rounds`: rounds that were completed when it began; a try that completes more ends it. `number`: a trouble that
    comes back after a long time is the session's next one.
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
    """How a job run ended before it was run again."""

    state: JobRunState
    finished_s: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a session is: `round` counts completed rounds.

    `share` is the done share of its work, from 0 to 1, by the planner's model.
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
    """What a session did: the counts, bytes and seconds of deltacompact's SessionResult.

    For an Iceberg table it counts what the `snapshots` of all attempts together did: `files_out` data files replaced
    `files_in`. Rows that were marked as deleted and stay in their files count only as `deleted`. Snapshot ids are text,
    because JavaScript's numbers cannot hold them.
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

    planned             the plan, where the latest attempt's dispatcher is too small for it; `plan` is then what it has
    engine_session_id   the engine's id of the session, which the seal carries; None on Iceberg tables
    attempt             the latest try ("run-1/3/2": epoch 3, the second try); a fence names it
    error               why the session, or its latest try, failed
    error_named         the error without data of the table: its class, and the files and columns that it names
    failures            failed tries
    delay               why it has not started
    cause, trouble      the passing cause of the latest failure, and since when it lasts
    life                how often its job run had ended before
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
    planned: SessionPlan | None = None
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

    @property
    def has_begun(self) -> bool:
        """Whether its latest attempt has begun. `error` does not tell: it may be of an earlier attempt."""
        return self.state is SessionState.RUNNING or self.progress.updated_s > 0


@dataclass(frozen=True, slots=True)
class JobRun:
    """One instruction document under way.

    message             the id of the queue's message
    late_heartbeats     lease renewals that came later than half the lease's time after the one before
    nearest_sla_s       the nearest SLA that can be promised, if the desired one cannot
    cpus_needed         the number of CPUs that would keep the desired SLA; None: no number would
    launchers           the launchers that its sessions are planned for
    failures            errors of the dispatchers that worked on it, which were not its sessions' and did not pass
    failed_session_ids  of its sessions, those that have failed, or whose records were gone or damaged
    unshown             the published table does not show what its sessions have compacted; `error` says why, until then
                        `trouble`
    trouble             the passing trouble that it waits for
    cancelling          a user has asked to cancel it
    earlier             how it ended before it was run again
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
    failed_session_ids: tuple[str, ...] = ()
    unshown: bool = False
    failures: int = 0

    @property
    def life(self) -> int:
        """How often the job run had ended before it was run again."""
        return len(self.earlier)


@dataclass(frozen=True, slots=True)
class DispatcherSign:
    """One dispatcher that shares the state, and works since the store last changed this object.

    `job_run_ids`: job runs that it holds. `launchers`: those that it has. `allow`: the catalogs that documents may
    name; None: an earlier release does not say. `said_s` is its own clock's time: earlier releases need the field.
    """

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
    allow: tuple[str, ...] | None = None

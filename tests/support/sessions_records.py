"""Job runs and sessions for tests of code that reads the records. The real state store writes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sessions.base.ids import session_id
from sessions.base.model import (
    Choice,
    Estimate,
    JobRun,
    JobRunSession,
    JobRunState,
    Lease,
    Outcome,
    Progress,
    SessionPlan,
    SessionState,
)

NOW_S = 1_795_300_000.0


def job_run(name: str = "run-1", **changes: Any) -> JobRun:
    document = {"version": 1, "catalog": "s3://lake/tables", "source_table_id": "orders", "desired_sla": 600}
    run = JobRun(
        name,
        document,
        JobRunState.RUNNING,
        accepted_s=NOW_S,
        started_s=NOW_S + 2,
        lease=Lease("host-7.4711.aa", 1, 60.0),
        desired_sla_s=600,
        expected_first=Estimate(412.0, 371.0, 453.0, NOW_S + 2),
        expected=Estimate(400.0, 380.0, 430.0, NOW_S + 40),
    )
    return replace(run, **changes)


def plan(partition: dict[str, str | None], **changes: Any) -> SessionPlan:
    planned = SessionPlan(
        partition=partition,
        group="group-1",
        executor="ray",
        node_type="r6in.4xlarge",
        workers_initial=2,
        workers_max=6,
        hash_bucket_count=64,
        rehash=False,
        rounds=5,
        delta_files=120,
        delta_rows=48_000_000,
        base_rows=900_000_000,
        bytes=310 << 30,
        peak_bytes=96 << 30,
        expected=Estimate(400.0, 371.0, 453.0, NOW_S),
        cost_usd=3.41,
        choices=(
            Choice("hash buckets", 64, "half_of_heap", "64 buckets fill half of a task's heap with 948 M rows"),
            Choice("rounds", 5, "object_store", "5 rounds of 9.6 M delta rows fit the object store"),
            Choice("workers", 6, "desired_sla", "6 workers are the fewest that end within 600 s, with the 10 % buffer"),
        ),
    )
    return replace(planned, **changes)


def session(day: str = "2024-01-01", run: str = "run-1", **changes: Any) -> JobRunSession:
    partition: dict[str, str | None] = {"day": day}
    made = JobRunSession(
        session_id(partition),
        run,
        partition,
        SessionState.RUNNING,
        epoch=1,
        attempts=1,
        plan=plan(partition),
        started_s=NOW_S + 5,
        expected_first=Estimate(400.0, 371.0, 453.0, NOW_S + 5),
        expected=Estimate(405.0, 380.0, 430.0, NOW_S + 60),
        progress=Progress("dedupe", 2, 5, 30, 64, 0.31, NOW_S + 60),
    )
    return replace(made, **changes)


OUTCOME = Outcome(
    seconds=391.5,
    rows_in=948_000_000,
    live=910_000_000,
    superseded=37_000_000,
    deleted=1_000_000,
    bytes_in=310 << 30,
    bytes_out=280 << 30,
    rounds=5,
    stage_seconds={"hash_bucket": 120.0, "dedupe": 90.0, "materialize": 170.0},
)


def succeeded(made: JobRunSession) -> JobRunSession:
    return replace(
        made, state=SessionState.SUCCEEDED, finished_s=(made.started_s or NOW_S) + OUTCOME.seconds, outcome=OUTCOME
    )

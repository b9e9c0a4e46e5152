"""One event in the shape of CloudEvents 1.0, which EventBridge and most brokers read.

    {"specversion": "1.0", "id": "run-1/session.round_completed~day=2024-01-01~2",
     "source": "/deltacompact/job-runs/run-1", "subject": "day=2024-01-01",
     "type": "deltacompact.session.round_completed", "time": "2024-01-02T03:04:05.678Z",
     "datacontenttype": "application/json", "data": {"job_run_id": "run-1", "round": 2, "rounds": 5, …}}

`id` is made of the facts of the event, so an event that is recorded or sent again has the same id. An event has names
(job run, table, session, partition values, which are parts of paths), numbers and reasons. It has no row value, no key
of a row, no credential, and no catalog's URI. `events.schema.json` beside this file has every type.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA_PATH = Path(__file__).with_name("events.schema.json")


class EventType(enum.StrEnum):
    JOB_RUN_ACCEPTED = "job_run.accepted"
    JOB_RUN_SUCCEEDED = "job_run.succeeded"
    JOB_RUN_FAILED = "job_run.failed"
    JOB_RUN_CANCELLED = "job_run.cancelled"
    JOB_RUN_DELAYED = "job_run.delayed"
    SLA_UPDATED = "sla.updated"
    SLA_NOT_PROMISED = "sla.not_promised"
    SESSION_STARTED = "session.started"
    ROUND_COMPLETED = "session.round_completed"
    REHASH_STARTED = "rehash.started"
    REHASH_COMPLETED = "rehash.completed"
    SESSION_SUCCEEDED = "session.succeeded"
    SESSION_FAILED = "session.failed"
    SESSION_CANCELLED = "session.cancelled"
    SESSION_DELAYED = "session.delayed"


@dataclass(frozen=True, slots=True)
class JobRunEvent:
    """`subject`: a session's id; "" if the event is about the whole job run. `ordinal` distinguishes events of one type
    and subject: the attempt, the round, the time of an estimate."""

    type: EventType
    job_run_id: str
    subject: str
    ordinal: int
    time_s: float
    data: dict[str, Any]

    @property
    def name(self) -> str:
        """The event's name, unique in its job run."""
        return f"{self.type}~{self.subject}~{self.ordinal}"

    def document(self) -> dict[str, Any]:
        return {
            "specversion": "1.0",
            "id": f"{self.job_run_id}/{self.name}",
            "source": f"/deltacompact/job-runs/{self.job_run_id}",
            **({"subject": self.subject} if self.subject else {}),
            "type": f"deltacompact.{self.type}",
            "time": datetime.fromtimestamp(self.time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "datacontenttype": "application/json",
            "data": {"job_run_id": self.job_run_id, **self.data},
        }

    def to_bytes(self) -> bytes:
        return json.dumps(self.document(), ensure_ascii=False, separators=(",", ":")).encode()

"""Plans a job run, runs its only group, and prints what that took in kB: python measured_group.py FOLDER BYTES DOCUMENT

The most resident memory of the process, and how much of it are libraries, which processes share.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from sessions.base.model import JobRun, JobRunState, SessionState
from sessions.cli.dispatch import dispatcher_of
from sessions.dispatch.attempts import SessionAttempts
from sessions.dispatch.planned import record_plans
from sessions.documents.instruction import of_values
from sessions.records.leases import claim
from sessions.runner.group import run_group


def run(folder: str, memory_bytes: int, document: dict[str, object]) -> None:
    """As a dispatcher plans, records and launches it."""
    allowed = (folder, "iceberg://prod")
    dispatcher = dispatcher_of(f"{folder}/queue", f"{folder}/state", allowed, memory_bytes=memory_bytes)
    state, means, name = dispatcher.state, dispatcher._means, str(document["job_run_id"])
    assert state.accept(JobRun(name, document, JobRunState.ACCEPTED, accepted_s=0.0))
    held = claim(state, state.job_run(name), "host.1.a", 600.0, 0.0)
    instruction = of_values(document)
    (session,) = record_plans(held, means, means.plan(instruction, True))
    assert session.plan.peak_bytes <= session.plan.memory_bytes == memory_bytes
    SessionAttempts(held, instruction).next(session.id)
    assert run_group(state.uri, name, session.plan.group, held.epoch) == 0
    ended = state.session(name, session.id).value
    assert ended.state is SessionState.SUCCEEDED, ended.error
    held.end(JobRunState.SUCCEEDED)


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
    status = Path("/proc/self/status").read_text()
    print(*(re.search(rf"{name}:\s+(\d+) kB", status)[1] for name in ("VmHWM", "RssFile")))

"""A dispatcher that runs for months, and one on a machine that has nothing left: no good job run fails for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import deltacompact
from sessions.base.exhaustion import exhausted
from sessions.base.model import JobRunState
from sessions.queues.opening import open_queue
from sessions.records.state_store import StateStore

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]

SOAK = """
import os, resource, sys, threading, time
from pathlib import Path
import psutil
from sessions.launchers.launcher import GroupSpec, GroupState
from sessions.launchers.local import LocalLauncher

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
launcher = LocalLauncher(Path(sys.argv[1]), int)  # int("state", …) raises: what each group does is nothing
launcher.ready()

def spec(number):
    name = f"run-{number}.1.g1.1.1"
    return GroupSpec(name, "s", "r", "g", 1, "local", "local", "local", 1, 1, 0)

def counted():
    own = psutil.Process()
    server = own.children()
    return own.num_fds(), threading.active_count(), len(server), len(own.children(recursive=True))

def round_of(numbers):
    for number in numbers:
        launcher.launch(spec(number))
    for number in numbers:
        while launcher.status(spec(number).id).state is GroupState.RUNNING:
            time.sleep(0.001)
        launcher.terminate(spec(number).id)
        assert launcher.status(spec(number).id).state is GroupState.UNKNOWN

round_of(range(8))
before = counted()
for first in range(8, 8 + 8 * int(sys.argv[2]), 8):
    round_of(range(first, first + 8))
assert counted() == before, (before, counted())
assert not launcher._groups and not launcher._dying
launcher.close()
print(*before)
"""

STARVED = """
import os, resource, signal, sys, threading, time
from sessions.base.logs import log_json
from sessions.base.settings import DispatcherSettings
from sessions.cli.dispatch import dispatcher_of
from sessions.records.state_store import StateStore

queue, state = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
log_json()
dispatcher = dispatcher_of(queue, state, settings=DispatcherSettings(drain=True, max_sessions=2, lease_s=5))

def starve():
    # It takes every descriptor that is left, lets go for a moment, and so on, while job runs are planned and launched.
    while not dispatcher._holding:
        time.sleep(0.001)
    while not dispatcher.stopping.gently.is_set():
        taken = []
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            time.sleep(0.7)
        for descriptor in taken:
            os.close(descriptor)
        time.sleep(0.7)

threading.Thread(target=starve, daemon=True).start()
dispatcher.run()
"""


def ran(script: str, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s)


def test_hundreds_of_groups_leave_no_descriptor_thread_or_process_behind(tmp_path):
    soaked = ran(SOAK, str(tmp_path), "40", timeout_s=240)
    assert soaked.returncode == 0, soaked.stderr[-3000:]


def test_job_runs_succeed_although_the_dispatcher_has_no_descriptor_left_now_and_then(tmp_path):
    catalog = deltacompact.open_catalog(str(tmp_path / "lake"))
    queue = open_queue(str(tmp_path / "queue"))
    for number in range(4):
        catalog.create_table(f"t{number}", primary_keys=["id"])
        catalog.append(f"t{number}", pa.table({"id": [1, 2, 3]}))
        document = {"version": 1, "catalog": str(tmp_path / "lake"), "source_table_id": f"t{number}"}
        queue.send(json.dumps({**document, "job_run_id": f"run-{number}"}))
    dispatched = ran(STARVED, str(tmp_path / "queue"), str(tmp_path / "state"), timeout_s=240)
    assert dispatched.returncode == 0, dispatched.stderr[-3000:]
    state = StateStore(str(tmp_path / "state"))
    runs = list(state.job_runs())
    assert [run.state for run in runs] == [JobRunState.SUCCEEDED] * 4, [run.error for run in runs]
    assert all(session.failures == 0 for run in runs for session in state.sessions(run.id))
    assert not list(queue.dead_letters())
    assert "Too many open files" in dispatched.stderr or "file descriptors" in dispatched.stderr, "it was starved"


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (OSError(24, "Too many open files"), "file descriptors of this process (ulimit -n)"),
        (BlockingIOError(11, "Resource temporarily unavailable"), "processes or memory"),
        (OSError(12, "Cannot allocate memory"), "memory"),
        (MemoryError(), "memory"),
        (RuntimeError("can't start new thread"), "threads"),
        (FileNotFoundError(2, "No such file"), None),
        (ValueError("no"), None),
    ],
)
def test_what_has_run_out_is_told_from_what_is_wrong(error, what):
    assert exhausted(error) == what
    try:
        try:
            raise error
        except Exception as cause:
            raise deltacompact.InputError("wrapped") from cause
    except deltacompact.InputError as wrapped:
        assert exhausted(wrapped) == what

"""Runs the command-line tools of launchers, and makes the names of clusters.

cluster_name("run-1.3.g0.1")     run-1-3-g0-1-e414a84c      letters, digits and dashes; no two ids share one
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deltacompact.base.errors import StoreError
from sessions.launchers.launcher import GroupSpec

NAME_CHARACTERS_MAX = 47
"""KubeRay's limit for the name of a RayJob, which must also be a DNS label."""

GROUP, JOB_RUN, EPOCH, STATE = "deltacompact-group", "deltacompact-job-run", "deltacompact-epoch", "deltacompact-state"
"""The tags of a cluster: they tell a reaper which job run and state it belongs to."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A process or cluster that a launcher finds there. `since_s` is when it was launched (Unix seconds)."""

    group_id: str
    job_run_id: str
    epoch: int
    since_s: float


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended, and what it printed."""

    exit_status: int
    output: str

    @property
    def last_line(self) -> str:
        lines = [line for line in self.output.splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else f"exit status {self.exit_status}"


def cluster_name(group_id: str) -> str:
    """The one name of a group's cluster, for every dispatcher."""
    digest = hashlib.sha256(group_id.encode()).hexdigest()[:8]
    words = re.sub(r"[^a-z0-9]+", "-", group_id.lower()).strip("-")
    words = words if words[:1].isalpha() else f"g-{words}"
    return f"{words[: NAME_CHARACTERS_MAX - 9].rstrip('-')}-{digest}"


def tags_of(spec: GroupSpec) -> dict[str, str]:
    """The tags of a cluster. They name the state, the job run and the group that it belongs to."""
    return {GROUP: spec.id, JOB_RUN: spec.job_run_id, EPOCH: str(spec.epoch), STATE: spec.state_uri}


def run(command: Sequence[str], timeout_s: float, standard_input: str = "") -> Ran:
    """Run a tool to its end. Raises StoreError if it is missing, or does not end in time."""
    try:
        done = subprocess.run(
            command,
            input=standard_input,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except FileNotFoundError as error:
        raise StoreError(f"{command[0]} is not installed here") from error
    except subprocess.TimeoutExpired as error:
        raise StoreError(f"{' '.join(command[:3])} did not end within {timeout_s:,.0f} s") from error
    return Ran(done.returncode, done.stdout)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def forwarding(command: Sequence[str], port: int, within_s: float) -> Iterator[None]:
    """Run a tool that forwards a port of this machine, until the block ends. Raises StoreError if it does not
    forward."""
    with tempfile.TemporaryFile() as printed:
        try:
            process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True)
        except FileNotFoundError as error:
            raise StoreError(f"{command[0]} is not installed here") from error
        try:
            deadline_s = time.monotonic() + within_s
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > deadline_s:
                    printed.seek(0)
                    told = Ran(process.returncode or 0, printed.read().decode(errors="replace")).last_line
                    raise StoreError(f"{' '.join(command[:2])} failed: {told}")
                time.sleep(0.05)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and the ssh that it has started
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as caller:
        caller.settimeout(1)
        return caller.connect_ex(("127.0.0.1", port)) == 0


def run_well(command: Sequence[str], timeout_s: float, standard_input: str = "") -> str:
    """The output of the tool. Raises StoreError with its last line if it failed."""
    ran = run(command, timeout_s, standard_input)
    if ran.exit_status:
        raise StoreError(f"{' '.join(command[:3])} failed: {ran.last_line}")
    return ran.output

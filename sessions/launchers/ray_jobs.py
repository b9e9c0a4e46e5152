"""Jobs on a Ray cluster, through the API of its dashboard: the only door to Ray's JobSubmissionClient.

    submit(NAME, command)     starts the job once, even if it is called again
    status(NAME)              PENDING, RUNNING      running
                              SUCCEEDED             ended, 0
                              FAILED, STOPPED       ended, with the driver's exit status if Ray knows it
                              no such job           unknown: the head has forgotten it, or is another head
                              no answer             StoreError: unknown for now, so it is asked again

The client needs `ray[default]`, as `ray up` does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

from deltacompact.base.errors import InputError, StoreError
from deltacompact.base.wording import one_line
from sessions.base.exits import EXIT_AGAIN, EXIT_ENDED
from sessions.launchers.launcher import GroupState, GroupStatus

_LOG_CHARACTERS_SHOWN = 64 << 10
_LACKING = "job runs on clusters need Ray's job client: pip install 'ray[default]'"


class Client(Protocol):
    """The part of ray.job_submission.JobSubmissionClient that we use. It raises RuntimeError if the cluster refuses."""

    def submit_job(self, *, entrypoint: str, submission_id: str, runtime_env: dict[str, Any]) -> str: ...

    def get_job_info(self, job_id: str) -> Any: ...

    def get_job_logs(self, job_id: str) -> str: ...


def check_installed() -> None:
    """Raise InputError where this machine lacks what the client and `ray up` need."""
    from ray._private.utils import get_dashboard_dependency_error

    if error := get_dashboard_dependency_error():
        raise InputError(_LACKING) from error


def open_client(address: str) -> Client:
    """The client of the dashboard at "http://host:port". Raises StoreError if that does not answer."""
    try:
        from ray.job_submission import JobSubmissionClient

        with _answering(address):
            client: Client = JobSubmissionClient(address)
            return client
    except (ImportError, InputError) as error:
        raise InputError(_LACKING) from error


def submit(client: Client, name: str, entrypoint: str, environment: dict[str, str]) -> None:
    """Start a job, if there is none of this name. Its driver and tasks get these variables. Raises StoreError."""
    with _answering(name):
        try:
            client.submit_job(entrypoint=entrypoint, submission_id=name, runtime_env={"env_vars": environment})
        except RuntimeError as error:
            if "already exists" not in str(error):
                raise


def status(client: Client, name: str) -> GroupStatus:
    """Raises StoreError if the cluster does not answer."""
    with _answering(name):
        try:
            info = client.get_job_info(name)
        except RuntimeError as error:
            if "does not exist" in str(error) or "404" in str(error):
                return GroupStatus(GroupState.UNKNOWN, text=one_line(error)[:300])
            raise
    text = str(info.message or "")[:300]
    match str(getattr(info.status, "value", info.status)):
        case "SUCCEEDED":
            return GroupStatus(GroupState.ENDED, EXIT_ENDED, text)
        case "FAILED" | "STOPPED":
            return GroupStatus(GroupState.ENDED, info.driver_exit_code or EXIT_AGAIN, text)
    return GroupStatus(GroupState.RUNNING, text=text)


def logs(client: Client, name: str) -> str:
    """The end of the job's log. Raises StoreError."""
    with _answering(name):
        return client.get_job_logs(name)[-_LOG_CHARACTERS_SHOWN:]


@contextlib.contextmanager
def _answering(what: str) -> Iterator[None]:
    """Turn errors of the client into StoreErrors of one line. Every error of the requests library is an OSError."""
    try:
        yield
    except RuntimeError as error:
        if "ray[default]" in str(error):
            raise InputError(one_line(error)) from error
        raise StoreError(f"the jobs of {what}: {one_line(error)[:300]}") from error
    except OSError as error:
        raise StoreError(f"the jobs of {what} cannot be asked: {one_line(error)[:300]}") from error

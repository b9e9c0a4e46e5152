"""Terminates clusters that nobody owns: their dispatcher died between launch and record, or could not end them.

    run-1.3.g0.1    run-1 runs, epoch 3            owned
    run-1.2.g0.1    run-1 runs, epoch 3            of an earlier owner: orphan
    run-0.1.g0.1    run-0 has ended                orphan
    run-9.1.g0.1    there is no such job run       orphan

An orphan is terminated after ten minutes: the owner of a job run that has just ended still cleans up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from deltacompact.base.errors import StoreError
from deltacompact.base.wording import one_line
from sessions.base.model import JobRun
from sessions.launchers.tools import Launched

GRACE_S = 600.0

_LOG = logging.getLogger("sessions")


class Reapable(Protocol):
    """A launcher whose groups outlive their dispatcher."""

    def launched(self) -> Iterable[Launched]: ...

    def terminate(self, group_id: str) -> None: ...


def orphans(launched: Iterable[Launched], job_runs: Mapping[str, JobRun]) -> list[Launched]:
    """The launched groups that no living job run owns. Pure."""
    return [group for group in launched if not _owned(group, job_runs.get(group.job_run_id))]


def due(
    found: Iterable[Launched], orphans_since_s: Mapping[str, float], now_s: float, grace_s: float
) -> list[Launched]:
    """The groups that have been orphans for `grace_s`. Pure."""
    return [group for group in found if now_s - orphans_since_s.get(group.group_id, now_s) >= grace_s]


def _owned(group: Launched, run: JobRun | None) -> bool:
    """Whether a living job run owns the group. While nobody holds the job run, its groups may work on."""
    return run is not None and not run.state.ended and (run.lease is None or group.epoch >= run.lease.epoch)


class Reaper:
    """Terminates orphans. Call `sweep` every few minutes, with job runs that were read after the listing."""

    def __init__(self, launcher: Reapable, grace_s: float = GRACE_S) -> None:
        self._launcher, self._grace_s = launcher, grace_s
        self._since_s: dict[str, float] = {}

    def listed(self) -> list[Launched]:
        """The launched groups. List them before job runs are read: then the job run of each group is recorded."""
        return list(self._launcher.launched())

    def sweep(self, listed: Iterable[Launched], job_runs: Mapping[str, JobRun], now_s: float) -> list[str]:
        """Terminate the orphans that are due, and return their ids. If one fails, it is tried again next time.

        `now_s`: by a clock that is never set.
        """
        found = orphans(listed, job_runs)
        self._since_s = {group.group_id: self._since_s.get(group.group_id, now_s) for group in found}
        gone = []
        for group in due(found, self._since_s, now_s, self._grace_s):
            try:
                self._launcher.terminate(group.group_id)
                gone.append(group.group_id)
                _LOG.warning("terminated %s: no living job run owns it", group.group_id)
            except StoreError as error:
                _LOG.error("the orphan %s could not be terminated: %s", group.group_id, one_line(error))
        return gone

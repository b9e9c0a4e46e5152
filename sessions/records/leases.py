"""Who works on a job run: a lease with a fencing epoch, in the record itself.

    run-1   no lease                                      claim    ->  owner a, epoch 1
    run-1   owner a, epoch 1, renewed 15 s ago            claim    ->  no: it is alive
    run-1   owner a, epoch 1, renewed 80 s ago, ttl 60    claim    ->  owner b, epoch 2: a takeover
    a wakes up and renews epoch 1                         its swap fails: LeaseLostError
    run-1   owner c, its calendar was set back a day      free, once we have seen the same version for 76 s

Age is what the store says of the record (Last-Modified) against what it says of an object that was put just now: no
calendar of ours is asked. Where the store's own is set back, as that of a folder is with its machine, what a dead
dispatcher has put seems fresh until the old time comes again. So a lease is stale as well once its record has stood
still for that long before our eyes. Every change of a job run's state is a swap by the holder, so that who has lost the
lease can change nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from sessions.base.clock import stale_after_s
from sessions.base.model import JobRun, JobRunState, Lease
from sessions.records.state_store import StateStore, StoredRecord

NOBODY = ""
"""The owner of a lease that was given back: the epoch goes on from it."""


class LeaseLostError(Exception):
    """Somebody else works on the job run now, or may."""


class Stillness:
    """For how long records have stood still before our eyes, by seconds of this process."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[tuple[str, ...], float]] = {}

    def of_s(self, stored: StoredRecord[JobRun]) -> float:
        """Seconds since this version was seen first, if no other was seen since."""
        now_s, written = time.monotonic(), stored.version.written[:1]
        known, since_s = self._since.get(stored.value.id, ((), now_s))
        if known != written:
            self._since[stored.value.id] = written, now_s
            return 0.0
        return now_s - since_s

    def keep(self, job_run_ids: Collection[str]) -> None:
        """Forget all others."""
        self._since = {name: seen for name, seen in self._since.items() if name in job_run_ids}


def is_free(stored: StoredRecord[JobRun], now_s: float, still_s: float = 0.0) -> bool:
    """Whether a job run may be claimed. `now_s` is the store's time; its record has stood still for `still_s`."""
    run, lease = stored.value, stored.value.lease
    if run.state.ended:
        return False
    if lease is None or lease.owner == NOBODY:
        return True
    return now_s > free_at_s(stored) or still_s > stale_after_s(lease.ttl_s)


def free_at_s(stored: StoredRecord[JobRun]) -> float:
    """When a lease that is not renewed any more becomes stale, by the store's clock."""
    lease = stored.value.lease
    return stored.modified_s + (stale_after_s(lease.ttl_s) if lease else 0.0)


def free_in_s(stored: StoredRecord[JobRun], now_s: float, still_s: float) -> float:
    """The same as seconds from now, at most those for which its record has to stand still."""
    lease = stored.value.lease
    return min(free_at_s(stored) - now_s, stale_after_s(lease.ttl_s) - still_s if lease else 0.0)


def claim(
    state: StateStore, stored: StoredRecord[JobRun], owner: str, ttl_s: float, now_s: float, still_s: float = 0.0
) -> HeldJobRun | None:
    """Take a job run that is free; None where it is not, or somebody else was faster."""
    if not is_free(stored, now_s, still_s):
        return None
    run, before = stored.value, stored.value.lease
    taken_over = before is not None and before.owner != NOBODY
    lease = Lease(owner, before.epoch + 1 if before else 1, ttl_s)
    claimed = state.change_job_run(stored, replace(run, lease=lease, takeovers=run.takeovers + taken_over))
    return HeldJobRun(state, claimed) if claimed else None


class HeldJobRun:
    """A job run under our lease. One thread renews it while another works on it."""

    def __init__(self, state: StateStore, stored: StoredRecord[JobRun]) -> None:
        assert stored.value.lease is not None
        self.state = state
        self.owner, self.epoch = stored.value.lease.owner, stored.value.lease.epoch
        self._stored = stored
        self._lock = threading.Lock()
        self._lost = False
        self._renewed_s = time.monotonic()

    @property
    def run(self) -> JobRun:
        return self._stored.value

    @property
    def lost(self) -> bool:
        return self._lost

    def change(self, **fields: Any) -> JobRun:
        """Replace the record. Raises LeaseLostError where it is no longer ours, StoreError where nobody can say."""
        with self._lock:
            return self._change(**fields)

    def renew(self) -> None:
        """Say that we live. Raises as `change` does."""
        with self._lock:
            lease = self.run.lease
            assert lease is not None
            late = time.monotonic() - self._renewed_s > lease.ttl_s / 2
            renewed = replace(lease, renewals=lease.renewals + 1)
            self._change(lease=renewed, late_heartbeats=self.run.late_heartbeats + late)
            self._renewed_s = time.monotonic()

    def release(self) -> None:
        """Give the job run back: others may claim it at once."""
        with self._lock:
            lease = self.run.lease
            assert lease is not None
            self._change(lease=replace(lease, owner=NOBODY))
            self._lost = True

    def end(self, state: JobRunState, **fields: Any) -> None:
        """The job run has ended: nobody works on it any more."""
        with self._lock:
            self._change(state=state, **fields)
            self._lost = True
        self.state.close(self.run)

    def _change(self, **fields: Any) -> JobRun:
        while not self._lost:
            swapped = self.state.change_job_run(self._stored, replace(self.run, **fields))
            if swapped is not None:
                self._stored = swapped
                return swapped.value
            found = self.state.job_run(self.run.id)
            if found.version.number == self._stored.version.number or not self._is_ours(found.value):
                self._lost = True
            self._stored = found  # or it was our own put, of which the reply was lost
        raise LeaseLostError(f"job run {self.run.id}: the lease of epoch {self.epoch} is lost")

    def _is_ours(self, run: JobRun) -> bool:
        return run.lease is not None and (run.lease.owner, run.lease.epoch) == (self.owner, self.epoch)

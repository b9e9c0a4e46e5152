"""Leases with a fencing epoch, in the record of a job run: they say which dispatcher works on it.

    run-1   no lease                                      claim    ->  owner a, epoch 1
    run-1   owner a, epoch 1, renewed 15 s ago            claim    ->  no: it is alive
    run-1   owner a, epoch 1, renewed 80 s ago, ttl 60    claim    ->  owner b, epoch 2: a takeover
    a wakes up and renews epoch 1                         its swap fails: LeaseLostError
    run-1   owner c, the store's clock set back a day     free, once we have seen the same version for 76 s

The age of a lease is the difference of two Last-Modified times of the store: that of an object put just now, and that
of the record. Our own clock does not matter. But the store's clock may be set back (for a folder, it is the machine's):
then a dead dispatcher's record looks fresh until the old time comes again. So a lease is stale, too, once we have seen
its record unchanged for that long. Only the holder changes a job run's state, by swaps, so a dispatcher that has lost
its lease can change nothing.
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
"""The owner of a lease that was given back. The lease stays in the record, because the next epoch counts on from its
epoch."""


class LeaseLostError(Exception):
    """Another dispatcher works on the job run now, or may."""


class Stillness:
    """How long we have seen records unchanged, by this process's monotonic clock."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[tuple[str, ...], float]] = {}

    def of_s(self, stored: StoredRecord[JobRun]) -> float:
        """Seconds since we first saw this version of a record."""
        now_s, written = time.monotonic(), stored.version.written[:1]
        known, since_s = self._since.get(stored.value.id, ((), now_s))
        if known != written:
            self._since[stored.value.id] = written, now_s
            return 0.0
        return now_s - since_s

    def keep(self, job_run_ids: Collection[str]) -> None:
        """Forget all other job runs."""
        self._since = {name: seen for name, seen in self._since.items() if name in job_run_ids}


def is_free(stored: StoredRecord[JobRun], now_s: float, still_s: float = 0.0) -> bool:
    """Whether a job run may be claimed. `now_s` is the store's time; we saw its record unchanged for `still_s`."""
    run, lease = stored.value, stored.value.lease
    if run.state.ended:
        return False
    if lease is None or lease.owner == NOBODY:
        return True
    return now_s > free_at_s(stored) or still_s > stale_after_s(lease.ttl_s)


def free_at_s(stored: StoredRecord[JobRun]) -> float:
    """When the lease becomes stale unless it is renewed, by the store's clock."""
    lease = stored.value.lease
    return stored.modified_s + (stale_after_s(lease.ttl_s) if lease else 0.0)


def free_in_s(stored: StoredRecord[JobRun], now_s: float, still_s: float) -> float:
    """Seconds until the lease is stale, by the store's clock or by the time that its record was unchanged."""
    lease = stored.value.lease
    return min(free_at_s(stored) - now_s, stale_after_s(lease.ttl_s) - still_s if lease else 0.0)


def claim(
    state: StateStore, stored: StoredRecord[JobRun], owner: str, ttl_s: float, now_s: float, still_s: float = 0.0
) -> HeldJobRun | None:
    """Claim a free job run. None: it is not free, or another dispatcher was faster."""
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
        self._lost = self._ended = False
        self._renewed_s = time.monotonic()

    @property
    def run(self) -> JobRun:
        return self._stored.value

    @property
    def lost(self) -> bool:
        return self._lost

    def change(self, **fields: Any) -> JobRun:
        """Replace the record. Raises LeaseLostError if the lease is no longer ours, StoreError if nobody can tell."""
        with self._lock:
            return self._change(**fields)

    def renew(self) -> None:
        """Renew the lease. Raises as `change` does."""
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
        """Record that the job run has ended, and give up the lease. May be repeated where the marks could not be
        changed."""
        with self._lock:
            if not self._ended:
                self._change(state=state, **fields)
                self._lost = self._ended = True
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
            self._stored = found  # if it is ours, the reply to our own put was lost
        raise LeaseLostError(f"job run {self.run.id}: the lease of epoch {self.epoch} is lost")

    def _is_ours(self, run: JobRun) -> bool:
        return run.lease is not None and (run.lease.owner, run.lease.epoch) == (self.owner, self.epoch)

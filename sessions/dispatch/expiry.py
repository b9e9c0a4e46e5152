"""Removes job runs that ended long ago, with all their objects.

    run-1    ended 40 days ago                          removed
    run-2    ended 40 days ago, events still to send    stays until they are sent or given up, a day after its end
    run-3    ended yesterday                            stays
    run-4    under way for 40 days                      stays
    run-5    its record cannot be read                  stays, and is named

The objects of a job run go in this order, so that an interruption does no harm:

    watch-ends/…          written first, if a trigger submitted it: how it ended, so no watcher submits it again
    open/run-1, ended/…   its marks: a mark in open/ is left if a dispatcher died before it removed that
    logs/run-1.…          the logs of its groups
    job-runs/run-1/…      sessions, groups, events
    job-runs/run-1/run/…  its record, last: as long as it is there, no other job run gets the id, and the next expiry
                          finds the rest

So does what triggers have left of a table that no watcher has looked at for as long, and for three days at least; a
mark in open/ whose record did not come within an hour; and what a killed process was writing into a folder.

An age is the store's time of an object that was put just now, minus its time of the record's last change.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, islice

from deltacompact.base.errors import DeltaCompactError, NotFoundError
from deltacompact.base.partitions import side_by_side
from deltacompact.base.wording import one_line
from deltacompact.storage.objects import ObjectStat, discard, unfinished
from sessions.base.model import JobRun
from sessions.base.settings import READ_AT_ONCE
from sessions.events.outbox import Outbox
from sessions.records.kept_logs import kept_logs
from sessions.records.state_store import BORN_WITHIN_S, OpenMark, StateStore, StoredRecord
from sessions.records.trigger_ends import remember_end
from sessions.records.unwatched import unwatched

_LOG = logging.getLogger("sessions")
_UNWATCHED_S = 3 * 24 * 3600.0


@dataclass(slots=True)
class Expired:
    """What an expiry did, or would do: ids of removed job runs and the number of their objects; ids that stay because
    events are unsent, or because the record is unreadable; the number of tables that nobody watches any more."""

    job_run_ids: list[str] = field(default_factory=list)
    objects: int = 0
    unsent: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    unwatched: int = 0

    def add(self, other: Expired) -> None:
        self.job_run_ids += other.job_run_ids
        self.objects += other.objects
        self.unsent += other.unsent
        self.unreadable += other.unreadable
        self.unwatched += other.unwatched


def expire(state: StateStore, older_than_s: float, dry_run: bool = False) -> Expired:
    """Remove the job runs that ended more than `older_than_s` seconds ago. Safe beside dispatchers, watchers and the
    page."""
    now_s = state.now_s()
    ended_before_s = now_s - older_than_s
    old = _OldJobRuns(state, ended_before_s, frozenset(Outbox(state.store).expected()), _logs(state), dry_run)
    done, left, folders = Expired(), set(), _folders(state)
    while some := list(islice(folders, READ_AT_ONCE)):
        for (job_run_id, _), of_one in zip(some, side_by_side(some, old.of, READ_AT_ONCE), strict=True):
            done.add(of_one)
            if not of_one.job_run_ids:
                left.add(job_run_id)
    for paths in unwatched(state.store, min(ended_before_s, now_s - _UNWATCHED_S), left):
        if not dry_run:
            state.store.delete(paths[:-1])
            state.store.delete(paths[-1:])
        done.unwatched += 1
        done.objects += len(paths)
    for mark in _unborn(state, min(ended_before_s, now_s - BORN_WITHIN_S)):
        if not dry_run:
            state.close_unborn(mark)
        done.objects += 1
    if state.folder is not None and not dry_run:
        discard(state.store, [begun for begun in unfinished(state.store, "") if begun.modified_s <= ended_before_s])
    return done


@dataclass(frozen=True, slots=True)
class _OldJobRuns:
    """`unsent`: job runs with events to send. `logs`: of groups, by job run."""

    state: StateStore
    ended_before_s: float
    unsent: frozenset[str]
    logs: Mapping[str, list[str]]
    dry_run: bool

    def of(self, folder: tuple[str, list[ObjectStat]]) -> Expired:
        """Expire one job run, if its time has come."""
        job_run_id, listed = folder
        if not any(stat.modified_s <= self.ended_before_s for stat in listed):
            return Expired()
        try:
            stored = self.state.job_run(job_run_id)
        except NotFoundError:
            return Expired()  # it is being accepted, or the folder is not a job run's
        except DeltaCompactError as error:
            _LOG.warning("job run %s stays: %s", job_run_id, one_line(error))
            return Expired(unreadable=[job_run_id])
        if not stored.value.state.ended or stored.modified_s > self.ended_before_s:
            return Expired()
        if job_run_id in self.unsent:
            return Expired(unsent=[job_run_id])
        paths, logs = [stat.path for stat in listed], self.logs.get(job_run_id, ())
        if not self.dry_run:
            _remove(self.state, stored, paths, logs)
        return Expired([job_run_id], len(paths) + len(logs))


def _remove(state: StateStore, stored: StoredRecord[JobRun], paths: Iterable[str], logs: Iterable[str]) -> None:
    run = stored.value
    remember_end(state.store, run.id, run.state)
    state.forget(run)
    record = f"job-runs/{run.id}/run/"
    state.store.delete([*logs, *(path for path in paths if not path.startswith(record))])
    try:
        same = state.job_run(run.id).version == stored.version
    except NotFoundError:
        return  # another expiry was faster
    if same:  # not a job run that was accepted under this id meanwhile
        state.store.delete([path for path in paths if path.startswith(record)])


def _unborn(state: StateStore, before_s: float) -> list[OpenMark]:
    """The marks that were put before that time for job runs without a record."""

    def is_unborn(mark: OpenMark) -> bool:
        try:
            state.job_run(mark.job_run_id)
        except NotFoundError:
            return True
        except DeltaCompactError:
            return False
        return False

    old = [mark for mark in state.open_job_runs() if mark.accepted_s <= before_s]
    return [mark for mark, unborn in zip(old, side_by_side(old, is_unborn, READ_AT_ONCE), strict=True) if unborn]


def _folders(state: StateStore) -> Iterator[tuple[str, list[ObjectStat]]]:
    """The objects below job-runs/, by job run. One listing; only a few job runs of it are in memory at once."""
    for job_run_id, listed in groupby(state.store.list("job-runs/"), key=lambda stat: stat.path.split("/", 2)[1]):
        yield job_run_id, list(listed)


def _logs(state: StateStore) -> Mapping[str, list[str]]:
    """The logs of groups that are in the state, by job run."""
    found: dict[str, list[str]] = defaultdict(list)
    for job_run_id, path in kept_logs(state.store):
        found[job_run_id].append(path)
    return found

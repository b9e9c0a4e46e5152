"""The state that dispatchers share: records of job runs, sessions and dispatchers, and marks to find job runs by.

    open/run-1                          run-1 was accepted and has not ended: a sweep starts from these marks
    open/run-2~1                        run-2 had ended, and runs again: its life 1
    ended/8204618700.run-1              run-1 has ended: the page lists the latest without reading all
    ended-indexed                       present once every ended job run has its mark in ended/
    job-runs/run-1/run/…                the record of run-1
    job-runs/run-1/sessions/day=…/…     one record for each partition
    job-runs/run-1/groups/g0.json       the sessions that share a process or cluster
    dispatchers/host-7.4711.1f….json    a live dispatcher writes this every few seconds
    clock                               written to read the store's time from its Last-Modified

Every job run that is accepted and not ended has a mark in open/:

    accept     put the mark, then the record
    end        swap the record, put the mark in ended/, then delete the mark in open/
    retry      a new life has a mark of its own, so a late DELETE for an earlier life never removes it

The number of a mark in ended/ counts the seconds until the year 2286, so the job run that ended last is listed first.
One request finds the latest job runs, however many have ended before.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from deltacompact.base.errors import CorruptionError, DeltaCompactError, InputError, NotFoundError
from deltacompact.base.partitions import side_by_side
from deltacompact.base.wording import one_line
from deltacompact.storage.objects import ObjectStore, is_there
from deltacompact.storage.opening import open_store
from sessions.base.clock import StoreClock, stale_after_s
from sessions.base.ids import JOB_RUN_ID
from sessions.base.model import DispatcherSign, JobRun, JobRunSession
from sessions.base.observer import Observer, Unobserved
from sessions.base.settings import READ_AT_ONCE
from sessions.base.unreadable import Unreadable
from sessions.records.swapping import SwappedRecords
from sessions.records.versions import NEW, Version

R = TypeVar("R", JobRun, JobRunSession)

_LOG = logging.getLogger("sessions")
_JOB_RUN, _SESSION, _DISPATCHER = TypeAdapter(JobRun), TypeAdapter(JobRunSession), TypeAdapter(DispatcherSign)
_GROUP = TypeAdapter(list[str])
_FORMAT = 2
"""The format of records. Format 1 had no number in it. We leave records of a later format alone."""
_INDEXED = "ended-indexed"
_LAST_S = 9_999_999_999
_ENDED = re.compile(rf"ended/[0-9]{{10}}\.(?P<id>{JOB_RUN_ID})")
_OPEN = re.compile(rf"open/(?P<id>{JOB_RUN_ID})(~(?P<life>[1-9][0-9]{{0,5}}))?")
_FOREIGN = InputError("it is no mark of a job run")
_FORGOTTEN_S = 24 * 3600
BORN_WITHIN_S = 3600.0
"""The record of a life follows its mark in open/ within this time, or whoever accepted it has died."""


@dataclass(frozen=True, slots=True)
class StoredRecord(Generic[R]):
    """A record, and the version that was read. A swap replaces exactly this version."""

    value: R
    version: Version

    @property
    def modified_s(self) -> float:
        return self.version.modified_s


@dataclass(frozen=True, slots=True)
class OpenMark:
    """A job run that has not ended. `accepted_s`, by the store's clock, is when its latest life was accepted."""

    job_run_id: str
    accepted_s: float
    life: int = 0


@dataclass(frozen=True, slots=True)
class DispatcherReport:
    """A dispatcher, and when it last wrote its record, by the store's clock."""

    dispatcher: DispatcherSign
    modified_s: float

    def silent_s(self, now_s: float) -> float:
        return max(0.0, now_s - self.modified_s)

    def is_there(self, now_s: float) -> bool:
        """Whether the dispatcher may still hold leases. A killed one counts until its leases are stale."""
        return self.silent_s(now_s) <= stale_after_s(self.dispatcher.lease_s)


class StateStore:
    """Records below a URI or in a store. Safe to use from several threads and processes."""

    def __init__(self, where: str | ObjectStore, observer: Observer | None = None) -> None:
        self.store = _opened(where) if isinstance(where, str) else where
        self.uri = self.store.uri
        self.unreadable = Unreadable()
        self._records = SwappedRecords(self.store, NEW, self.unreadable)
        self._observer = observer or Unobserved()

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None below an S3 prefix."""
        root = getattr(self.store, "root", None)
        return root if isinstance(root, Path) else None

    @property
    def is_missing(self) -> bool:
        """Whether the folder on this machine is not there: it may not be the one that was meant."""
        return self.folder is not None and not self.folder.exists()

    # Job runs

    def accept(self, run: JobRun) -> bool:
        """Record a new job run. False if it has a record already, ended or not."""
        try:
            self._records.read(_run_folder(run.id))
            return False
        except NotFoundError:
            pass
        is_new = self._mark_open(run)
        if not self._records.create(_run_folder(run.id), _value(_JOB_RUN, run)):
            return False
        if not is_new:
            self._mark_open(run)  # `close_unborn` may have deleted the one that was there
        self._tell(None, run)
        return True

    def job_run(self, job_run_id: str) -> StoredRecord[JobRun]:
        """Raises NotFoundError, CorruptionError."""
        stored = _stored(_JOB_RUN, self._records.read(_run_folder(job_run_id)))
        self.unreadable.forget(_run_folder(job_run_id))
        return stored

    def job_runs(self) -> Iterator[JobRun]:
        """All job runs, ended ones too, in the order of their ids. Unreadable ones are noted and left out."""
        for version in self._records.read_all("job-runs/", "/run"):
            if (stored := self._understood(_JOB_RUN, version)) is not None:
                yield stored.value

    def job_run_ids(self) -> Iterator[str]:
        """The ids of all job runs, in order. This lists, and reads no record."""
        last = None
        for stat in self.store.list("job-runs/"):
            name = stat.path.split("/", 2)[1]
            if name != last:
                yield (last := name)

    def open_job_runs(self) -> list[OpenMark]:
        """The job runs that have not ended, the longest accepted first."""
        named = {stat.path: (stat, _OPEN.fullmatch(stat.path)) for stat in self.store.list("open/")}
        self.unreadable.replace("open/", {path: _FOREIGN for path, (_, found) in named.items() if not found})
        marks = [
            OpenMark(found["id"], stat.modified_s, int(found["life"] or 0)) for stat, found in named.values() if found
        ]
        latest = {mark.job_run_id: mark for mark in sorted(marks, key=lambda mark: mark.life)}
        return sorted(latest.values(), key=lambda mark: (mark.accepted_s, mark.job_run_id))

    def change_job_run(self, stored: StoredRecord[JobRun], after: JobRun) -> StoredRecord[JobRun] | None:
        """Replace exactly the version that was read; None if somebody else has replaced it."""
        return self._swapped(_JOB_RUN, stored, after)

    def recently_ended(self, most: int) -> dict[str, str]:
        """The job runs that ended last, by id: the mark in ended/ of the latest end of each."""
        marks = [stat.path for stat in islice(self.store.list("ended/"), most)]
        named = [(found["id"], mark) for mark in marks if (found := _ENDED.fullmatch(mark))]
        return dict(reversed(named))  # an earlier end, whose mark was left behind, comes later in the listing

    def index_ended(self) -> None:
        """Put the marks in ended/ that earlier releases did not put. Reads every record, once in a state's life."""
        if not is_there(self.store, _INDEXED):
            for run in self.job_runs():
                if run.state.ended:
                    self.store.put(ended_mark(run), b"")
            self.store.put(_INDEXED, b"")

    def close(self, run: JobRun) -> None:
        """Mark a job run as ended, and delete the open marks of this life and of earlier ones."""
        assert run.state.ended
        self.store.put(ended_mark(run), b"")
        self.store.delete(_open_paths(run))

    def close_unborn(self, mark: OpenMark) -> None:
        """Delete the mark of a life that never began, because whoever accepted it died after putting the mark."""
        self.store.delete([_open_path(mark.job_run_id, mark.life)])
        with contextlib.suppress(NotFoundError):
            if (now := self.job_run(mark.job_run_id).value).life >= mark.life and not now.state.ended:
                self._mark_open(now)

    def reopen(self, stored: StoredRecord[JobRun], after: JobRun) -> StoredRecord[JobRun] | None:
        """Replace the record of an ended job run by that of its next life; None if somebody else was faster.

        The mark is put before the swap and again after it, because `close_unborn` may delete the first one in between.
        """
        self._mark_open(after)
        reopened = self._swapped(_JOB_RUN, stored, after)
        if reopened is not None:
            self._mark_open(after)
            self.store.delete([ended_mark(stored.value)])
        return reopened

    def _mark_open(self, run: JobRun) -> bool:
        """False if the mark was there."""
        return self.store.put_if_absent(_open_path(run.id, run.life), b"")

    def forget(self, run: JobRun) -> None:
        """Delete all marks of a job run whose record is deleted next."""
        assert run.state.ended
        before = [replace(run, finished_s=ending.finished_s) for ending in run.earlier]  # left if `reopen` was killed
        self.store.delete([*_open_paths(run), *map(ended_mark, [run, *before])])

    # Sessions

    def add_session(self, session: JobRunSession) -> bool:
        """Record a new session. False if it has a record already."""
        added = self._records.create(_session_folder(session), _value(_SESSION, session))
        if added:
            self._tell(None, session)
        return added

    def session(self, job_run_id: str, session_id: str) -> StoredRecord[JobRunSession]:
        """Raises NotFoundError."""
        return _stored(_SESSION, self._records.read(f"job-runs/{job_run_id}/sessions/{session_id}"))

    def changed_sessions(
        self, job_run_id: str, known: Mapping[str, StoredRecord[JobRunSession]]
    ) -> dict[str, StoredRecord[JobRunSession]]:
        """All sessions of a job run, by id. A `known` session is read again only if its record was replaced since."""
        folder = f"job-runs/{job_run_id}/sessions/"
        versions = {folder + name: stored.version for name, stored in known.items()}
        read = self._records.read_changed(folder, versions)
        now: dict[str, StoredRecord[JobRunSession]] = {}
        for path, version in read.items():
            name = path.removeprefix(folder)
            same = known.get(name) if version is versions.get(path) else None
            if (stored := same or self._understood(_SESSION, version)) is not None:
                now[name] = stored
        return now

    def stored_sessions(self, job_run_id: str) -> Iterator[StoredRecord[JobRunSession]]:
        for version in self._records.read_all(f"job-runs/{job_run_id}/sessions/"):
            if (stored := self._understood(_SESSION, version)) is not None:
                yield stored

    def sessions(self, job_run_id: str) -> Iterator[JobRunSession]:
        for stored in self.stored_sessions(job_run_id):
            yield stored.value

    def some_sessions(self, job_run_id: str, session_ids: Sequence[str]) -> list[JobRunSession]:
        """The named sessions, in this order. Raises NotFoundError where one is missing."""
        return side_by_side(session_ids, lambda name: self.session(job_run_id, name).value, READ_AT_ONCE)

    def change_session(
        self, stored: StoredRecord[JobRunSession], after: JobRunSession
    ) -> StoredRecord[JobRunSession] | None:
        """Replace exactly the version that was read; None where somebody else has replaced it."""
        return self._swapped(_SESSION, stored, after)

    # Groups

    def put_group(self, job_run_id: str, group: str, session_ids: Sequence[str]) -> None:
        """Say which sessions share a process or cluster."""
        self.store.put(_group_path(job_run_id, group), json.dumps(list(session_ids)).encode())

    def group(self, job_run_id: str, group: str) -> list[str]:
        """The ids of the sessions of a group. Raises NotFoundError, CorruptionError."""
        path = _group_path(job_run_id, group)
        try:
            return _GROUP.validate_json(self.store.get(path))
        except ValidationError:
            raise CorruptionError(f"{self.uri}{path} is damaged") from None

    # Dispatchers

    def now_s(self) -> float:
        """The time now by the store's clock."""
        self.store.put("clock", b"")
        return self.store.stat("clock").modified_s

    def tell(self, clock: StoreClock) -> bool:
        """Set a clock by the store's. False: the state is on this machine, or we may not write."""
        if self.folder is not None:
            return False
        with contextlib.suppress(DeltaCompactError):
            clock.told(self.now_s())
            return True
        return False

    def say(self, dispatcher: DispatcherSign) -> float:
        """Write a dispatcher's record. Returns the time by the store's clock."""
        path = _dispatcher_path(dispatcher.owner)
        self.store.put(path, _DISPATCHER.dump_json(dispatcher))
        return self.store.stat(path).modified_s

    def unsay(self, owner: str) -> None:
        """Remove the record of a dispatcher that has ended."""
        self.store.delete([_dispatcher_path(owner)])

    def dispatchers(self) -> Iterator[DispatcherReport]:
        """The dispatchers that have a record, killed ones too, and when each last wrote it."""
        damaged: dict[str, Exception] = {}
        for stat in self.store.list("dispatchers/"):
            try:
                yield DispatcherReport(_DISPATCHER.validate_json(self.store.get(stat.path)), stat.modified_s)
            except NotFoundError:
                continue  # gone meanwhile
            except (InputError, ValidationError) as error:
                damaged[stat.path] = error
        self.unreadable.replace("dispatchers/", damaged)

    def forget_dispatchers(self, now_s: float) -> None:
        """Remove the signs of dispatchers that have been silent for a day, also those that we cannot read."""
        silent = [stat.path for stat in self.store.list("dispatchers/") if now_s - stat.modified_s > _FORGOTTEN_S]
        self.store.delete([path for path in silent if path.endswith(".json")])

    # Inside

    def _swapped(self, kind: TypeAdapter[R], stored: StoredRecord[R], after: R) -> StoredRecord[R] | None:
        version = self._records.swap(stored.version, _value(kind, after))
        if version is None:
            return None
        self._tell(stored.value, after)
        return StoredRecord(after, version)

    def _understood(self, kind: TypeAdapter[R], version: Version) -> StoredRecord[R] | None:
        """A record of a listing; None, and a note, if we cannot read it."""
        try:
            stored = _stored(kind, version)
        except CorruptionError as error:
            self.unreadable.note(version.folder, error)
            return None
        self.unreadable.forget(version.folder)
        return stored

    def leave_out(self, job_run_id: str, error: Exception) -> None:
        """Note that a job run cannot be read. The others go on."""
        self.unreadable.note(_run_folder(job_run_id), error)

    def _tell(self, before: JobRun | JobRunSession | None, after: JobRun | JobRunSession) -> None:
        try:
            self._observer.changed(before, after)
        except Exception as error:
            _LOG.warning("an observer failed on %s: %s", after.id, one_line(error), exc_info=True)


def _opened(uri: str) -> ObjectStore:
    if not uri:
        raise InputError("--state is empty: name a folder or s3://bucket/prefix")
    store = open_store(uri)
    root = getattr(store, "root", None)
    if isinstance(root, Path) and root.exists() and not root.is_dir():
        raise InputError(f"state {root} is a file: name a folder or s3://bucket/prefix")
    return store


def _value(kind: TypeAdapter[R], record: R) -> Any:
    return {"format": _FORMAT, **kind.dump_python(record, mode="json")}


def _stored(kind: TypeAdapter[R], version: Version) -> StoredRecord[R]:
    """Raises CorruptionError for a record that we cannot read, so that we never replace what a newer release wrote."""
    format_ = version.value.get("format", 1) if isinstance(version.value, dict) else 1
    if format_ != 1 and format_ != _FORMAT:
        raise CorruptionError(
            f"{version.folder} has format {format_}, and this release reads 1 to {_FORMAT}: a newer one wrote it, "
            "so update this one"
        )
    try:
        return StoredRecord(kind.validate_python(version.value), version)
    except ValidationError as error:
        first = error.errors()[0]
        raise CorruptionError(f"{version.folder}: {first['msg']} at {first['loc']}") from None


def ended_mark(run: JobRun) -> str:
    """The mark of an ended job run. It differs for each of its ends."""
    ended_s = int(run.finished_s or run.accepted_s)
    return f"ended/{min(_LAST_S, max(0, _LAST_S - ended_s)):010d}.{run.id}"


def _open_path(job_run_id: str, life: int) -> str:
    return f"open/{job_run_id}~{life}" if life else f"open/{job_run_id}"


def _open_paths(run: JobRun) -> list[str]:
    """The paths of the open marks of all its lives. The version before used the mark of the first life for each."""
    return [_open_path(run.id, life) for life in range(run.life + 1)]


def _run_folder(job_run_id: str) -> str:
    return f"job-runs/{job_run_id}/run"


def _session_folder(session: JobRunSession) -> str:
    return f"job-runs/{session.job_run_id}/sessions/{session.id}"


def _group_path(job_run_id: str, group: str) -> str:
    return f"job-runs/{job_run_id}/groups/{group}.json"


def _dispatcher_path(owner: str) -> str:
    return f"dispatchers/{owner}.json"


def as_document(record: JobRun | JobRunSession | DispatcherSign) -> dict[str, Any]:
    """A record as JSON values."""
    match record:
        case JobRun():
            document: dict[str, Any] = _JOB_RUN.dump_python(record, mode="json")
        case JobRunSession():
            document = _SESSION.dump_python(record, mode="json")
        case DispatcherSign():
            document = _DISPATCHER.dump_python(record, mode="json")
    return document

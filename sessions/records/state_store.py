"""The state that dispatchers share: job runs, sessions, who works on what.

    open/run-1                          run-1 was accepted and has not ended: what a sweep looks at
    job-runs/run-1/run/…                its record
    job-runs/run-1/sessions/day=…/…     one record for each partition
    job-runs/run-1/groups/g0.json       which of them share a process or cluster
    dispatchers/host-7.4711.1f….json    said every few seconds; its Last-Modified is the store's clock
    clock                               put by whoever asks for the store's time

A mark in open/ is put before the record, and removed after the record says that the job run has ended: so a job run
that was accepted and has not ended always has its mark.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from deltacompact.base.errors import CorruptionError, InputError, NotFoundError
from deltacompact.base.wording import one_line
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import open_store
from sessions.base.model import Dispatcher, JobRun, Session
from sessions.base.observer import Observer, Unobserved
from sessions.records.swapping import SwappedRecords, Version

R = TypeVar("R", JobRun, Session)

_LOG = logging.getLogger("sessions")
_JOB_RUN, _SESSION, _DISPATCHER = TypeAdapter(JobRun), TypeAdapter(Session), TypeAdapter(Dispatcher)
_READERS = 16
_DISPATCHER_FORGOTTEN_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class Stored(Generic[R]):
    """A record and the version of it that was read: what a swap replaces."""

    value: R
    version: Version

    @property
    def modified_s(self) -> float:
        return self.version.modified_s


@dataclass(frozen=True, slots=True)
class OpenMark:
    """A job run that has not ended, and when it was accepted by the store's clock."""

    job_run_id: str
    accepted_s: float


@dataclass(frozen=True, slots=True)
class Said:
    """A dispatcher, and how long ago it was heard of by the store's clock."""

    dispatcher: Dispatcher
    modified_s: float


class StateStore:
    """Records below a URI or in a store. Safe to use from several threads and processes."""

    def __init__(self, where: str | ObjectStore, observer: Observer | None = None) -> None:
        self.store = _opened(where) if isinstance(where, str) else where
        self.uri = self.store.uri
        self._records = SwappedRecords(self.store)
        self._observer = observer or Unobserved()

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None below an S3 prefix."""
        root = getattr(self.store, "root", None)
        return root if isinstance(root, Path) else None

    # Job runs

    def accept(self, run: JobRun) -> bool:
        """Record a job run that nobody has recorded. False where it is there already, ended or not."""
        try:
            self._records.read(_run_folder(run.id))
            return False
        except NotFoundError:
            pass
        self._mark_open(run.id)
        if not self._records.create(_run_folder(run.id), _JOB_RUN.dump_python(run, mode="json")):
            return False
        self._tell(None, run)
        return True

    def job_run(self, job_run_id: str) -> Stored[JobRun]:
        """Raises NotFoundError."""
        return _stored(_JOB_RUN, self._records.read(_run_folder(job_run_id)))

    def job_runs(self) -> Iterator[JobRun]:
        """All job runs, ended ones as well, in the order of their ids."""
        for version in self._records.read_all("job-runs/", "/run"):
            yield _stored(_JOB_RUN, version).value

    def job_run_ids(self) -> Iterator[str]:
        """The ids of all job runs, in order. This lists, and reads no record."""
        last = None
        for stat in self.store.list("job-runs/"):
            name = stat.path.split("/", 2)[1]
            if name != last:
                yield (last := name)

    def open_job_runs(self) -> list[OpenMark]:
        """The job runs that have not ended, the longest accepted first."""
        marks = [OpenMark(stat.path.removeprefix("open/"), stat.modified_s) for stat in self.store.list("open/")]
        return sorted(marks, key=lambda mark: (mark.accepted_s, mark.job_run_id))

    def change_job_run(self, stored: Stored[JobRun], after: JobRun) -> Stored[JobRun] | None:
        """Replace exactly the version that was read; None where somebody else has replaced it."""
        return self._swapped(_JOB_RUN, stored, after)

    def close(self, run: JobRun) -> None:
        """Take the mark of a job run that has ended away, unless it was reopened meanwhile."""
        assert run.state.ended
        self.store.delete([f"open/{run.id}"])
        with contextlib.suppress(NotFoundError):
            if not self.job_run(run.id).value.state.ended:
                self._mark_open(run.id)

    def reopen(self, stored: Stored[JobRun], after: JobRun) -> Stored[JobRun] | None:
        """Replace the record of a job run that has ended by one that has not; None where somebody was faster.

        The mark is put before and after: whoever closes the former one meanwhile takes the first one away.
        """
        self._mark_open(after.id)
        reopened = self._swapped(_JOB_RUN, stored, after)
        if reopened is not None:
            self._mark_open(after.id)
        return reopened

    def _mark_open(self, job_run_id: str) -> None:
        self.store.put_if_absent(f"open/{job_run_id}", b"")

    # Sessions

    def add_session(self, session: Session) -> bool:
        """Record a session that nobody has recorded."""
        added = self._records.create(_session_folder(session), _SESSION.dump_python(session, mode="json"))
        if added:
            self._tell(None, session)
        return added

    def session(self, job_run_id: str, session_id: str) -> Stored[Session]:
        """Raises NotFoundError."""
        return _stored(_SESSION, self._records.read(f"job-runs/{job_run_id}/sessions/{session_id}"))

    def changed_sessions(self, job_run_id: str, known: Mapping[str, Stored[Session]]) -> dict[str, Stored[Session]]:
        """All sessions of a job run by id. Of those that are known, only those that were replaced are read."""
        folder = f"job-runs/{job_run_id}/sessions/"
        versions = {folder + name: stored.version for name, stored in known.items()}
        read = self._records.read_changed(folder, versions)
        return {
            path.removeprefix(folder): known[name] if version is versions.get(path) else _stored(_SESSION, version)
            for path, version in read.items()
            for name in [path.removeprefix(folder)]
        }

    def stored_sessions(self, job_run_id: str) -> Iterator[Stored[Session]]:
        for version in self._records.read_all(f"job-runs/{job_run_id}/sessions/"):
            yield _stored(_SESSION, version)

    def sessions(self, job_run_id: str) -> Iterator[Session]:
        for stored in self.stored_sessions(job_run_id):
            yield stored.value

    def some_sessions(self, job_run_id: str, session_ids: Sequence[str]) -> list[Session]:
        """The named sessions, in this order. Raises NotFoundError where one is missing."""
        with ThreadPoolExecutor(_READERS) as threads:
            return [stored.value for stored in threads.map(lambda name: self.session(job_run_id, name), session_ids)]

    def change_session(self, stored: Stored[Session], after: Session) -> Stored[Session] | None:
        """Replace exactly the version that was read; None where somebody else has replaced it."""
        return self._swapped(_SESSION, stored, after)

    # Groups

    def put_group(self, job_run_id: str, group: str, session_ids: Sequence[str]) -> None:
        """Say which sessions share a process or cluster."""
        self.store.put(_group_path(job_run_id, group), json.dumps(list(session_ids)).encode())

    def group(self, job_run_id: str, group: str) -> list[str]:
        """The ids of the sessions of a group. Raises NotFoundError."""
        session_ids: list[str] = json.loads(self.store.get(_group_path(job_run_id, group)))
        return session_ids

    # Dispatchers

    def now_s(self) -> float:
        """The time now by the store's clock."""
        self.store.put("clock", b"")
        return self.store.stat("clock").modified_s

    def say(self, dispatcher: Dispatcher) -> float:
        """Say that a dispatcher is there; the time now by the store's clock."""
        path = _dispatcher_path(dispatcher.owner)
        self.store.put(path, _DISPATCHER.dump_json(dispatcher))
        return self.store.stat(path).modified_s

    def unsay(self, owner: str) -> None:
        """Remove the record of a dispatcher that has ended."""
        self.store.delete([_dispatcher_path(owner)])

    def dispatchers(self) -> Iterator[Said]:
        """The dispatchers that have not ended in order, and when each was last heard of."""
        for stat in self.store.list("dispatchers/"):
            try:
                yield Said(_DISPATCHER.validate_json(self.store.get(stat.path)), stat.modified_s)
            except (NotFoundError, ValidationError):
                continue  # gone meanwhile, or no record of ours

    def forget_dispatchers(self, now_s: float) -> None:
        """Remove the dispatchers that have been silent for a day."""
        silent = [said for said in self.dispatchers() if now_s - said.modified_s > _DISPATCHER_FORGOTTEN_S]
        self.store.delete([_dispatcher_path(said.dispatcher.owner) for said in silent])

    # Inside

    def _swapped(self, kind: TypeAdapter[R], stored: Stored[R], after: R) -> Stored[R] | None:
        version = self._records.swap(stored.version, kind.dump_python(after, mode="json"))
        if version is None:
            return None
        self._tell(stored.value, after)
        return Stored(after, version)

    def _tell(self, before: JobRun | Session | None, after: JobRun | Session) -> None:
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


def _stored(kind: TypeAdapter[R], version: Version) -> Stored[R]:
    try:
        return Stored(kind.validate_python(version.value), version)
    except ValidationError as error:
        first = error.errors()[0]
        raise CorruptionError(f"{version.folder}: {first['msg']} at {first['loc']}") from None


def _run_folder(job_run_id: str) -> str:
    return f"job-runs/{job_run_id}/run"


def _session_folder(session: Session) -> str:
    return f"job-runs/{session.job_run_id}/sessions/{session.id}"


def _group_path(job_run_id: str, group: str) -> str:
    return f"job-runs/{job_run_id}/groups/{group}.json"


def _dispatcher_path(owner: str) -> str:
    return f"dispatchers/{owner}.json"


def as_document(record: JobRun | Session | Dispatcher) -> dict[str, Any]:
    """A record as JSON values."""
    match record:
        case JobRun():
            document: dict[str, Any] = _JOB_RUN.dump_python(record, mode="json")
        case Session():
            document = _SESSION.dump_python(record, mode="json")
        case Dispatcher():
            document = _DISPATCHER.dump_python(record, mode="json")
    return document

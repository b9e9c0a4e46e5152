"""The outbox: events wait beside the record of their job run until they are sent.

    pending/run-1                                          run-1 may have events that are not recorded or not sent
    job-runs/run-1/events/session.started~day=…~1.json     an event, put if absent: it never changes
    job-runs/run-1/events-sent/8f0c….json                  names of sent events, one object for each batch

An event is sent before it is marked. A crash in between sends it again.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable

from pydantic import TypeAdapter, ValidationError

from deltacompact.base.errors import InputError
from deltacompact.base.partitions import side_by_side
from deltacompact.base.wording import one_line
from deltacompact.storage.objects import ObjectStore
from sessions.base.settings import READ_AT_ONCE
from sessions.events.event import JobRunEvent

_LOG = logging.getLogger("sessions")
_BATCH = TypeAdapter(list[str])


class Outbox:
    """The events below the state's URI."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def record(self, event: JobRunEvent) -> bool:
        """Record an event. False: it is there already."""
        return self._store.put_if_absent(_path(event.job_run_id, event.name), event.to_bytes())

    def recorded(self, job_run_id: str) -> dict[str, float]:
        """Names of the events of a job run, and when each was recorded. Objects of others in their folder are left
        out."""
        folder, ending = f"job-runs/{job_run_id}/events/", ".json"
        listed = [(stat.path.removeprefix(folder), stat.modified_s) for stat in self._store.list(folder)]
        return {name.removesuffix(ending): at_s for name, at_s in listed if name.endswith(ending) and "/" not in name}

    def read(self, job_run_id: str, name: str) -> bytes:
        return self._store.get(_path(job_run_id, name))

    def sent(self, job_run_id: str) -> set[str]:
        """Names of the events that were sent."""
        paths = [stat.path for stat in self._store.list(f"job-runs/{job_run_id}/events-sent/")]
        return {name for batch in side_by_side(paths, self._batch, READ_AT_ONCE) for name in batch}

    def _batch(self, path: str) -> list[str]:
        try:
            return _BATCH.validate_json(self._store.get(path))
        except (InputError, ValidationError) as error:  # its events are sent again, with the same ids
            _LOG.warning("%s is left out: %s", path, one_line(error))
            return []

    def mark_sent(self, job_run_id: str, names: Iterable[str]) -> None:
        path = f"job-runs/{job_run_id}/events-sent/{uuid.uuid4().hex}.json"
        self._store.put(path, json.dumps(sorted(names)).encode())

    def expect(self, job_run_id: str) -> None:
        """Mark a job run that will have events, so that they are found after a crash, too."""
        self._store.put_if_absent(f"pending/{job_run_id}", b"")

    def expected(self) -> list[str]:
        """Job runs whose events may not all be recorded and sent."""
        return [stat.path.removeprefix("pending/") for stat in self._store.list("pending/")]

    def done(self, job_run_id: str) -> None:
        """Remove the mark: the job run has ended, and all its events are recorded and sent."""
        self._store.delete([f"pending/{job_run_id}"])


def _path(job_run_id: str, name: str) -> str:
    return f"job-runs/{job_run_id}/events/{name}.json"

"""What was submitted for a table, as a log of objects: who puts the next slot may submit.

    watch/5c5c…/00000000000000000003.json    policy, job run, partitions, when
    a watcher reads slots 0‥3, decides, puts 4: created      -> sends the document, which names job run watch-5c5c…-4
    another one reads 0‥3, decides, puts 4: exists           -> somebody was faster: decides anew at the next look

The slot is put before the document is sent. Whoever dies in between leaves a job run that no record knows; the next
look sends its document again, and a job run is accepted once however often it is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from deltacompact.storage.objects import ObjectStore
from sessions.base.model import JobRunState
from sessions.records.trigger_ends import remembered_ends, slot_path, submitted_id


@dataclass(frozen=True, slots=True)
class Submission:
    """One document that was submitted, or is about to be. `marks` name the last write to each partition then."""

    policy: str
    job_run_id: str
    partitions: tuple[dict[str, str | None], ...]
    at_s: float
    reason: str
    document: dict[str, Any]
    marks: tuple[str, ...] = ()


_KIND = TypeAdapter(Submission)


class Submissions:
    """The log of one table, by a text that names it and no other. What was read once is remembered."""

    def __init__(self, store: ObjectStore, table: str) -> None:
        digest = hashlib.sha256(table.encode()).hexdigest()[:16]
        self._store = store
        self._digest = digest
        self._folder = f"watch/{digest}/"
        self._known: list[Submission] = []

    def read(self) -> list[Submission]:
        """All submissions, the first one first."""
        last = self._path(len(self._known) - 1) if self._known else self._folder
        for stat in self._store.list(self._folder, last):
            if stat.path == self._path(len(self._known)):
                self._known.append(_KIND.validate_json(self._store.get(stat.path)))
        return list(self._known)

    def next_job_run_id(self, ahead: int = 0) -> str:
        return submitted_id(self._digest, len(self._known) + ahead)

    def put(self, submission: Submission) -> bool:
        """Take the next slot. False: somebody else has; read, and decide anew."""
        if not self._store.put_if_absent(self._path(len(self._known)), _KIND.dump_json(submission)):
            return False
        self._known.append(submission)
        return True

    def ends(self) -> dict[str, JobRunState]:
        """How job runs ended whose records have expired, by their ids."""
        return {
            submitted_id(self._digest, slot): state
            for slot, state in remembered_ends(self._store, self._digest).items()
        }

    def _path(self, number: int) -> str:
        return slot_path(self._digest, number)


def batches(partitions: list[dict[str, str | None]], most: int) -> Iterator[list[dict[str, str | None]]]:
    """A document names so many partitions at most."""
    for start in range(0, len(partitions), most):
        yield partitions[start : start + most]

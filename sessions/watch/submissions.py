"""The log of what was submitted for a table. Whichever watcher puts the next slot may submit.

    watch/5c5c…/00000000000000000003.json    policy, job run, partitions, when
    a watcher reads slots 0‥3, decides, puts 4: created      -> sends the document, which names job run watch-5c5c…-4
    another one reads 0‥3, decides, puts 4: exists           -> somebody was faster: decides anew at the next look

A watcher puts the slot before it sends the document. If it dies in between, the next look finds a slot whose job run
has no record, and sends the document again: a job run is accepted once, however often it is sent.

Slots of ended job runs are folded into one record, which keeps what decisions need, and removed.

    watch-history/5c5c…    read from slot 64 on, and slot 12, whose job run goes on; day=2024-01-01: last submitted by
                           "orders" at 10:00, 2 failures since

A watcher that puts a slot which was folded meanwhile sees that in the history, and does not submit. Slot 0 stays, as a
text that watchers of the version before cannot read: else they would begin at slot 0 again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from deltacompact.base.batching import batched
from deltacompact.base.errors import NotFoundError
from deltacompact.base.partitions import side_by_side
from deltacompact.storage.numbered import listed
from deltacompact.storage.objects import ObjectStore
from sessions.base.ids import session_id
from sessions.base.model import JobRun, JobRunState
from sessions.base.settings import READ_AT_ONCE
from sessions.base.unreadable import Unreadable
from sessions.records.swapping import SwappedRecords
from sessions.records.trigger_ends import (
    HISTORIES,
    forget_ends,
    remembered_ends,
    slot_path,
    slots_folder,
    submitted_id,
)

FOLDED_AT = 64
"""How many slots of ended job runs must be there before they are folded."""
_FOLDED = b'{"folded": "into watch-history/ by a newer release"}'


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


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job run ended. `failed`: the sessions that failed; empty in a failed job run: it failed as a whole."""

    state: JobRunState
    failed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, run: JobRun) -> Ended:
        """If only the published table was not brought up to date, no partition has failed: compactions go on."""
        compacted = run.unshown and not run.failed_session_ids
        return cls(JobRunState.SUCCEEDED if compacted else run.state, frozenset(run.failed_session_ids))

    def has_failed(self, session: str) -> bool:
        """Whether this session failed. A bad partition does not make the document's other partitions wait."""
        return self.state is JobRunState.FAILED and (not self.failed or session in self.failed)


@dataclass(frozen=True, slots=True)
class SubmittedPartition:
    """A partition's history: when each policy last submitted it, and with which mark; failures since a success."""

    last_s: dict[str, float] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    failures: int = 0

    def after(self, submission: Submission, place: int, ended: Ended | None, is_newer: bool) -> SubmittedPartition:
        """The same after one more submission, whose job run is open or has ended.

        `is_newer`: its slot comes after all others. Its time may lie before theirs, because clocks are set back.
        """
        marks = {submission.policy: submission.marks[place]} if submission.marks else {}
        failures = self.failures
        if ended is not None:
            failures = failures + 1 if ended.has_failed(session_id(submission.partitions[place])) else 0
        last_s = {submission.policy: submission.at_s}
        if is_newer:
            return SubmittedPartition({**self.last_s, **last_s}, {**self.marks, **marks}, failures)
        return SubmittedPartition({**last_s, **self.last_s}, {**marks, **self.marks}, failures)


@dataclass(frozen=True, slots=True)
class _FoldedSlots:
    """Slots below `next` were folded, except for those that are `open`."""

    next: int = 0
    open: tuple[int, ...] = ()
    partitions: dict[str, SubmittedPartition] = field(default_factory=dict)


_KIND, _HISTORY = TypeAdapter(Submission), TypeAdapter(_FoldedSlots)


class Submissions:
    """The log of one table. `table` is a text that names this table alone. Slots are read once and remembered."""

    def __init__(self, store: ObjectStore, table: str, unreadable: Unreadable | None = None) -> None:
        self.digest = hashlib.sha256(table.encode()).hexdigest()[:16]
        """The table's name in names of files."""
        self._store = store
        self._records = SwappedRecords(store)
        self._unreadable = Unreadable() if unreadable is None else unreadable
        self._known: dict[int, Submission] = {}
        self._folded = _FoldedSlots()
        self._next = 0
        self._is_stale = True

    def read(self) -> list[Submission]:
        """All submissions that are not folded, the first one first."""
        if self._is_stale or not self._read_new():
            self._read_history()
            self._read_new()
        return self.read_before

    def not_folded(self) -> list[Submission]:
        """All submissions that nobody has folded by now. Call `ends` first: folding a slot forgets its end."""
        self._read_history()
        return self.read_before

    @property
    def read_before(self) -> list[Submission]:
        return [self._known[slot] for slot in sorted(self._known)]

    def submitted(self, ended: Mapping[str, Ended]) -> dict[str, SubmittedPartition]:
        """The history of each partition, by its session's id. `ended`: the job runs that have."""
        return _merged(self._folded, sorted(self._known.items()), ended)

    def next_job_run_id(self) -> str:
        return submitted_id(self.digest, self._next)

    def put(self, submission: Submission) -> bool:
        """Put the next slot. False: another watcher has; read again, and decide anew."""
        slot = self._next
        if not self._store.put_if_absent(self._path(slot), _KIND.dump_json(submission)):
            return False
        if self._history().next > slot:  # it was taken, folded and removed since we read
            self._is_stale = True
            return False
        self._known[slot] = submission
        self._next = slot + 1
        return True

    def ends(self) -> dict[str, Ended]:
        """By id, how the job runs ended whose records have expired."""
        ends = remembered_ends(self._store, self.digest)
        return {submitted_id(self.digest, slot): Ended(state) for slot, state in ends.items()}

    def fold(self, known: Mapping[str, Ended], partitions: Container[str]) -> None:
        """Fold the slots whose job runs have ended, once there are many, for partitions that the table still has."""
        ended = [slot for slot, submission in self._known.items() if submission.job_run_id in known]
        if len(ended) < FOLDED_AT:
            return
        left = tuple(sorted(set(self._known) - set(ended)))
        merged = _merged(self._folded, ((slot, self._known[slot]) for slot in sorted(ended)), known)
        kept = {name: submitted for name, submitted in merged.items() if name in partitions}
        folded = _FoldedSlots(self._next, left, kept)
        self._is_stale = not self._replace_history(folded)
        if not self._is_stale:
            self._folded = folded
            if 0 in ended:
                self._store.put(self._path(0), _FOLDED)
            self._store.delete([self._path(slot) for slot in ended if slot])
            forget_ends(self._store, self.digest, ended)
            self._known = {slot: self._known[slot] for slot in left}

    def _read_new(self) -> bool:
        """Read the new slots. False: some are missing before them, because another watcher has folded."""
        new = listed(self._store, slots_folder(self.digest), self._next - 1 if self._next else None)
        end = next(slot for slot in itertools.count(self._next) if slot not in new)
        side_by_side(range(self._next, end), self._read_slot, READ_AT_ONCE)
        self._next = end
        return max(new, default=-1) < self._next

    def _read_slot(self, slot: int) -> None:
        path = self._path(slot)
        try:
            self._known[slot] = _KIND.validate_json(self._store.get(path))
        except NotFoundError:
            return  # it was folded just now
        except ValidationError as error:  # the others go on; what it submitted may be submitted once more
            self._unreadable.note(path, error)

    def _read_history(self) -> None:
        """Read the history, and drop the slots that a watcher has folded."""
        folded, self._is_stale = self._history(), False
        if folded != self._folded:
            gone = [slot for slot in self._known if slot < folded.next and slot not in folded.open]
            for slot in gone:
                del self._known[slot]
            side_by_side([slot for slot in folded.open if slot not in self._known], self._read_slot, READ_AT_ONCE)
            self._next = max(self._next, folded.next)
        self._folded = folded

    def _history(self) -> _FoldedSlots:
        try:
            return _HISTORY.validate_python(self._records.read(self._history_folder).value)
        except NotFoundError:
            return _FoldedSlots()

    def _replace_history(self, folded: _FoldedSlots) -> bool:
        """False if another watcher has folded meanwhile: the next look reads its history."""
        value = _HISTORY.dump_python(folded, mode="json")
        try:
            version = self._records.read(self._history_folder)
        except NotFoundError:
            return self._records.create(self._history_folder, value)
        if _HISTORY.validate_python(version.value) != self._folded:
            return False
        return self._records.swap(version, value) is not None

    @property
    def _history_folder(self) -> str:
        return f"{HISTORIES}{self.digest}"

    def _path(self, number: int) -> str:
        return slot_path(self.digest, number)


def _merged(
    folded: _FoldedSlots, submissions: Iterable[tuple[int, Submission]], ended: Mapping[str, Ended]
) -> dict[str, SubmittedPartition]:
    found = dict(folded.partitions)
    for slot, submission in submissions:
        for place, partition in enumerate(submission.partitions):
            name = session_id(partition)
            found[name] = found.get(name, SubmittedPartition()).after(
                submission, place, ended.get(submission.job_run_id), slot >= folded.next
            )
    return found


_BYTES_MAX = 200_000
"""Room for the partitions of one document: SQS often takes messages of 256 KiB, and the rest of a document is short."""


def batches(partitions: list[dict[str, str | None]], most: int) -> Iterator[list[dict[str, str | None]]]:
    """Partitions for one document each: at most `most`, and no more than fit into one message."""
    return batched(partitions, lambda partition: len(json.dumps(partition)) + 2, _BYTES_MAX, most)

"""Commits a proposal to a branch, attempt after attempt, until one of them surely took effect.

    attempt 1    head 8: propose, write manifests, commit        refused: somebody committed 9 meanwhile
    attempt 2    head 9: propose, write manifests, commit        no answer
                 the table has our snapshot id                   attempt 2 landed

Everything is built on the head of each attempt, so an append meanwhile costs one more attempt and no work. A snapshot
has one id in all attempts: whether an attempt took effect is seen by its id (rule 20). Until that is known, none of the
files that it names is deleted.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeAlias

from deltacompact.base.errors import ConflictError, InputError, Interrupted, OutcomeUnknownError
from deltacompact.base.wording import text_of
from deltacompact.catalog.iceberg.commit.attempts import ATTEMPT, current_attempt, refuse_superseded
from deltacompact.catalog.iceberg.commit.proposal import Outcome, Propose
from deltacompact.catalog.iceberg.commit.snapshots import Draft, draft_snapshot
from deltacompact.catalog.iceberg.table import locations
from deltacompact.catalog.iceberg.table.metadata import SESSION, Snapshot, TableMetadata
from deltacompact.catalog.iceberg.table.pyiceberg_door import CommitUnansweredError, IcebergTable
from deltacompact.catalog.iceberg.table.table_state import StateReader
from deltacompact.storage.objects import ObjectStore

ATTEMPTS_MAX = 100
UNANSWERED_MAX = 8
"""After so many attempts without an answer we stop asking, and keep every file that they name."""
_WAIT_FIRST_S, _WAIT_LONGEST_S = 0.05, 5.0


RETRIES = "commit.retry.num-retries"


def retries_of(metadata: TableMetadata) -> int:
    """How often a commit is tried again. Raises InputError if the table's property is not a whole number."""
    text = metadata.properties.get(RETRIES, str(ATTEMPTS_MAX)).strip()
    if not text.isascii() or not text.isdigit():
        raise InputError(f"table {metadata.table_id!r} has {RETRIES} {text!r}, which is not a whole number")
    return int(text)


Drafting: TypeAlias = Callable[[TableMetadata, int], tuple[Draft | None, Outcome]]
"""Writes the files of the snapshot with this id on the table of now. None: nothing is left to change."""


@dataclass(frozen=True, slots=True)
class Committed(Generic[Outcome]):
    """What became of a proposal. `snapshot` is None if nothing was left to change; `table` is as it is after."""

    table: IcebergTable
    snapshot: Snapshot | None
    outcome: Outcome
    attempts: int = 1


@dataclass(slots=True)
class _Tries(Generic[Outcome]):
    """The attempts at one snapshot: their drafts, and how many may have been carried out without our knowing."""

    snapshot_id: int
    drafts: list[tuple[Draft, Outcome]] = field(default_factory=list)
    unanswered: int = 0

    def landed(self, table: IcebergTable) -> tuple[Snapshot, Outcome] | None:
        """The attempt that took effect after all."""
        found = table.metadata.snapshots.get(self.snapshot_id)
        if found is None:
            return None
        return next(
            (draft.snapshot, outcome)
            for draft, outcome in self.drafts
            if draft.snapshot.manifest_list == found.manifest_list
        )


@dataclass(frozen=True, slots=True)
class Committer:
    """Commits to one branch. `session` names us in the snapshots' summaries; `wait` sleeps between attempts.

    `attempt` is the scheduler's name for us, if there is one: see commit/attempts.py. `before_attempt` is called with
    the snapshot's id once the head of an attempt is known. If it raises, that attempt is not made.
    """

    store: ObjectStore
    reader: StateReader
    branch: str
    session: str
    wait: Callable[[float], None] = time.sleep
    attempt: str | None = field(default_factory=current_attempt)
    before_attempt: Callable[[int], None] = lambda snapshot_id: None

    def commit(self, table: IcebergTable, propose: Propose[Outcome]) -> Committed[Outcome]:
        """Commit what is proposed on the head of now: entries to remove and entries to add. Raises as `land` does."""

        def drafting(metadata: TableMetadata, snapshot_id: int) -> tuple[Draft | None, Outcome]:
            state = self.reader.read(metadata, self.branch)
            proposal = propose(state)
            if proposal.is_empty:
                return None, proposal.outcome
            self.before_attempt(snapshot_id)
            draft = draft_snapshot(self.store, self.reader, state, proposal, snapshot_id, self.names)
            return draft, proposal.outcome

        return self.land(table, drafting)

    def land(self, table: IcebergTable, drafting: Drafting[Outcome]) -> Committed[Outcome]:
        """Commit what is drafted on the head of now.

        Raises ConflictError after too many attempts or if we were given up, InputError if the catalog does not let us,
        and OutcomeUnknownError (Interrupted after Ctrl-C, or if a signal ends this process) if nobody knows what
        happened to an attempt; then the written files must stay.
        """
        tries: _Tries[Outcome] = _Tries(secrets.randbits(63) or 1)
        table_id = table.metadata.table_id
        unknown = (
            f"{table_id}: the catalog did not say whether snapshot {tries.snapshot_id} was committed; all files "
            "that it names are kept. Compact again: the table itself shows what happened"
        )
        try:
            if (done := self._tried(table.reloaded(), drafting, tries)) is not None:
                return done
        except Exception as error:
            if tries.unanswered:
                raise OutcomeUnknownError(f"{unknown} ({text_of(error)})") from error
            raise
        except BaseException as stopped:
            if tries.unanswered:
                raise Interrupted(unknown) from stopped
            raise
        if tries.unanswered:
            raise OutcomeUnknownError(unknown)
        raise ConflictError(f"{table_id}: other commits came first, again and again")

    @property
    def names(self) -> dict[str, str]:
        """Who we are, for the summary."""
        return {SESSION: self.session} | ({ATTEMPT: self.attempt} if self.attempt else {})

    def _tried(
        self, table: IcebergTable, drafting: Drafting[Outcome], tries: _Tries[Outcome]
    ) -> Committed[Outcome] | None:
        """Attempt after attempt, each on the head of now. None: none of them surely took effect."""
        attempts = retries_of(table.metadata) + 1
        for attempt in range(1, attempts + 1):
            if (landed := tries.landed(table)) is not None:
                return Committed(table, *landed, attempt - 1)
            refuse_superseded(table.metadata.snapshots.values(), self.attempt)
            draft, outcome = drafting(table.metadata, tries.snapshot_id)
            if draft is None:
                return None if tries.unanswered else Committed(table, None, outcome, attempt)
            tries.drafts.append((draft, outcome))
            tries.unanswered += 1
            try:
                after = table.commit(draft.snapshot, self.branch)
                return Committed(after, draft.snapshot, outcome, attempt)
            except CommitUnansweredError:
                if tries.unanswered == UNANSWERED_MAX:
                    return None
            except ConflictError:
                tries.unanswered -= 1
                table = table.reloaded()
                if tries.landed(table) is None:
                    self._forget(draft, tries)
            except InputError:  # it is not allowed: nothing has happened, and trying again would not help
                tries.unanswered -= 1
                self._forget(draft, tries)
                raise
            self.wait(min(_WAIT_LONGEST_S, _WAIT_FIRST_S * 2 ** min(attempt, 10)) * random.uniform(0.5, 1.0))
            table = table.reloaded()
        return None

    def _forget(self, draft: Draft, tries: _Tries[Outcome]) -> None:
        """Delete the metadata of an attempt that surely had no effect. The data files are still wanted."""
        tries.drafts = [(other, outcome) for other, outcome in tries.drafts if other is not draft]
        for path in draft.files:
            locations.discard(self.store, path)

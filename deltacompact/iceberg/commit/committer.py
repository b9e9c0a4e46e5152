"""Commits a proposal to a branch, attempt after attempt, until we know that one took effect.

    attempt 1    head 8: propose, write manifests, commit        refused: somebody committed 9 meanwhile
    attempt 2    head 9: propose, write manifests, commit        no answer
                 the table has our snapshot id                   attempt 2 landed

Each attempt is built on the current head, so a foreign append costs one more attempt and no work. A proposal that had
to read what others deleted took its time, so we look for a newer head before we draft it. A snapshot keeps its id in
all attempts. After each attempt we load the table, and look for that id (rule 20). We look after a refusal, too: a
proxy may have sent the commit twice, and handed on the second answer. Until we know that an attempt had no effect, we
delete none of the files that it names.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import Generic, TypeAlias

from deltacompact.base.errors import (
    ConflictError,
    CredentialsError,
    DeltaCompactError,
    InputError,
    Interrupted,
    NotFoundError,
    OutcomeUnknownError,
)
from deltacompact.base.wording import text_of
from deltacompact.iceberg.commit.attempts import ATTEMPT, current_attempt, refuse_superseded
from deltacompact.iceberg.commit.beside import Beside
from deltacompact.iceberg.commit.patience import UNANSWERED_MAX, Patience
from deltacompact.iceberg.commit.proposal import Outcome, Proposal, Propose
from deltacompact.iceberg.commit.snapshots import Draft, KeptManifests, draft_snapshot
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.metadata import SESSION, Snapshot
from deltacompact.iceberg.table.pyiceberg_door import (
    CommitRefusedError,
    CommitThrottledError,
    CommitUnansweredError,
    IcebergTable,
)
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.storage.identity import file_name
from deltacompact.storage.objects import ObjectStore

Drafting: TypeAlias = Callable[[IcebergTable, int, Beside], tuple[IcebergTable, Draft | None, Outcome]]
"""Begins to write the metadata files of a snapshot with this id. Returns the table on which the draft builds: the given
one, or a newer one if others have committed meanwhile. Draft None: nothing is left to change."""
Refusal: TypeAlias = ConflictError | InputError | CredentialsError
"""Says that an attempt had no effect. After a ConflictError, another one may have."""
LOOKS_MAX = 5
"""How often an attempt proposes, at most, while others commit."""


@dataclass(frozen=True, slots=True)
class Committed(Generic[Outcome]):
    """What became of a proposal. `snapshot` is None if nothing was left to change; `table` was loaded afterwards."""

    table: IcebergTable
    snapshot: Snapshot | None
    outcome: Outcome
    attempts: int = 1


@dataclass(slots=True)
class _SnapshotTries(Generic[Outcome]):
    """The attempts at one snapshot: their drafts, and how many (`unanswered`) may have taken effect unseen."""

    snapshot_id: int
    drafts: list[tuple[Draft, Outcome]] = field(default_factory=list)
    refused: list[Draft] = field(default_factory=list)
    """Attempts that surely had no effect. Their files are there: a later one may name some of them, too."""
    unanswered: int = 0
    said: str = ""
    """Why the last attempt failed."""

    def landed(self, table: IcebergTable) -> tuple[Snapshot, Outcome] | None:
        """The attempt that took effect, if one did. Manifest lists are compared by file name, because a server may
        write their locations in another form."""
        found = table.metadata.snapshots.get(self.snapshot_id)
        for draft, outcome in self.drafts:
            if found is not None and file_name(draft.snapshot.manifest_list) == file_name(found.manifest_list):
                return draft.snapshot, outcome
        return None


@dataclass(frozen=True, slots=True)
class Committer:
    """Commits to one branch. `session` names us in the snapshots' summaries; `wait` sleeps between attempts.

    attempt           the scheduler's name for us, if there is one: see commit/attempts.py
    on_head           called with the snapshot's id when the head of an attempt is known, and again if
                      `before_attempt` returned a function
    before_attempt    called with the snapshot's id when its proposal is known
    after_refusal     called when an attempt surely had no effect, and never will have

    The first two may return a function, which runs on a thread beside ours: that of `before_attempt` ends before a file
    is written, that of `on_head` before the swap. If one raises, the attempt is not made.
    """

    store: ObjectStore
    reader: StateReader
    branch: str
    session: str
    wait: Callable[[float], None] = time.sleep
    attempt: str | None = field(default_factory=current_attempt)
    on_head: Callable[[int], Callable[[], None] | None] = lambda snapshot_id: None
    before_attempt: Callable[[int], Callable[[], None] | None] = lambda snapshot_id: None
    after_refusal: Callable[[], None] = lambda: None

    def commit(self, table: IcebergTable, propose: Propose[Outcome]) -> Committed[Outcome]:
        """Commit what is proposed on the current head: entries to remove and entries to add. Raises as `land` does."""
        kept = KeptManifests()

        def drafting(
            table: IcebergTable, snapshot_id: int, beside: Beside
        ) -> tuple[IcebergTable, Draft | None, Outcome]:
            table, state, proposal = self._proposed(table, propose, lambda: beside.ask(self.on_head(snapshot_id)))
            if proposal.is_empty:
                return table, None, proposal.outcome
            if (record := self.before_attempt(snapshot_id)) is not None:
                beside.record(record)
                beside.ask(self.on_head(snapshot_id))
            put = functools.partial(beside.put, self.store)
            draft = draft_snapshot(put, beside.now_ms, self.reader, state, proposal, snapshot_id, self.names, kept)
            return table, draft, proposal.outcome

        return self.land(table, drafting)

    def _proposed(
        self, table: IcebergTable, propose: Propose[Outcome], on_head: Callable[[], None]
    ) -> tuple[IcebergTable, TableState, Proposal[Outcome]]:
        """The table as it is, its branch, and what is proposed there. `on_head` is told of each head."""
        for look in range(LOOKS_MAX):
            if look:
                newer = table.reloaded()
                if not _has_changed(table, newer):
                    break
                table = newer
                refuse_superseded(table.metadata.snapshots.values(), self.attempt)
            on_head()
            state = self.reader.read(table.metadata, self.branch)
            proposal = propose(state)
            if not proposal.has_followed:
                break
        return table, state, proposal

    def land(self, table: IcebergTable, drafting: Drafting[Outcome]) -> Committed[Outcome]:
        """Commit what is drafted on the current head.

        Raises ConflictError after too many attempts, or if the scheduler gave us up; InputError if the catalog forbids
        the commit; CredentialsError if ours have expired; OutcomeUnknownError if an attempt may have taken effect
        (Interrupted, if Ctrl-C or a signal ended it, or after the commit). After OutcomeUnknownError and Interrupted,
        the written files must stay.
        """
        table = table.reloaded()
        tries: _SnapshotTries[Outcome] = _SnapshotTries(_new_id(table.metadata.snapshots))
        table_id = table.metadata.table_id
        unknown = (
            f"{table_id}: the catalog did not say whether snapshot {tries.snapshot_id} was committed; all files "
            "that it names are kept. Run it again: the table itself shows what happened"
        )
        done: Committed[Outcome] | None = None
        try:
            try:
                with Beside() as beside:
                    done = self._tried(table, drafting, tries, beside)
            finally:
                self._forget(tries)
        except Exception as error:
            if tries.unanswered:
                raise OutcomeUnknownError(f"{unknown} ({text_of(error)})") from error
            raise
        except BaseException as stopped:
            if done is not None and done.snapshot is not None:
                landed = f"snapshot {done.snapshot.snapshot_id} is committed. Compact again: it clears what is left"
                raise Interrupted(f"{table_id}: {landed}") from stopped
            if tries.unanswered:
                raise Interrupted(unknown) from stopped
            raise
        if done is not None:
            return done
        if tries.unanswered:
            raise OutcomeUnknownError(f"{unknown} ({tries.said})")
        raise ConflictError(f"{table_id}: other commits came first, again and again ({tries.said})")

    @property
    def names(self) -> dict[str, str]:
        """Who we are, for the summary."""
        return {SESSION: self.session} | ({ATTEMPT: self.attempt} if self.attempt else {})

    def _tried(
        self, table: IcebergTable, drafting: Drafting[Outcome], tries: _SnapshotTries[Outcome], beside: Beside
    ) -> Committed[Outcome] | None:
        """Attempt after attempt, each on the current head. None: we know of none that took effect."""
        patience = Patience.of(table.metadata.properties)
        deadline = time.monotonic() + patience.total_s
        for attempt in range(1, patience.attempts + 1):
            refuse_superseded(table.metadata.snapshots.values(), self.attempt)
            table, draft, outcome = drafting(table, tries.snapshot_id, beside)
            if draft is None:
                return None if tries.unanswered else Committed(table, None, outcome, attempt)
            try:
                beside.finish()
            except BaseException:
                tries.refused.append(draft)
                raise
            tries.drafts.append((draft, outcome))
            tries.unanswered += 1  # until the table shows what happened
            refused: Refusal | None = None
            staged: list[str] = []
            try:
                after = table.commit(
                    draft.snapshot,
                    self.branch,
                    draft.properties,
                    draft.properties_gone,
                    draft.statistics,
                    staged=staged.append,
                )
                return Committed(after, draft.snapshot, outcome, attempt)
            except CommitUnansweredError as error:
                tries.said = text_of(error)
            except (ConflictError, InputError, CredentialsError) as error:
                refused, tries.said = error, text_of(error)
            if refused is None or isinstance(refused, ConflictError):
                is_lost = refused is not None and not isinstance(refused, CommitThrottledError)
                self.wait(patience.wait_s(attempt, is_lost))
            table, before = self._looked(table, tries, refused), table
            if (landed := tries.landed(table)) is not None:
                return Committed(table, *landed, attempt)
            if refused is not None:
                tries.unanswered -= 1
                tries.drafts = [known for known in tries.drafts if known[0] is not draft]
                tries.refused.append(replace(draft, files=(*draft.files, *table.unnamed(staged))))
                self.after_refusal()
                if not _may_be_repeated(refused, before, table):
                    raise refused
            elif tries.unanswered == UNANSWERED_MAX or _is_gone(draft.snapshot.parent_id, table, self.branch):
                return None
            if time.monotonic() > deadline:
                return None
        return None

    def _looked(self, table: IcebergTable, tries: _SnapshotTries[Outcome], refused: Refusal | None) -> IcebergTable:
        """The table after an attempt. If the table refused us and is gone, the attempt had no effect."""
        try:
            return table.reloaded()
        except (ConflictError, InputError, CredentialsError) as error:
            if refused is not None and isinstance(error, (ConflictError, NotFoundError)):
                tries.unanswered -= 1
            elif isinstance(refused, (InputError, CredentialsError)):  # the catalog lets us neither commit nor load
                tries.unanswered -= 1
                raise refused from error
            raise

    def _forget(self, tries: _SnapshotTries[Outcome]) -> None:
        """Delete the metadata that only refused attempts name, once nobody waits for a commit. The data files are still
        wanted."""
        kept = {path for draft, _ in tries.drafts for path in draft.files}
        refused = dict.fromkeys(path for draft in tries.refused for path in draft.files if path not in kept)
        with contextlib.suppress(DeltaCompactError):  # then they are orphans, which maintain removes
            locations.discard_all(self.store, refused, lambda count: None)


def _new_id(known: Container[int]) -> int:
    """A snapshot id that the table does not have."""
    while (chosen := secrets.randbits(63)) == 0 or chosen in known:
        pass
    return chosen


def _may_be_repeated(refused: Refusal, before: IcebergTable, after: IcebergTable) -> bool:
    """Whether another attempt may succeed: after a conflict, or after a 400 if the table has changed meanwhile.

    Some servers answer 400 if another commit took our sequence number or row ids.
    """
    changed = _has_changed(before, after)
    return isinstance(refused, ConflictError) or (isinstance(refused, CommitRefusedError) and changed)


def _has_changed(before: IcebergTable, after: IcebergTable) -> bool:
    return after.metadata.metadata_location != before.metadata.metadata_location


def _is_gone(parent_id: int | None, table: IcebergTable, branch: str) -> bool:
    """Whether the parent of an attempt is no longer among the head's ancestors.

    Then somebody has expired snapshots, perhaps ours too, and the table does not show whether the attempt took effect.
    """
    ref = table.metadata.refs.get(branch)
    head = table.metadata.snapshots[ref.snapshot_id] if ref else None
    ancestors = list(table.metadata.ancestors(head))
    if parent_id is None:
        return bool(ancestors) and ancestors[-1].parent_id is not None
    return all(ancestor.snapshot_id != parent_id for ancestor in ancestors)

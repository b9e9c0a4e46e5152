"""Commits rewritten groups as one `replace` snapshot: manifests, manifest list, summary, and the retries.

    head 8      manifest 1: a, b, c       manifest 2 (deletes): p
    commit      manifest 3: y added with sequence number 5
                manifest 4: a deleted, b and c existing             instead of manifest 1 and all others that lose files
                manifest 5 (deletes): p deleted
    head 9      manifests 3, 4, 5         if the head still is 8; else read the new head, check, and build again

Everything is built on the head of each attempt, so an append meanwhile costs one more attempt and no work. A snapshot
has one id in all attempts: whether an attempt took effect is seen by its id (rule 20). Until that is known, none of the
files that it names is deleted.
"""

from __future__ import annotations

import random
import secrets
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from deltacompact.base.errors import ConflictError, InputError, Interrupted, OutcomeUnknownError
from deltacompact.base.wording import text_of
from deltacompact.catalog.iceberg import locations, manifests
from deltacompact.catalog.iceberg.content_files import Content, ContentFile, Entry, Manifest, ManifestContent, Status
from deltacompact.catalog.iceberg.manifests import ManifestTerms
from deltacompact.catalog.iceberg.matching import dangling
from deltacompact.catalog.iceberg.metadata import Snapshot
from deltacompact.catalog.iceberg.pyiceberg_door import CommitUnansweredError, IcebergTable
from deltacompact.catalog.iceberg.rewrite_plan import FileGroup, RewritePlan
from deltacompact.catalog.iceberg.table_state import StateReader, TableState, scope_of
from deltacompact.catalog.iceberg.validation import Head, Problem
from deltacompact.storage.objects import ObjectStore

ATTEMPTS_MAX = 100
UNANSWERED_MAX = 8
"""After so many attempts without an answer we stop asking, and keep every file that they name."""
ENTRIES_PER_MANIFEST = 20_000
"""Manifests that lose files are rewritten together, up to about 8 MB each: a stream leaves one for each commit."""
_WAIT_FIRST_S, _WAIT_LONGEST_S = 0.05, 5.0


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A group, and the files that were written in its place."""

    group: FileGroup
    outputs: tuple[ContentFile, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of some groups. `snapshot` is None if none of them could be committed.

    `removed_deletes` counts the delete files that applied to nothing any more and were removed.
    """

    table: IcebergTable
    snapshot: Snapshot | None
    groups: tuple[Rewritten, ...]
    refused: tuple[tuple[Rewritten, Problem], ...]
    removed_deletes: int = 0
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Draft:
    """A snapshot whose manifests are written, and the files that only it names."""

    snapshot: Snapshot
    groups: tuple[Rewritten, ...]
    removed_deletes: int
    files: tuple[str, ...]


@dataclass(slots=True)
class _Tries:
    """The attempts at one snapshot: their drafts, and how many may have been carried out without our knowing."""

    snapshot_id: int
    drafts: list[Draft] = field(default_factory=list)
    unanswered: int = 0

    def landed(self, table: IcebergTable) -> Draft | None:
        """The attempt that took effect after all."""
        found = table.metadata.snapshots.get(self.snapshot_id)
        if found is None:
            return None
        return next(draft for draft in self.drafts if draft.snapshot.manifest_list == found.manifest_list)


@dataclass(frozen=True, slots=True)
class Committer:
    """Commits to one branch. `wait` sleeps between attempts."""

    store: ObjectStore
    reader: StateReader
    branch: str
    session: str
    wait: Callable[[float], None] = time.sleep

    def commit(self, table: IcebergTable, plan: RewritePlan, rewritten: Sequence[Rewritten]) -> Committed:
        """Commit those groups that nobody touched since the plan.

        Raises ConflictError after too many attempts, InputError if the catalog does not let us, and OutcomeUnknownError
        (Interrupted after Ctrl-C) if nobody knows what happened to an attempt; then the written files must stay.
        """
        tries = _Tries(secrets.randbits(63) or 1)
        unknown = (
            f"{plan.table_id}: the catalog did not say whether snapshot {tries.snapshot_id} was committed; all files "
            "that it names are kept. Compact again: the table itself shows what happened"
        )
        try:
            if (done := self._tried(table.reloaded(), plan, rewritten, tries)) is not None:
                return done
        except KeyboardInterrupt:
            if tries.unanswered:
                raise Interrupted(unknown) from None
            raise
        except Exception as error:
            if tries.unanswered:
                raise OutcomeUnknownError(f"{unknown} ({text_of(error)})") from error
            raise
        if tries.unanswered:
            raise OutcomeUnknownError(unknown)
        raise ConflictError(f"{plan.table_id}: other commits came first, again and again")

    def _tried(
        self, table: IcebergTable, plan: RewritePlan, rewritten: Sequence[Rewritten], tries: _Tries
    ) -> Committed | None:
        """Attempt after attempt, each on the head of now. None: none of them surely took effect."""
        attempts = int(table.metadata.properties.get("commit.retry.num-retries", ATTEMPTS_MAX)) + 1
        for attempt in range(1, attempts + 1):
            state = self.reader.read(table.metadata, self.branch)
            if (done := tries.landed(table)) is not None:
                return self._result(table, done, rewritten, (), attempt - 1)
            valid, refused = _checked(Head(state), plan, rewritten)
            if not valid:
                return None if tries.unanswered else Committed(table, None, (), refused, attempts=attempt)
            draft = self._draft(state, plan, valid, tries.snapshot_id)
            tries.drafts.append(draft)
            tries.unanswered += 1
            try:
                after = table.commit(draft.snapshot, self.branch)
                return self._result(after, draft, rewritten, refused, attempt)
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

    def _forget(self, draft: Draft, tries: _Tries) -> None:
        """Delete the metadata of an attempt that surely had no effect. The data files are still wanted."""
        tries.drafts.remove(draft)
        for path in draft.files:
            locations.discard(self.store, path)

    def _result(
        self,
        table: IcebergTable,
        draft: Draft,
        rewritten: Sequence[Rewritten],
        refused: Sequence[tuple[Rewritten, Problem]],
        attempts: int,
    ) -> Committed:
        known = {id(group) for group in draft.groups} | {id(group) for group, _ in refused}
        others = [(group, Problem.INPUT_GONE) for group in rewritten if id(group) not in known]
        return Committed(table, draft.snapshot, draft.groups, (*refused, *others), draft.removed_deletes, attempts)

    def _draft(self, state: TableState, plan: RewritePlan, valid: Sequence[Rewritten], snapshot_id: int) -> Draft:
        """Write the manifests of a snapshot on this head."""
        head = Head(state)
        gone = [entry for group in valid for entry in head.live(group.group)]
        added = [
            Entry(Status.ADDED, snapshot_id, _output_sequence(plan), None, file)
            for group in valid
            for file in group.outputs
        ]
        next_sequence = state.metadata.last_sequence_number + 1
        numbered = [
            replace(entry, sequence_number=next_sequence) if entry.sequence_number is None else entry for entry in added
        ]
        touched = {scope_of(entry) for entry in gone}
        useless = [
            entry for entry in dangling(state, gone, numbered) if scope_of(entry) in touched or state.is_global(entry)
        ]
        removed = {entry.file.key for entry in (*gone, *useless)}
        writing = _Manifests(self.store, state, snapshot_id)
        listed: list[Manifest] = []
        for spec_id in sorted({entry.file.spec_id for entry in added}):
            of_spec = [entry for entry in added if entry.file.spec_id == spec_id]
            listed.append(writing.write(of_spec, spec_id, ManifestContent.DATA))
        rewritten: dict[tuple[int, ManifestContent], list[Entry]] = defaultdict(list)
        for manifest, entries in zip(state.manifests, self.reader.entries_of(state.manifests), strict=True):
            live = [entry for entry in entries if entry.status is not Status.DELETED]
            if any(entry.file.key in removed for entry in live):
                kept = [_remaining(entry, removed, snapshot_id) for entry in live]
                rewritten[manifest.spec_id, manifest.content] += kept
            elif live:
                listed.append(manifest)
        for (spec_id, content), kept in rewritten.items():
            for start in range(0, len(kept), ENTRIES_PER_MANIFEST):
                listed.append(writing.write(kept[start : start + ENTRIES_PER_MANIFEST], spec_id, content))
        data = manifests.write_manifest_list(
            listed, state.metadata.format_version, snapshot_id, state.snapshot_id, next_sequence
        )
        path = f"{state.metadata.metadata_folder}/snap-{snapshot_id}-{uuid.uuid4()}.avro"
        locations.put(self.store, path, data)
        now_ms = int(time.time() * 1000)
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_id=state.snapshot_id,
            sequence_number=next_sequence,
            timestamp_ms=max(now_ms, state.snapshot.timestamp_ms if state.snapshot else 0),
            manifest_list=path,
            schema_id=state.metadata.schema_id,
            summary=_summary(state, gone, useless, numbered, self.session),
        )
        return Draft(snapshot, tuple(valid), len(useless), (*writing.paths, path))


class _Manifests:
    """Writes the manifests of one snapshot."""

    def __init__(self, store: ObjectStore, state: TableState, snapshot_id: int) -> None:
        self.paths: list[str] = []
        self._store = store
        self._metadata = state.metadata
        self._terms = ManifestTerms(state.metadata.format_version, snapshot_id, state.metadata.schema_json)
        self._name = uuid.uuid4()

    def write(self, entries: Sequence[Entry], spec_id: int, content: ManifestContent) -> Manifest:
        path = f"{self._metadata.metadata_folder}/{self._name}-m{len(self.paths)}.avro"
        data, line = manifests.write_manifest(entries, self._metadata.specs[spec_id], content, self._terms, path)
        locations.put(self._store, path, data)
        self.paths.append(path)
        return line


def _output_sequence(plan: RewritePlan) -> int | None:
    """The data sequence number of outputs (rules 3 and 5). None: that of their snapshot."""
    return plan.sequence_number if plan.options.use_starting_sequence_number else None


def _remaining(entry: Entry, removed: set[tuple[str, int | None]], snapshot_id: int) -> Entry:
    if entry.file.key in removed:
        return replace(entry, status=Status.DELETED, snapshot_id=snapshot_id)
    return replace(entry, status=Status.EXISTING)


def _checked(
    head: Head, plan: RewritePlan, rewritten: Sequence[Rewritten]
) -> tuple[tuple[Rewritten, ...], tuple[tuple[Rewritten, Problem], ...]]:
    problems = [(group, head.problem_of(group.group, plan)) for group in rewritten]
    return (
        tuple(group for group, problem in problems if problem is None),
        tuple((group, problem) for group, problem in problems if problem is not None),
    )


def _summary(
    state: TableState, gone: Sequence[Entry], useless: Sequence[Entry], added: Sequence[Entry], session: str
) -> dict[str, str]:
    """The snapshot's summary (spec, "Optional Snapshot Summary Fields"). Totals are counted, not carried on."""
    removed = {entry.file.key for entry in (*gone, *useless)}
    left = [entry.file for entry in (*state.data, *state.deletes) if entry.file.key not in removed]
    left += [entry.file for entry in added]

    def of(files: Sequence[ContentFile], *contents: Content) -> list[ContentFile]:
        return [file for file in files if file.content in contents]

    new, old = [entry.file for entry in added], [entry.file for entry in (*gone, *useless)]
    deletes = (Content.POSITION_DELETES, Content.EQUALITY_DELETES)
    counts = {
        "added-data-files": len(new),
        "added-records": sum(file.rows for file in new),
        "added-files-size": sum(file.file_bytes for file in new),
        "deleted-data-files": len(gone),
        "deleted-records": sum(entry.file.rows for entry in gone),
        "removed-files-size": sum(file.file_bytes for file in old),
        "removed-delete-files": len(useless),
        "removed-position-delete-files": len(of(old, Content.POSITION_DELETES)),
        "removed-equality-delete-files": len(of(old, Content.EQUALITY_DELETES)),
        "removed-position-deletes": sum(file.rows for file in of(old, Content.POSITION_DELETES)),
        "removed-equality-deletes": sum(file.rows for file in of(old, Content.EQUALITY_DELETES)),
        "changed-partition-count": len({scope_of(entry) for entry in (*gone, *useless, *added)}),
    }
    totals = {
        "total-data-files": len(of(left, Content.DATA)),
        "total-delete-files": len(of(left, *deletes)),
        "total-records": sum(file.rows for file in of(left, Content.DATA)),
        "total-files-size": sum(file.file_bytes for file in left),
        "total-position-deletes": sum(file.rows for file in of(left, Content.POSITION_DELETES)),
        "total-equality-deletes": sum(file.rows for file in of(left, Content.EQUALITY_DELETES)),
    }
    shown = {name: str(count) for name, count in counts.items() if count} | {
        name: str(count) for name, count in totals.items()
    }
    return {"operation": "replace", **shown, "deltacompact.session": session}

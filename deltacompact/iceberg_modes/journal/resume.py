"""Resumes dead sessions: commits the groups that they had written, and deletes their other files.

    session 5c    groups 0, 1, 2 planned; 0 and 1 written; its process was killed
    the next run  takes the journal over, commits 0 and 1, deletes half an output of 2, clears the journal
                  and then plans anew: group 2 is planned again

A group is committed if its mode finds it valid on the current head, as at any commit. It is done again if one of its
files is missing or cut short. If a commit got no answer, it has landed if the table has its snapshot or its files: then
nothing of it is deleted, and nothing is committed twice. Journals that we cannot trust stay for `maintain`.

Outputs are compared by name, which only this session writes, and inputs by identity: between two runs the table may
have been registered by another spelling of its location, or may write to another folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

from deltacompact.base.errors import DeltaCompactError, InputError
from deltacompact.base.wording import counted, text_of
from deltacompact.iceberg.commit.committer import Committed, Committer
from deltacompact.iceberg.commit.proposal import Proposal
from deltacompact.iceberg.commit.snapshots import unnamed_drafts
from deltacompact.iceberg.deletes.matching import DeleteIndex
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.content_files import ContentFile, ManifestEntry
from deltacompact.iceberg.table.metadata import Ref
from deltacompact.iceberg.table.other_heads import other_heads
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.journal.journal import (
    Journal,
    Planned,
    Records,
    UntrustedError,
    WrittenGroup,
    files_of,
    other_than,
)
from deltacompact.iceberg_modes.journal.left_behind import SessionsLeft
from deltacompact.iceberg_modes.journal.signs_of_life import Signs, at_work, giving_signs
from deltacompact.iceberg_modes.journal.tries import Tries
from deltacompact.iceberg_modes.plan_envelope import input_paths
from deltacompact.storage.identity import file_name
from deltacompact.storage.objects import ObjectStore

Resumption: TypeAlias = Callable[[Planned, Sequence[WrittenGroup], TableState], Proposal[Any]]
"""What a mode proposes on the current head, of groups that a dead session had written."""


def landed_inputs(state: TableState, reader: StateReader, left: SessionsLeft, mode: str) -> frozenset[str]:
    """The data files of groups that dead sessions of a mode committed."""
    found: set[str] = set()
    for dead in left.dead:
        if dead.plan.mode == mode and dead.records is not None:
            for number in _landed(dead.records, state, reader)[0]:
                found |= input_paths(dead.plan.body["groups"][number])
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Resumed:
    """What became of a dead session. `committed` is None if nothing was left to commit; `done` are its input files."""

    committed: Committed[Any] | None = None
    done: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def resume(
    session: str, table: IcebergTable, committer: Committer, signs: Signs, resumption: Resumption | None
) -> Resumed:
    """Commit what a dead session had written, and clear its journal. Without a resumption, nothing is committed.

    Raises UntrustedError where other code wrote it: then the journal stays.
    """
    with at_work(session):
        held = Journal.take_over(committer.store, session)
        return Resumed() if held is None else _cleared(held, table, committer, signs, resumption)


def _cleared(
    held: Journal, table: IcebergTable, committer: Committer, signs: Signs, resumption: Resumption | None
) -> Resumed:
    with giving_signs(held.session, held.sign, signs) as stop_signs:
        try:
            resumed, delete = _resumed(held, table, committer, resumption)
            locations.discard_all(held.store, delete)
            stop_signs()
            held.clear()
            return resumed
        except BaseException:
            with contextlib.suppress(DeltaCompactError):
                held.ended()
            raise


def _resumed(
    held: Journal, table: IcebergTable, committer: Committer, resumption: Resumption | None
) -> tuple[Resumed, Sequence[str]]:
    """What was resumed, and the files to delete before the journal is cleared."""
    store, reader = held.store, committer.reader
    records = held.read()
    table = table.reloaded()
    state = reader.read(table.metadata, committer.branch)
    landed, in_table = _landed(records, state, reader)
    if records.delete is not None:  # by a version that compared spellings, perhaps
        return Resumed(), other_than(records.delete, in_table)
    waiting = [group for group in records.groups if group.number not in landed]
    folders = [state.metadata.data_folder, *(file.path.rpartition("/")[0] for file in _outputs(records))]
    intact = _intact(waiting, files_of(store, held.session, folders)) if resumption is not None else []
    planned = records.plan.body["groups"]
    tries = Tries(held, [group.number for group in intact])
    committed = _committed(tries, table, committer, records.plan, intact, resumption) if resumption and intact else None
    added, done = frozenset[str](), set[int]()
    if committed is not None and committed.snapshot is not None:
        added = committed.outcome.paths | tries.files
        after = reader.read(committed.table.metadata, committer.branch)
        marked = committed.outcome.marked
        done = {
            group.number
            for group in intact
            if _is_in(group, added)
            or not marked.isdisjoint(input_paths(planned[group.number]))
            or not _has_inputs(after, planned[group.number])
        }
    # a commit of the dead session may still be under way, and might succeed after a rollback
    tried = {
        number
        for snapshot_id, numbers in records.commits.items()
        if snapshot_id not in state.metadata.snapshots
        for number in numbers
    }
    kept = {file.path for group in records.groups if group.number in tried for file in group.outputs} | in_table | added
    kept.update(*(files for number, files in records.added.items() if number not in state.metadata.snapshots))
    unwanted = other_than(files_of(store, held.session, folders), kept) + _drafts(store, records, committed)
    notes = []
    if landed:
        notes.append(f"{counted(len(landed), 'group')} of session {held.session} had been committed")
    if again := len(waiting) - len(done):
        why = "cannot be committed any more" if resumption else f"of another {records.plan.mode}: deleted"
        notes.append(f"{counted(again, 'group')} of session {held.session} {why}")
    files = frozenset[str]().union(*(input_paths(planned[number]) for number in landed | done))
    return Resumed(committed, files, tuple(notes)), held.finish(unwanted)


def _committed(
    tries: Tries,
    table: IcebergTable,
    committer: Committer,
    plan: Planned,
    groups: Sequence[WrittenGroup],
    resumption: Resumption,
) -> Committed[Any]:
    def propose(state: TableState) -> Proposal[Any]:
        live = _names(state)  # the dead session's own commit may land between two attempts of ours
        waiting = [group for group in groups if not _files(group) & live]
        try:
            return resumption(plan, waiting, state)
        except (InputError, LookupError, TypeError, ValueError) as error:  # options or reasons that we do not know
            raise UntrustedError(f"this version cannot read its plan: {text_of(error)}") from error

    committing = replace(
        committer, on_head=tries.on_head, before_attempt=tries.before_attempt, after_refusal=tries.after_refusal
    )
    return committing.commit(table, tries.proposing(propose))


def _drafts(store: ObjectStore, records: Records, committed: Committed[Any] | None) -> list[str]:
    """Manifests of snapshots that the dead session tried to commit, and that our own has made impossible.

    The dead session may have worked through another catalog, whose pointer has them.
    """
    if committed is None or committed.snapshot is None:
        return []
    metadata = committed.table.metadata
    failed = {snapshot_id for snapshot_id in records.commits if snapshot_id not in metadata.snapshots}
    if failed:
        failed -= {snapshot.snapshot_id for head in other_heads(committed.table) for snapshot in head.snapshots}
    return unnamed_drafts(store, metadata, failed)


def _intact(groups: Sequence[WrittenGroup], found: Mapping[str, int]) -> list[WrittenGroup]:
    """The groups whose files are all there, and whole."""
    there = {(file_name(location), size) for location, size in found.items()}
    return [
        group for group in groups if there.issuperset((file_name(file.path), file.file_bytes) for file in group.outputs)
    ]


def _landed(records: Records, state: TableState, reader: StateReader) -> tuple[set[int], set[str]]:
    """The groups that the table has, and the names of the session's files that it has.

    A commit that followed others' deletes may have other marks than the group had written. Where others deleted all
    rows, it has none of the outputs: the group is there if the commit took its inputs away. A group without files is
    there if its inputs are gone.
    """
    added = frozenset(map(file_name, chain.from_iterable(records.added.values())))
    recorded = added.union(*map(_files, records.groups))
    inputs = {group.number: _inputs(records.plan.body["groups"][group.number]) for group in records.groups}

    def has(then: TableState) -> set[int]:
        live, marked = _names(then), _marked(then, added)
        return {group.number for group in records.groups if _files(group) & live or inputs[group.number] & marked}

    landed, found = has(state), set(recorded & _names(state))
    without_files = {group.number for group in records.groups if not group.outputs}
    for snapshot_id, numbers in records.commits.items():
        if snapshot_id not in state.metadata.snapshots:
            continue
        then = _state_at(snapshot_id, state, reader)
        found |= recorded & _names(then)
        there = set(map(_identity, then.data))
        gone = {number for number in numbers if inputs[number].isdisjoint(there)}
        if not gone <= without_files:  # others may have taken its inputs away, so that it was left out
            before = set(map(_identity, _data_before(then, reader)))
            gone = {number for number in gone if number in without_files or inputs[number] & before}
        landed |= (has(then) | gone) & set(numbers)
    return landed, found


def _state_at(snapshot_id: int, state: TableState, reader: StateReader) -> TableState:
    refs = {**state.metadata.refs, state.branch: Ref(snapshot_id, "branch")}
    return reader.read(replace(state.metadata, refs=refs), state.branch)


def _data_before(state: TableState, reader: StateReader) -> Sequence[ManifestEntry]:
    """The data files of the snapshot before; none, if it is not known any more."""
    parent = state.snapshot.parent_id if state.snapshot else None
    return _state_at(parent, state, reader).data if parent in state.metadata.snapshots and parent is not None else ()


def _inputs(group: Mapping[str, Any]) -> set[str]:
    """The data files of a planned group, by identity."""
    return set(map(locations.identity_of, input_paths(group)))


def _identity(entry: ManifestEntry) -> str:
    return locations.identity_of(entry.file.path)


def _marked(state: TableState, names: frozenset[str]) -> set[str]:
    """The data files, by identity, of which delete files with these names may name rows."""
    ours = tuple(entry for entry in state.deletes if file_name(entry.file.path) in names)
    index = DeleteIndex(replace(state, deletes=ours))
    return {_identity(entry) for entry in (state.data if ours else ()) if index.applying_to(entry).by_position}


def _has_inputs(state: TableState, group: Mapping[str, Any]) -> bool:
    """Whether the branch has one of the data files of a planned group, under any spelling of its location."""
    inputs = _inputs(group)
    return any(_identity(entry) in inputs for entry in state.data)


def _names(state: TableState) -> set[str]:
    return {file_name(entry.file.path) for entry in (*state.data, *state.deletes)}


def _files(group: WrittenGroup) -> set[str]:
    return {file_name(file.path) for file in group.outputs}


def _outputs(records: Records) -> Iterator[ContentFile]:
    return (file for group in records.groups for file in group.outputs)


def _is_in(group: WrittenGroup, added: frozenset[str]) -> bool:
    return not group.outputs or any(file.path in added for file in group.outputs)

"""Resumes what sessions left that died: their written groups are committed, and the rest of what they wrote is deleted.

    session 5c    groups 0, 1, 2 planned; 0 and 1 written; its process was killed
    the next run  takes the journal over, commits 0 and 1, deletes half an output of 2, clears the journal
                  and then plans anew: group 2 is there still

A group is committed if it is still valid on the head of now, as at any commit. It is written again if an output is
missing or cut short. A commit whose answer nobody heard has landed if the table has its snapshot; then nothing of it is
deleted. Live sessions are left alone, and so are their files. Journals that cannot be trusted stay for `maintain`.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deltacompact.base.errors import ConflictError, DeltaCompactError, NotFoundError
from deltacompact.base.wording import counted, text_of
from deltacompact.catalog.iceberg.commit.committer import Committed, Committer
from deltacompact.catalog.iceberg.commit.snapshots import unnamed_drafts
from deltacompact.catalog.iceberg.rewrite import journal as journals
from deltacompact.catalog.iceberg.rewrite.journal import FOLDER, Journal, Records, UntrustedError, WrittenGroup
from deltacompact.catalog.iceberg.rewrite.outputs import name_of_outputs
from deltacompact.catalog.iceberg.rewrite.plan_document import input_paths, plan_of_body
from deltacompact.catalog.iceberg.rewrite.proposals import ProposeRewrite, RewriteOutcome, Rewritten
from deltacompact.catalog.iceberg.rewrite.signs_of_life import Signs, giving_signs
from deltacompact.catalog.iceberg.table import locations
from deltacompact.catalog.iceberg.table.content_files import ContentFile
from deltacompact.catalog.iceberg.table.metadata import Ref
from deltacompact.catalog.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.catalog.iceberg.table.table_state import StateReader, TableState
from deltacompact.storage.objects import ObjectStat, ObjectStore


@dataclass(frozen=True, slots=True)
class Left:
    """What earlier sessions of the branch left: the dead ones, by name, and the files that live ones are rewriting."""

    dead: tuple[str, ...] = ()
    busy: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def left_behind(store: ObjectStore, state: TableState, signs: Signs) -> Left:
    """What is in the journals. Waits for signs of life of sessions on other machines that were at work just now."""
    sessions: dict[str, list[ObjectStat]] = defaultdict(list)
    for stat in store.list(FOLDER):
        session, slash, _ = stat.path.removeprefix(FOLDER).partition("/")
        if slash:
            sessions[session].append(stat)
    dead, notes = [], []
    busy: set[str] = set()
    for session, stats in sessions.items():
        paths = [stat.path for stat in stats]
        if journals.folder_of(session) + "plan.json" not in paths:
            store.delete(paths)  # the rest of a journal that was cleared
            continue
        try:
            plan = journals.plan_of(store, session)["plan"]
            if (plan["uuid"], plan["branch"]) != (state.metadata.uuid, state.branch):
                continue
            if _is_alive(store, session, stats, signs):
                files = frozenset[str]().union(*map(input_paths, plan["groups"]))
                busy |= files
                notes.append(f"session {session} is rewriting {counted(len(files), 'file')} of this branch")
                continue
            journals.read(store, session, paths)
            dead.append(session)
        except NotFoundError:
            continue  # it is being cleared
        except UntrustedError as error:
            notes.append(f"the journal of session {session} is not resumed, maintain removes it: {text_of(error)}")
    return Left(tuple(dead), frozenset(busy), tuple(notes))


def _is_alive(store: ObjectStore, session: str, stats: Sequence[ObjectStat], signs: Signs) -> bool:
    paths = [stat.path for stat in stats]
    folder = journals.folder_of(session)
    if folder + "ended" in paths:
        return False
    known = journals.holder_of(store, session, paths).is_at_work(session)
    if known is not None:
        return known
    first = latest = _newest(stats)
    while latest == first:
        if _store_time(store) - latest > signs.dead_after_s:
            return False
        time.sleep(signs.every_s / 2)
        latest = _newest(store.list(folder))
    return latest > first


def _newest(stats: Iterable[ObjectStat]) -> float:
    return max((stat.modified_s for stat in stats), default=0.0)


def _store_time(store: ObjectStore) -> float:
    """The time of now by the clock that dates objects."""
    path = f"{FOLDER}clock-{uuid.uuid4().hex}"
    store.put(path, b"")
    try:
        return store.stat(path).modified_s
    finally:
        store.delete([path])


def landed_inputs(store: ObjectStore, state: TableState, reader: StateReader, left: Left) -> frozenset[str]:
    """The data files of groups that dead sessions committed."""
    found: set[str] = set()
    for session in left.dead:
        records = journals.read(store, session, [stat.path for stat in store.list(journals.folder_of(session))])
        for number in _landed(records, state, reader):
            found |= input_paths(records.plan["plan"]["groups"][number])
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Resumed:
    """What became of a dead session. `committed` is None if nothing was left to commit; `done` are its input files."""

    committed: Committed[RewriteOutcome] | None
    done: frozenset[str]
    notes: tuple[str, ...]


def resume(session: str, table: IcebergTable, committer: Committer, signs: Signs) -> Resumed:
    """Commit what a dead session had written, and clear its journal."""
    store = committer.store
    held = Journal.take_over(store, session)
    if held is None:
        return Resumed(None, frozenset(), ())
    with giving_signs(session, held.sign, signs) as stop_signs:
        try:
            resumed, delete = _resumed(held, table, committer)
            for path in delete:
                locations.discard(store, path)
            stop_signs()
            held.clear()
            return resumed
        except BaseException:
            with contextlib.suppress(DeltaCompactError):
                held.ended()
            raise


def _resumed(held: Journal, table: IcebergTable, committer: Committer) -> tuple[Resumed, Sequence[str]]:
    """What was resumed, and the files to delete before the journal is cleared."""
    store, reader = held.store, committer.reader
    records = held.read()
    if records.delete is not None:
        return Resumed(None, frozenset(), ()), records.delete
    table = table.reloaded()
    state = reader.read(table.metadata, committer.branch)
    landed = _landed(records, state, reader)
    waiting = [group for group in records.groups if group.number not in landed]
    intact = [group for group in waiting if all(_is_intact(store, file) for file in group.outputs)]
    propose = _proposal(records, intact, state)
    numbers = [rewritten.group.number for rewritten in propose.rewritten]
    committing = replace(committer, before_attempt=lambda number: held.before_attempt(number, numbers))
    committed = committing.commit(table, propose) if numbers else None
    done = {rewritten.group.number for rewritten in committed.outcome.groups} if committed else set()
    # a commit of the dead session may still be under way, and might succeed after a rollback
    tried = {number for groups in records.commits.values() for number in groups}
    kept = {file.path for group in records.groups if group.number in landed | done | tried for file in group.outputs}
    found = locations.listed(store, state.metadata.data_folder, name_of_outputs(held.session))
    unwanted = [path for path in found if path not in kept] + _drafts(store, records, committed)
    notes = []
    if landed:
        notes.append(f"{counted(len(landed), 'group')} of session {held.session} had been committed")
    if again := len(waiting) - len(done):
        notes.append(f"{counted(again, 'group')} of session {held.session} cannot be committed any more")
    groups = records.plan["plan"]["groups"]
    files = frozenset[str]().union(*(input_paths(groups[number]) for number in landed | done))
    return Resumed(committed, files, tuple(notes)), held.finish(unwanted)


def _drafts(store: ObjectStore, records: Records, committed: Committed[Any] | None) -> list[str]:
    """Manifests of snapshots that the dead session tried to commit, and that our own has made impossible."""
    if committed is None or committed.snapshot is None:
        return []
    metadata = committed.table.metadata
    failed = [snapshot_id for snapshot_id in records.commits if snapshot_id not in metadata.snapshots]
    return unnamed_drafts(store, metadata, failed)


def _is_intact(store: ObjectStore, file: ContentFile) -> bool:
    return locations.bytes_of(store, file.path) == file.file_bytes


def _proposal(records: Records, groups: Sequence[WrittenGroup], state: TableState) -> ProposeRewrite:
    """Proposes the groups whose files and deletes are there still."""
    body: Mapping[str, Any] = records.plan["plan"]
    found = []
    for group in groups:
        with contextlib.suppress(ConflictError):  # another commit removed one of them: it cannot be committed
            (planned,) = plan_of_body(body, state, [group.number]).groups
            found.append(Rewritten(planned, group.outputs, group.dead_by_position, group.dead_by_key))
    return ProposeRewrite(plan_of_body(body, state, ()), found)


def _landed(records: Records, state: TableState, reader: StateReader) -> set[int]:
    """The groups that are in a snapshot of the table. One without outputs is, if its files are gone from there."""
    found: set[int] = set()
    outputs = {group.number: group.outputs for group in records.groups}
    for snapshot_id, numbers in records.commits.items():
        if snapshot_id not in state.metadata.snapshots:
            continue
        refs = {**state.metadata.refs, state.branch: Ref(snapshot_id, "branch")}
        live = {entry.file.path for entry in reader.read(replace(state.metadata, refs=refs), state.branch).data}
        for number in numbers:
            files = outputs[number]
            inputs = input_paths(records.plan["plan"]["groups"][number])
            if files[0].path in live if files else not inputs & live:
                found.add(number)
    return found
